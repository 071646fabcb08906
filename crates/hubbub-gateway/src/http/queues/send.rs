//! `POST /v1/queues/{queue}/messages`: one message, or an array of them, each with its result.

use hubbub_core::queue_draft::QueueSendDraft;
use hubbub_core::{ErrorCode, Op, OpBatch, Outcome, QueueOp, QueueOutcome, Timestamp};
use hyper::StatusCode;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::super::endpoint::Call;
use super::super::send::{idempotency_key, refuse_idempotency_key};
use super::super::{Answer, ITEMS_MAX, json};
use crate::Gateway;
use crate::auth::caller::{Caller, Requirement};
use crate::json::{object_of_bytes, write_flag, write_number, write_plain, write_time};
use crate::problem::Problem;

pub(in super::super) async fn send(mut call: Call) -> Answer {
    let queue = call.queue()?;
    let caller = call.caller()?;
    let body = call.body().await?;
    let gateway = call.gateway();
    let ingest = Ingest { gateway, queue: queue.as_str(), caller: &caller };
    if body.trim_ascii_start().starts_with(b"[") {
        refuse_idempotency_key(&call)?;
        return ingest.send_many(&body).await;
    }
    let mut ops = OpBatch::default();
    let draft: QueueSendDraft<'_> = object_of_bytes(&body)?;
    let key = idempotency_key(&call, draft.given_id())?;
    let id = ingest.add(&draft, key, &mut ops)?;
    let about = |problem: Problem| Problem { message_id: id.clone(), ..problem };
    let applied = gateway.apply(&ops).await.map_err(about)?;
    let outcome = applied.outcomes().first().ok_or_else(Problem::no_outcome)?;
    let sent = sent(outcome).map_err(about)?;
    let mut out = Vec::with_capacity(160);
    write_sent(&sent, id.as_deref(), &mut out);
    Ok(json(if sent.is_duplicate { StatusCode::OK } else { StatusCode::CREATED }, out))
}

struct Ingest<'a> {
    gateway: &'a Gateway,
    queue: &'a str,
    caller: &'a Caller,
}

impl Ingest<'_> {
    /// Adds a message to the batch, or says everything that is wrong with it; gives the id it was sent with.
    fn add(
        &self,
        draft: &QueueSendDraft<'_>,
        key: Option<&str>,
        ops: &mut OpBatch,
    ) -> Result<Option<String>, Problem> {
        let about = |problem: Problem| problem.of_message(draft.given_id());
        let mut faults = Vec::new();
        let limits = &self.gateway.limits;
        let Some(send) = draft.check(self.queue, limits, self.caller.as_str(), key, &mut faults) else {
            return Err(about(Problem::invalid(faults)));
        };
        self.caller.may(Requirement::Client(send.sender)).map_err(about)?;
        ops.push(&Op::Queue(QueueOp::Send(send)));
        Ok(send.message_id.map(str::to_owned))
    }

    /// Sends the valid items in one batch; each item has its result, in the order of the array.
    async fn send_many(&self, body: &[u8]) -> Answer {
        let items: Vec<&RawValue> = items_of(body)?;
        let mut ops = OpBatch::default();
        let checked: Vec<Result<Option<String>, Problem>> = items
            .iter()
            .map(|item| {
                let draft: QueueSendDraft<'_> = object_of_bytes(item.get().as_bytes())?;
                self.add(&draft, None, &mut ops)
            })
            .collect();
        let applied = if ops.is_empty() { None } else { Some(self.gateway.apply(&ops).await?) };
        let mut outcomes = applied.iter().flat_map(|applied| applied.outcomes());
        let mut results = Results::default();
        for item in checked {
            let written = item.and_then(|id| {
                let outcome = outcomes.next().ok_or_else(Problem::no_outcome)?;
                let about = |problem: Problem| Problem { message_id: id.clone(), ..problem };
                let sent = sent(outcome).map_err(about)?;
                write_sent(&sent, id.as_deref(), results.next());
                Ok(())
            });
            results.refuse_unless(self.gateway, written);
        }
        Ok(json(StatusCode::OK, results.finish()))
    }
}

pub(super) fn items_of<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<Vec<T>, Problem> {
    let items: Vec<T> = serde_json::from_slice(body).map_err(|error| Problem::malformed(&error))?;
    if items.len() > ITEMS_MAX {
        let detail = format!("one request may have at most {ITEMS_MAX} items");
        return Err(Problem::new(ErrorCode::TooLarge, detail));
    }
    Ok(items)
}

/// Writes `{"results":[…]}`.
#[derive(Default)]
pub(super) struct Results {
    out: Vec<u8>,
}

impl Results {
    pub(super) fn next(&mut self) -> &mut Vec<u8> {
        self.out.extend_from_slice(if self.out.is_empty() { b"{\"results\":[" } else { b"," });
        &mut self.out
    }

    pub(super) fn refuse_unless(&mut self, gateway: &Gateway, written: Result<(), Problem>) {
        let Err(problem) = written else { return };
        if !problem.is_counted {
            gateway.metrics.reject(problem.code, 1);
        }
        let out = self.next();
        out.push(b'{');
        problem.write_members(out);
        out.push(b'}');
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        if self.out.is_empty() {
            self.out.extend_from_slice(b"{\"results\":[");
        }
        self.out.extend_from_slice(b"]}");
        self.out
    }
}

struct Sent {
    id: u64,
    copies: u32,
    sent_at: Timestamp,
    is_duplicate: bool,
}

fn sent(outcome: &Outcome) -> Result<Sent, Problem> {
    match *outcome {
        Outcome::Queue(QueueOutcome::Sent { id, copies, sent_at, duplicate: is_duplicate }) => {
            Ok(Sent { id, copies, sent_at, is_duplicate })
        }
        Outcome::Refused(refusal) => Err(Problem::refusal(refusal)),
        _ => Err(Problem::no_outcome()),
    }
}

fn write_sent(sent: &Sent, message_id: Option<&str>, out: &mut Vec<u8>) {
    write_number("{\"id\":\"", sent.id, out);
    out.push(b'"');
    if let Some(message_id) = message_id {
        write_plain(",\"messageId\":\"", message_id, out);
    }
    write_number(",\"copies\":", sent.copies.into(), out);
    write_time(",\"sentAt\":\"", sent.sent_at, out);
    write_flag(",\"duplicate\":", sent.is_duplicate, out);
    out.push(b'}');
}
