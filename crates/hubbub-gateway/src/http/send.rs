//! `POST /v1/rooms/{room}/messages`: one message in, its receipt out, once durable.

use std::sync::Arc;

use hubbub_core::draft::{MessageDraft, Rules};
use hubbub_core::message::{write_json_string, write_u64};
use hubbub_core::{Op, OpBatch};
use hubbub_pipeline::Waiter;
use hyper::StatusCode;

use super::endpoint::Call;
use super::{Answer, json};
use crate::intake::Intake;
use crate::json::object_of_bytes;
use crate::problem::{Problem, Sent, sent};

pub(super) async fn send(mut call: Call) -> Answer {
    let room = call.room()?;
    let caller = call.caller()?;
    let now = call.gateway().now();
    let body = call.body().await?;
    let key = call.headers().get("idempotency-key").map(|key| key.to_str().unwrap_or_default());
    let gateway = call.gateway();
    let mut ops = OpBatch::default();
    let draft: MessageDraft<'_> = object_of_bytes(&body)?;
    let intake = Intake { rules: Rules::Api, room: Some(room.as_str()), caller: &caller, key, now };
    let id = gateway.check(&draft, &intake, |sent| {
        ops.push(&Op::Send(*sent));
        sent.id.to_owned()
    })?;
    let waiter = Arc::new(Waiter::default());
    let about = |problem: Problem| Problem { message_id: Some(id.clone()), ..problem };
    let ticket = gateway.log.submit(&ops, &waiter).map_err(|e| about(e.into()))?;
    waiter.wait(&ticket).await;
    let outcome = match ticket.outcomes() {
        Some(Ok(outcomes)) => outcomes.first().ok_or_else(Problem::no_outcome)?,
        Some(Err(error)) => return Err(about(error.into())),
        None => return Err(about(Problem::no_outcome())),
    };
    let sent = sent(outcome).map_err(about)?;
    let status = match sent {
        Sent::Stored(_, false) => StatusCode::CREATED,
        Sent::Stored(_, true) => StatusCode::OK,
        Sent::Accepted => StatusCode::ACCEPTED,
    };
    let mut out = Vec::with_capacity(192);
    out.push(b'{');
    write_receipt(&id, sent, &gateway.store.epoch(), &mut out);
    out.push(b'}');
    Ok(json(status, out))
}

/// Appends the members of a receipt.
pub(crate) fn write_receipt(id: &str, sent: Sent<'_>, epoch: &str, out: &mut Vec<u8>) {
    // Ids are ASCII without anything to escape.
    out.extend_from_slice(b"\"messageId\":\"");
    out.extend_from_slice(id.as_bytes());
    let Sent::Stored(receipt, is_duplicate) = sent else { return out.push(b'"') };
    out.extend_from_slice(b"\",\"seq\":");
    write_u64(receipt.seq, out);
    out.extend_from_slice(b",\"epoch\":");
    write_json_string(epoch, out);
    out.extend_from_slice(b",\"receivedAt\":\"");
    receipt.received_at.write(out);
    out.extend_from_slice(if is_duplicate { b"\",\"duplicate\":true" } else { b"\",\"duplicate\":false" });
}
