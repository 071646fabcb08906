//! Answers to batches of keys, and events of keys. Both are written by hand; these are their schemas.

use schemars::JsonSchema;

use super::super::super::types::{Epoch, Key, Revision, Time};
use super::LineProblem;

#[derive(JsonSchema)]
pub(super) struct KeyChange {
    key: Key,
    revision: Revision,
}

/// Where the events begin.
#[derive(JsonSchema)]
pub(super) struct Watching {
    epoch: Epoch,
    /// The revision they lie behind.
    after: u64,
}

#[derive(JsonSchema)]
struct Value {
    /// The value as text.
    value: Option<String>,
    /// Instead of `value`: bytes that are no UTF-8.
    #[schemars(extend("contentEncoding" = "base64"))]
    base64: Option<String>,
}

/// An answer for each item, in its order.
#[derive(JsonSchema)]
pub(super) struct KeyBatchAnswer {
    put: Vec<OrRefused<PutDone>>,
    delete: Vec<OrRefused<Deleted>>,
    get: Vec<OrRefused<FoundKey>>,
}

#[derive(JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
enum OrRefused<T> {
    Done(T),
    Refused(Box<Refused>),
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct Refused {
    key: Key,
    #[serde(flatten)]
    problem: LineProblem,
}

#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
struct PutDone {
    key: Key,
    revision: Revision,
    /// Whether the key was not there before.
    created: bool,
    /// When it runs out; missing when it does not.
    expires_at: Option<Time>,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct Deleted {
    key: Key,
    /// Whether it was there.
    deleted: bool,
}

#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
struct FoundKey {
    key: Key,
    revision: Revision,
    #[serde(flatten)]
    value: Value,
    /// When it runs out; missing when it does not.
    expires_at: Option<Time>,
}
