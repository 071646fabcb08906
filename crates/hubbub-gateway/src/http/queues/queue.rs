//! Lists, shows, creates, changes and deletes queues; registers and lists clients.

use std::sync::LazyLock;

use hubbub_core::queue::QueueSettings;
use hubbub_core::queue_draft::{QueueSettingsDraft, dead_letter_name};
use hubbub_core::store::ReadError;
use hubbub_core::{ClientId, QueueId, QueueOp, QueueOutcome};
use hyper::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;

use super::super::endpoint::Call;
use super::super::members_known::KnownMembers;
use super::super::query::{LIMIT_DEFAULT, LIMIT_MAX, cut, refuse_faults};
use super::super::types::Id;
use super::super::{Answer, json_of, no_content};
use super::json::{self, Queue};
use super::no_queue;
use crate::Gateway;
use crate::auth::caller::{Caller, Requirement};
use crate::json::object_or_default;
use crate::problem::Problem;

static MEMBERS: LazyLock<KnownMembers> = LazyLock::new(KnownMembers::of::<json::QueueSettings, Queue>);

pub(in super::super) async fn put(mut call: Call) -> Answer {
    let queue = call.queue()?;
    let body = call.body().await?;
    let gateway = call.gateway();
    // A queue needs no settings, so that no body is fine.
    let draft: QueueSettingsDraft<'_> = object_or_default(&body)?;
    let mut faults = Vec::new();
    MEMBERS.check(&body, &mut faults)?;
    let settings = draft.check(queue.as_str(), &mut faults);
    refuse_faults(faults)?;
    check_dead_letter(gateway, &queue, &settings).await?;
    let op = QueueOp::Put { queue: queue.as_str(), settings: &settings };
    let status = match gateway.apply_queue(op).await? {
        QueueOutcome::Queue { created: true, .. } => StatusCode::CREATED,
        QueueOutcome::Queue { created: false, .. } => StatusCode::OK,
        _ => return Err(Problem::no_outcome()),
    };
    answer(gateway, queue, status).await
}

pub(in super::super) async fn get(call: Call) -> Answer {
    let gateway = call.gateway();
    let queue = call.queue()?;
    answer(gateway, queue, StatusCode::OK).await
}

pub(in super::super) async fn delete(call: Call) -> Answer {
    let gateway = call.gateway();
    let queue = call.queue()?;
    let force = call.query.is_set("force");
    match gateway.apply_queue(QueueOp::Delete { queue: queue.as_str(), force }).await? {
        QueueOutcome::Deleted { .. } => Ok(no_content()),
        _ => Err(Problem::no_outcome()),
    }
}

async fn answer(gateway: &Gateway, queue: QueueId, status: StatusCode) -> Answer {
    let info = gateway.store.queue(queue).await?.ok_or_else(no_queue)?;
    json_of(status, &Queue::from(info))
}

/// Refuses limited deliveries where the dead-letter queue's name, made from the queue's, would be too long.
async fn check_dead_letter(
    gateway: &Gateway,
    queue: &QueueId,
    wanted: &QueueSettings,
) -> Result<(), Problem> {
    let Err(fault) = dead_letter_name(queue.as_str(), wanted.dead_letter.as_deref()) else { return Ok(()) };
    let known = gateway.store.queue(queue.clone()).await?.map(|info| info.settings).unwrap_or_default();
    let rules = known.changed(wanted);
    if rules.deliveries_max > 0 && rules.dead_letter.is_empty() {
        return Err(Problem::invalid(vec![fault]));
    }
    Ok(())
}

