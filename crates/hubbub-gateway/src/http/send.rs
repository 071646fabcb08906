//! `POST /v1/rooms/{room}/messages`: one message in, its receipt out, once durable.

use hubbub_core::draft::{MessageDraft, Rules};
use hubbub_core::{FieldError, Op, OpBatch};
use hyper::StatusCode;

use super::endpoint::Call;
use super::{Answer, json};
use crate::json::{object_of_bytes, write_flag, write_number, write_plain, write_text, write_time};
use crate::problem::{Problem, Sent, sent};
use crate::submit::Ingest;

pub(super) async fn send(mut call: Call) -> Answer {
    let room = call.room()?;
    let caller = call.caller()?;
    let now = call.gateway().now();
    let body = call.body().await?;
    let gateway = call.gateway();
    let mut ops = OpBatch::default();
    let draft: MessageDraft<'_> = object_of_bytes(&body)?;
    let key = idempotency_key(&call, draft.given_id())?;
    let ingest = Ingest { rules: Rules::Api, room: Some(room.as_str()), caller: &caller, key, now };
    let id = gateway.check(&draft, &ingest, |sent| {
        ops.push(&Op::Send(*sent));
        sent.id.to_owned()
    })?;
    if let Some(trace) = call.trace() {
        ops.trace_last(trace);
    }
    let about = |problem: Problem| Problem { message_id: Some(id.clone()), ..problem };
    let applied = gateway.apply(&ops).await.map_err(about)?;
    let outcome = applied.outcomes().first().ok_or_else(Problem::no_outcome)?;
    let sent = sent(outcome).map_err(about)?;
    let status = match sent {
        Sent::Stored(_, false) => StatusCode::CREATED,
        Sent::Stored(_, true) => StatusCode::OK,
        Sent::Accepted => StatusCode::ACCEPTED,
    };
    let mut out = Vec::with_capacity(192);
    out.push(b'{');
    write_receipt(&id, sent, &applied.epoch(gateway), &mut out);
    out.push(b'}');
    Ok(json(status, out))
}

/// The header that stands in for a message's id. An id that was given, too, must be the same: whoever repeats the request by
/// one of them would not find what is stored under the other.
pub(super) fn idempotency_key<'a>(
    call: &'a Call,
    given_id: Option<&str>,
) -> Result<Option<&'a str>, Problem> {
    let key = call.headers().get("idempotency-key").map(|key| key.to_str().unwrap_or_default());
    match (key, given_id) {
        (Some(key), Some(id)) if key != id => {
            let rule = "must be the same as the header Idempotency-Key, if both are given";
            Err(Problem::invalid(vec![FieldError::new("messageId", rule)]))
        }
        _ => Ok(key),
    }
}

/// Of many messages it would be the id of none.
pub(super) fn refuse_idempotency_key(call: &Call) -> Result<(), Problem> {
    if idempotency_key(call, None)?.is_none() {
        return Ok(());
    }
    let rule = "must not be given with many messages: give each its messageId";
    Err(Problem::invalid(vec![FieldError::new("Idempotency-Key", rule)]))
}

pub(crate) fn write_receipt(id: &str, sent: Sent<'_>, epoch: &str, out: &mut Vec<u8>) {
    write_plain("\"messageId\":\"", id, out);
    let Sent::Stored(receipt, is_duplicate) = sent else { return };
    write_number(",\"seq\":", receipt.seq, out);
    write_text(",\"epoch\":", epoch, out);
    write_time(",\"receivedAt\":\"", receipt.received_at, out);
    write_flag(",\"duplicate\":", is_duplicate, out);
}
