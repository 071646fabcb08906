//! `GET /v1/queues`: all queues, or those that hold something for somebody.

use hubbub_core::{ClientId, QueueId};
use hyper::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;

use super::super::endpoint::Call;
use super::super::page::{LIMIT_DEFAULT, LIMIT_MAX, Page};
use super::super::query::refuse_faults;
use super::super::types::Id;
use super::super::{Answer, json_of};
use super::json::Queue;

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
            caller.check_client(receiver.as_str())?;
            let names = gateway.store.queues_holding(receiver, after, limit + 1).await?;
            let page = Page::of(names, limit, ToString::to_string);
            (page.items.into_iter().map(|queue| QueueItem::Name { queue: Id(queue) }).collect(), page.next)
        }
        None => {
            let queues = gateway.store.queues(after, limit + 1).await?;
            let page = Page::of(queues, limit, |last| last.queue.to_string());
            (page.items.into_iter().map(|info| QueueItem::Whole(info.into())).collect(), page.next)
        }
    };
    json_of(StatusCode::OK, &QueueList { queues, next })
}