#[derive(Debug, Serialize, JsonSchema)]
pub(in super::super) struct QueueList {
    queues: Vec<QueueItem>,
    /// The `after` of the next page; `null` at the end.
    next: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
enum QueueItem {
    Whole(Queue),
    /// With `receiver`.
    Name {
        queue: Id,
    },
}

pub(in super::super) async fn list(call: Call) -> Answer {
    let gateway = call.gateway();
    let caller = call.caller()?;
    let mut faults = Vec::new();
    let limit = call.query.limit(LIMIT_DEFAULT, LIMIT_MAX, &mut faults);
    let after = call.query.id("after", QueueId::new, &mut faults);
    let receiver = call.query.id("receiver", ClientId::new, &mut faults);
    refuse_faults(faults)?;
    let (queues, next) = match receiver {
        Some(receiver) => {
            caller.may(Requirement::Client(receiver.as_str()))?;
            let page = |after, limit| gateway.store.queues_holding(receiver.clone(), after, limit);
            let names = known(&caller, after, limit + 1, page, |name| name).await?;
            let (names, next) = cut(names, limit, ToString::to_string);
            (names.into_iter().map(|queue| QueueItem::Name { queue: Id(queue) }).collect(), next)
        }
        None => {
            let page = |after, limit| gateway.store.queues(after, limit);
            let queues = known(&caller, after, limit + 1, page, |info| &info.queue).await?;
            let (queues, next) = cut(queues, limit, |last| last.queue.to_string());
            (queues.into_iter().map(|info| QueueItem::Whole(info.into())).collect(), next)
        }
    };
    json_of(StatusCode::OK, &QueueList { queues, next })
}

/// Queues that are read at once at least, where some are not shown: who may know of few asks for no page of each two.
const READ_AT_ONCE: usize = 100;

/// Up to `limit` queues behind `after` that the caller may know of. `page` reads some of all.
async fn known<T, F>(
    caller: &Caller,
    mut after: Option<QueueId>,
    limit: usize,
    page: impl Fn(Option<QueueId>, usize) -> F,
    name: impl Fn(&T) -> &str,
) -> Result<Vec<T>, Problem>
where
    F: Future<Output = Result<Vec<T>, ReadError>>,
{
    let mut known = Vec::new();
    let mut wanted = limit;
    loop {
        let read = page(after.take(), wanted).await?;
        let is_last = read.len() < wanted;
        after = read.last().and_then(|last| QueueId::new(name(last)).ok());
        let may_know = |queue: &T| caller.is_allowed(Requirement::KnowQueue(name(queue)));
        known.extend(read.into_iter().filter(may_know).take(limit - known.len()));
        wanted = READ_AT_ONCE.max(limit - known.len());
        if is_last || known.len() >= limit || after.is_none() {
            return Ok(known);
        }
        // However many are not shown, others get their turn.
        tokio::task::yield_now().await;
    }
}

pub(in super::super) async fn register(call: Call) -> Answer {
    change_client(call, |client| QueueOp::Register { client }).await
}

pub(in super::super) async fn unregister(call: Call) -> Answer {
    change_client(call, |client| QueueOp::Unregister { client }).await
}

async fn change_client(call: Call, op: impl FnOnce(&str) -> QueueOp<'_>) -> Answer {
    let client = call.client()?;
    match call.gateway().apply_queue(op(client.as_str())).await? {
        QueueOutcome::Client { .. } => Ok(no_content()),
        _ => Err(Problem::no_outcome()),
    }
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct Client {
    client: Id<ClientId>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(in super::super) struct ClientList {
    clients: Vec<Client>,
    /// The `after` of the next page; `null` at the end.
    next: Option<String>,
}

pub(in super::super) async fn clients(call: Call) -> Answer {
    let gateway = call.gateway();
    let (after, limit) = call.page(ClientId::new)?;
    let clients = gateway.store.clients(after, limit + 1).await?;
    let (clients, next) = cut(clients, limit, ToString::to_string);
    let clients = clients.into_iter().map(|client| Client { client: Id(client) }).collect();
    json_of(StatusCode::OK, &ClientList { clients, next })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::ready;
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::auth::caller::{Access, Identity, RightsSource};
    use crate::auth::grants::GrantsText;

    fn caller(queues: serde_json::Value) -> Caller {
        let grants =
            serde_json::from_value::<GrantsText>(json!({ "queues": queues })).unwrap().parse().unwrap();
        let source = RightsSource::Token { id: None, issued_at: None };
        let access = Access {
            subject: hubbub_core::UserId::new("ann").ok(),
            grants,
            expires_at: None,
            leeway: std::time::Duration::ZERO,
            source,
        };
        Caller::unnamed(Identity::Somebody(Arc::new(access))).unwrap()
    }

    #[tokio::test]
    async fn who_may_know_of_few_queues_is_answered_after_few_reads() {
        let all: Vec<String> = (0..1_000).map(|number| format!("queue{number:04}")).collect();
        let reads = Cell::new(0);
        let page = |after: Option<QueueId>, limit: usize| {
            reads.set(reads.get() + 1);
            let behind =
                all.iter().filter(|name| after.as_ref().is_none_or(|after| name.as_str() > after.as_str()));
            ready(Ok(behind.take(limit).cloned().collect::<Vec<String>>()))
        };
        let known = async |queues, after: Option<&str>, limit| {
            reads.set(0);
            let after = after.and_then(|after| QueueId::new(after).ok());
            known(&caller(queues), after, limit, page, |name| name).await.unwrap()
        };
        let some = json!({"queue02*": "r", "queue0999": "w"});
        assert_eq!(known(some.clone(), None, 2).await, ["queue0200", "queue0201"]);
        assert!(reads.get() <= 4, "{} reads", reads.get());
        assert_eq!(known(some.clone(), Some("queue0298"), 3).await, ["queue0299", "queue0999"]);
        assert!(reads.get() <= 10, "{} reads", reads.get());
        // Whoever may know of all has one read of no more than is shown.
        assert_eq!(known(json!({"*": "r"}), None, 2).await, ["queue0000", "queue0001"]);
        assert_eq!(reads.get(), 1);
        assert_eq!(known(json!({"other": "r"}), None, 2).await, [""; 0]);
    }
}
