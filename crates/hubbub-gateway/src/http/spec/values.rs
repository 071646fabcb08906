//! Values the examples share. Epochs, times and ids the server makes differ from server to server; whatever else an
//! example shows is what is answered.

use std::borrow::Cow;

use hubbub_core::{ErrorCode, Fault, Refusal};
use serde_json::{Value, json};

use crate::http::write_problem;
use crate::problem::{Problem, Reset};

pub(super) const EPOCH: &str = "919a92b5142b16af";
pub(super) const NOW: &str = "2026-01-31T12:00:00.003Z";

/// The members of a receipt.
pub(super) fn receipt(message_id: &str, seq: u64, is_duplicate: bool) -> Value {
    json!({"messageId": message_id, "seq": seq, "epoch": EPOCH, "receivedAt": NOW, "duplicate": is_duplicate})
}

/// A message of the room `lobby`.
pub(super) fn message(message_id: &str, user: &str, text: &str, seq: u64) -> Value {
    json!({
        "messageId": message_id, "roomId": "lobby", "userId": user, "message": text, "messageType": "TEXT",
        "timestamp": NOW, "seq": seq, "receivedAt": NOW,
    })
}

/// `value` with more members.
pub(super) fn with(mut value: Value, more: Value) -> Value {
    if let (Value::Object(members), Value::Object(more)) = (&mut value, more) {
        members.extend(more);
    }
    value
}

/// Broken rules.
pub(super) fn invalid(faults: &[(&'static str, &'static str)]) -> Problem {
    Problem::invalid(faults.iter().map(|(field, rule)| Fault::new(field, *rule)).collect())
}

/// Any other refusal.
pub(super) fn refusal(code: ErrorCode, detail: impl Into<Cow<'static, str>>) -> Problem {
    Problem::new(code, detail)
}

/// A change of a room there is not.
pub(super) fn no_room() -> Problem {
    Problem::refusal(Refusal::UnknownRoom)
}

/// A request to a queue there is not.
pub(super) fn no_queue() -> Problem {
    Problem::refusal(Refusal::UnknownQueue)
}

/// A refusal of one message.
pub(super) fn about_message(id: &str, problem: Problem) -> Problem {
    Problem { message_id: Some(id.to_owned()), ..problem }
}

/// A cursor that cannot be honoured.
pub(super) fn reset(oldest: u64, head: u64) -> Problem {
    let detail = "the cursor cannot be honoured here; start again from oldest or head";
    let reset = Some(Reset { epoch: EPOCH.into(), oldest, head });
    Problem { reset, ..Problem::new(ErrorCode::Reset, detail) }
}

/// The answer HTTP gives.
pub(super) fn answered(problem: &Problem) -> (u16, Value) {
    let mut out = Vec::new();
    write_problem(problem, &mut out);
    (problem.code.http_status(), parsed(&out))
}

/// The same as part of a line or a frame.
pub(super) fn inner(problem: &Problem) -> Value {
    let mut out = b"{".to_vec();
    problem.write_members(&mut out);
    out.push(b'}');
    parsed(&out)
}

fn parsed(json: &[u8]) -> Value {
    // What the server itself writes is JSON; were it not, the example would not be true, and a test says so.
    serde_json::from_slice(json).unwrap_or_default()
}
