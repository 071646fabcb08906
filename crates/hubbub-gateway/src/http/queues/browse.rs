//! Everything that is in a queue, and dead letters on their way back.

use hubbub_core::draft::Loose;
use hubbub_core::{FieldError, QueueId, QueueOp, QueueOutcome};
use hyper::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::endpoint::Call;
use super::super::query::{LIMIT_DEFAULT, LIMIT_MAX, refuse_faults};
use super::super::types::{Id, MessageNumber};
use super::super::{Answer, json, json_of};
use super::json::{MESSAGE_BYTES, write_waiting};
use super::{message_of, no_queue};
use crate::json::{object_or_default, write_items, write_text_or_null};
use crate::problem::Problem;

/// `GET /v1/queues/{queue}/messages`: messages in any state, whomever they wait for, in the order of their ids.
pub(in super::super) async fn browse(call: Call) -> Answer {
    let gateway = call.gateway();
    let queue = call.queue()?;
    let mut faults = Vec::new();
    let limit = call.query.limit(LIMIT_DEFAULT, LIMIT_MAX, &mut faults);
    let after = call.query.number("after", &mut faults).unwrap_or(0);
    refuse_faults(faults)?;
    let _turn = gateway.outgoing_memory.permit_large().await?;
    let mut messages = gateway.store.waiting(queue.clone(), after, limit + 1).await?.ok_or_else(no_queue)?;
    let has_more = messages.len() > limit;
    messages.truncate(limit);
    let last = messages.last().map(|last| last.delivery.id);
    // A page may also be short because its texts are long.
    let next = match last {
        Some(last) if !has_more => {
            let behind = gateway.store.waiting(queue, last, 1).await?.unwrap_or_default();
            Some(last).filter(|_| !behind.is_empty())
        }
        last => last,
    };
    let texts: usize = messages.iter().map(|message| message.delivery.text.len()).sum();
    let mut out = Vec::with_capacity(texts + messages.len() * MESSAGE_BYTES + 32);
    out.extend_from_slice(b"{\"messages\":[");
    write_items(&messages, &mut out, write_waiting);
    write_text_or_null("],\"next\":", next.map(|next| next.to_string()).as_deref(), &mut out);
    out.push(b'}');
    Ok(json(StatusCode::OK, out))
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(expecting = "an object")]
#[serde(default)]
pub(in super::super) struct RedriveBody<'a> {
    /// Only this message.
    #[serde(borrow)]
    #[schemars(with = "Option<MessageNumber>")]
    id: Option<Loose<'a>>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(in super::super) struct Redriven {
    queue: Id<QueueId>,
    /// Messages that wait again.
    moved: u64,
    /// Whether to ask again: one request moves 100,000 at most.
    more: bool,
}

/// Operations of one request; each moves up to `TAKE_MAX` messages.
const ROUNDS_MAX: usize = 100;

/// `POST /v1/queues/{queue}/redrive`: dead letters go back to where they came from.
pub(in super::super) async fn redrive(mut call: Call) -> Answer {
    let queue = call.queue()?;
    let body = call.body().await?;
    let gateway = call.gateway();
    let body: RedriveBody<'_> = object_or_default(&body)?;
    let rule = || Problem::invalid(vec![FieldError::new("id", "must be a string or an integer")]);
    let id = body.id.as_ref().map(|id| message_of(id.as_id().ok_or_else(rule)?)).transpose()?;
    let (mut moved, mut has_more) = (0, true);
    for _ in 0..ROUNDS_MAX {
        let op = QueueOp::Redrive { queue: queue.as_str(), id };
        let QueueOutcome::Redriven { messages, more, .. } = gateway.apply_queue(op).await? else {
            return Err(Problem::no_outcome());
        };
        moved += messages;
        has_more = more;
        if !more {
            break;
        }
    }
    json_of(StatusCode::OK, &Redriven { queue: Id(queue), moved, more: has_more })
}
