//! Commands that change nothing, answered by the store.

use std::sync::Arc;

use hubbub_core::queue::TakeFilter;
use hubbub_core::store::ReadError;
use hubbub_core::{ClientId, QueueId};

use super::responses::{self, Name};
use crate::Gateway;
use crate::auth::caller::{Caller, Need};

const PAGE: usize = 1_000;

#[derive(Debug, Clone, Copy)]
pub(super) enum Query {
    Users,
    Queues,
    Holding { receiver: u64 },
    Message { queue: Option<u64>, sender: Option<u64>, receiver: u64, newest_first: bool },
}

pub(super) async fn answer(gateway: Arc<Gateway>, query: Query, caller: Option<Caller>) -> Vec<u8> {
    let mut out = Vec::new();
    if let Err(error) = write(&gateway, query, caller.as_ref(), &mut out).await {
        tracing::error!(%error, ?query, "reading for a command of the line protocol failed; answered Error");
        out.clear();
        out.extend_from_slice(responses::ERROR);
    }
    out
}

async fn write(
    gateway: &Gateway,
    query: Query,
    caller: Option<&Caller>,
    out: &mut Vec<u8>,
) -> Result<(), ReadError> {
    let store = &gateway.store;
    let may_know = |queue: &&str| caller.is_some_and(|caller| caller.is_allowed(Need::KnowQueue(queue)));
    match query {
        Query::Users => {
            let all = read_all(|last| store.clients(last.cloned(), PAGE)).await?;
            responses::write_list("users", all.iter().map(ClientId::as_str), out);
        }
        Query::Queues => {
            let all = read_all(|last| {
                let page = store.queues(last.and_then(queue_id), PAGE);
                async { Ok(page.await?.into_iter().map(|info| info.queue).collect()) }
            });
            responses::write_list(
                "queues",
                all.await?.iter().map(|queue: &Arc<str>| &**queue).filter(may_know),
                out,
            );
        }
        Query::Holding { receiver } => {
            let all = match ClientId::new(Name::of(receiver).as_str()) {
                Ok(client) => holding(gateway, client).await?,
                // Digits are an identifier.
                Err(_) => Vec::new(),
            };
            responses::write_list("queues", all.iter().map(|queue| &**queue).filter(may_know), out);
        }
        Query::Message { queue, sender, receiver, newest_first } => {
            let (queue, sender, receiver) = (queue.map(Name::of), sender.map(Name::of), Name::of(receiver));
            let wanted = TakeFilter {
                queue: queue.as_ref().map(Name::as_str),
                sender: sender.as_ref().map(Name::as_str),
                receiver: Some(receiver.as_str()),
                newest_first,
            };
            let found = store.look(wanted, 1).await?;
            responses::write_found(found.as_deref(), out);
        }
    }
    Ok(())
}

async fn holding(gateway: &Gateway, client: ClientId) -> Result<Vec<Arc<str>>, ReadError> {
    let page =
        |last: Option<&Arc<str>>| gateway.store.queues_holding(client.clone(), last.and_then(queue_id), PAGE);
    read_all(page).await
}

fn queue_id(queue: &Arc<str>) -> Option<QueueId> {
    QueueId::new(queue).ok()
}

/// Reads a list to its end; `page` reads what follows an entry.
async fn read_all<T, F>(page: impl Fn(Option<&T>) -> F) -> Result<Vec<T>, ReadError>
where
    F: Future<Output = Result<Vec<T>, ReadError>>,
{
    let mut all = Vec::new();
    loop {
        let next = page(all.last()).await?;
        let is_last = next.len() < PAGE;
        all.extend(next);
        if is_last {
            return Ok(all);
        }
    }
}
