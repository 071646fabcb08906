//! Positions, and what went wrong. Both are written by hand; these are their schemas.

use hubbub_core::ErrorCode;
use schemars::{JsonSchema, Schema};
use serde_json::{Value, json};

use super::super::super::types::{Epoch, Id};

/// How a room stands.
#[derive(JsonSchema)]
pub(in super::super) struct Position {
    epoch: Epoch,
    /// The oldest message that is kept; one after `head` when none is.
    oldest: u64,
    /// The newest message's `seq`; 0 = none yet.
    head: u64,
}

/// What went wrong (RFC 9457).
#[derive(JsonSchema)]
pub(super) struct Problem {
    /// `urn:hubbub:error:` and the code.
    #[schemars(extend("format" = "uri"))]
    r#type: String,
    #[serde(flatten)]
    problem: LineProblem,
}

/// What went wrong.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in super::super) struct LineProblem {
    /// Stable: never renamed, never reused.
    #[schemars(transform = list_codes)]
    code: String,
    /// The code in words.
    title: String,
    #[schemars(range(min = 400, max = 599))]
    status: u16,
    /// Whether the same again, with the same `messageId`, can succeed.
    retryable: bool,
    /// For people.
    detail: String,
    /// The message it is about, also when the server made its id.
    message_id: Option<Id>,
    /// With `removed`: the room whose subscription ended.
    room_id: Option<Id>,
    /// Every broken rule, for `invalid`.
    errors: Option<Vec<BrokenRule>>,
    /// With `condition_failed`: what the key has, if it is there.
    #[schemars(range(min = 1))]
    revision: Option<u64>,
    /// With `reset` and `compacted`.
    epoch: Option<Epoch>,
    /// With `reset` and `compacted`: where to start again.
    oldest: Option<u64>,
    /// With `reset` and `compacted`.
    head: Option<u64>,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct BrokenRule {
    field: String,
    rule: String,
}

/// Every code there is, and what it means.
pub(in super::super) fn list_codes(schema: &mut Schema) {
    let codes: Vec<&str> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
    let table: Vec<Value> = ErrorCode::ALL
        .iter()
        .map(|code| {
            json!({
                "code": code.as_str(), "status": code.http_status(), "retryable": code.is_retryable(),
                "meaning": code.about(),
            })
        })
        .collect();
    schema.insert("enum".to_owned(), codes.into());
    schema.insert("x-codes".to_owned(), table.into());
}
