//! Everything that is in a queue, and dead letters on their way back.

use hubbub_core::draft::Loose;
use hubbub_core::{Fault, QueueOp, QueueOutcome};
use hyper::StatusCode;
use serde::Deserialize;

use super::super::endpoint::Call;
use super::super::page::{LIMIT_DEFAULT, LIMIT_MAX};
use super::super::query::refuse_faults;
use super::super::rooms::{write_next, write_numbers};
use super::super::{Answer, json};
use super::shapes::{MESSAGE_BYTES, write_waiting};
use super::{message_of, no_queue};
use crate::json::object_of_bytes;
use crate::problem::Problem;

/// `GET /v1/queues/{queue}/messages`: messages in any state, whomever they wait for, in the order of their ids.
pub(in super::super) async fn browse(call: Call) -> Answer {
    let gateway = call.gateway();
    let queue = call.queue()?;
    let query = call.query();
    call.caller_in(&query)?.check_administrator()?;
    let mut faults = Vec::new();
    let limit = query.limit(LIMIT_DEFAULT, LIMIT_MAX, &mut faults);
    let after = query.number("after", &mut faults).unwrap_or(0);
    refuse_faults(faults)?;
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
    for (index, message) in messages.iter().enumerate() {
        out.extend_from_slice(if index == 0 { b"{" } else { b",{" });
        write_waiting(message, &mut out);
        out.push(b'}');
    }
    out.push(b']');
    write_next(next.map(|next| next.to_string()).as_deref(), &mut out);
    Ok(json(StatusCode::OK, out))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RedriveBody<'a> {
    #[serde(borrow)]
    id: Option<Loose<'a>>,
}

/// Operations of one request; each moves up to `TAKE_MAX` messages.
const ROUNDS_MAX: usize = 100;

/// `POST /v1/queues/{queue}/redrive`: dead letters go back to where they came from.
pub(in super::super) async fn redrive(mut call: Call) -> Answer {
    let queue = call.queue()?;
    call.caller()?.check_administrator()?;
    let body = call.body().await?;
    let gateway = call.gateway();
    let body: RedriveBody<'_> =
        if body.trim_ascii().is_empty() { RedriveBody::default() } else { object_of_bytes(&body)? };
    let id = match &body.id {
        None => None,
        Some(id) => match id.as_id().map(message_of) {
            Some(id) => Some(id?),
            None => return Err(Problem::invalid(vec![Fault::new("id", "must be a string or an integer")])),
        },
    };
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
    let mut out = b"{\"queue\":\"".to_vec();
    out.extend_from_slice(queue.as_str().as_bytes());
    out.push(b'"');
    write_numbers(&[("moved", moved)], &mut out);
    out.extend_from_slice(if has_more { b",\"more\":true}" } else { b",\"more\":false}" });
    Ok(json(StatusCode::OK, out))
}
