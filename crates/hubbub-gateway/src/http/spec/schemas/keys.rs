//! Batches of keys, which are written by hand, and events of keys; these are their schemas.

use hubbub_core::kv::TTL_MS_MAX;
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

/// At most 1,000 items together.
#[derive(JsonSchema)]
pub(super) struct KeyBatch {
    put: Option<Vec<Put>>,
    delete: Option<Vec<Delete>>,
    get: Option<Vec<Key>>,
}

/// A value of at most {value_bytes} bytes.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
struct Put {
    key: Key,
    #[serde(flatten)]
    value: Value,
    /// Seconds it stays.
    #[schemars(extend("exclusiveMinimum" = 0, "maximum" = TTL_MS_MAX / 1_000))]
    ttl: Option<f64>,
    /// Only if the key has this revision; 0 = only if it is not there.
    if_revision: Option<u64>,
}

#[derive(JsonSchema)]
struct Value {
    /// The value as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    /// Instead of `value`: bytes that are no UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("contentEncoding" = "base64"))]
    base64: Option<String>,
}

#[derive(JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
enum Delete {
    Key(Key),
    #[serde(rename_all = "camelCase")]
    If {
        key: Key,
        /// Only if the key has this revision; 0 = only if it is not there.
        if_revision: Option<u64>,
    },
}

/// An answer for each item, in its order.
#[derive(JsonSchema)]
pub(super) struct KeyBatchAnswer {
    put: Vec<OrRefused<PutDone>>,
    delete: Vec<OrRefused<Deleted>>,
    get: Vec<OrRefused<Found>>,
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
    #[serde(skip_serializing_if = "Option::is_none")]
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
struct Found {
    key: Key,
    revision: Revision,
    #[serde(flatten)]
    value: Value,
    /// When it runs out; missing when it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<Time>,
}
