//! Keys and values.

use hubbub_core::ErrorCode as E;
use hubbub_core::limits::Limits;
use serde_json::json;

use super::super::operation::{Media, READING, WRITING};
use super::super::schemas::{integer, limit, schema};
use super::Operation;
use crate::http::events::HEARTBEAT;
use crate::http::kv::{ANSWER_BYTES_MAX, ITEMS_MAX};
use crate::http::page::{LIMIT_DEFAULT, LIMIT_MAX};

pub(super) const TAG: &str = "Keys";

const OCTETS: Media = Media::Other("application/octet-stream");

fn conditional(operation: Operation) -> Operation {
    let tags = || json!({"type": "string"});
    let about = "`*`, or entity tags: done only if the key is there with one of them (else 412).";
    let none = "`*`, or entity tags: done only if the key is not there, or with none of them (else 412).";
    operation.header("If-Match", tags(), about).header("If-None-Match", tags(), none)
}

pub(in crate::http) fn put(limits: &Limits) -> Operation {
    let operation = Operation::new("putKey", TAG, "Set a key to a value");
    conditional(operation)
        .about(format!(
            "Any bytes, at most {}. Answered once the value is on disk; every read that begins then gives it, or a \
             newer one. The answer's `ETag` is the value's revision in quotes.",
            limits.value_bytes
        ))
        .header("Hubbub-TTL", json!({"type": "number"}), "Seconds the value stays. Without it: until it is deleted.")
        .takes(OCTETS, "The value.")
        .gives(201, Media::None, "The key is new.")
        .gives(204, Media::None, "The key has another value.")
        .refuses(&[E::Invalid, E::Malformed, E::ConditionFailed])
        .refuses(WRITING)
}

pub(in crate::http) fn get(_: &Limits) -> Operation {
    let tags = json!({"type": "string"});
    Operation::new("getKey", TAG, "Read a value")
        .about(
            "The value's bytes, with its revision as `ETag`, with `Hubbub-TTL` when it runs out (seconds that are left), \
             and with `Hubbub-Cache`: `hit` when it was in memory, else `miss`. Never older than what anybody was told \
             before the request came.",
        )
        .header("If-None-Match", tags.clone(), "Entity tags the caller has: 304 when the value has one of them.")
        .header("If-Match", tags, "Entity tags: 412 when the value has none of them.")
        .gives(200, OCTETS, "The value.")
        .gives(304, Media::None, "The value the caller has.")
        .refuses(&[E::Invalid, E::UnknownKey, E::ConditionFailed])
        .refuses(READING)
}

pub(in crate::http) fn list(_: &Limits) -> Operation {
    Operation::new("listKeys", TAG, "List keys")
        .about(
            "In the order of their bytes. Everything acknowledged is in the list, nothing that has run out.",
        )
        .query("prefix", json!({"type": "string"}), "Only keys that begin so, written as keys are.")
        .query("after", schema("Key"), "Only keys behind this one.")
        .query("limit", limit(LIMIT_DEFAULT, LIMIT_MAX), "Most keys of the page.")
        .gives(200, Media::Json(schema("KeyList")), "")
        .refuses(&[E::Invalid])
        .refuses(READING)
}

pub(in crate::http) fn batch(limits: &Limits) -> Operation {
    Operation::new("changeKeys", TAG, "Change and read many keys")
        .about(format!(
            "At most {ITEMS_MAX} items, and a body of at most {} bytes. What is put comes first, then what is deleted, \
             then what is read; the changes are made durable together, and each is judged by itself. Values beyond {} \
             MiB of the answer are left out as `too_large`.",
            limits.body_bytes,
            ANSWER_BYTES_MAX >> 20,
        ))
        .takes(Media::Json(schema("KeyBatch")), "")
        .gives(200, Media::Json(schema("KeyBatchAnswer")), "")
        .refuses(&[E::Malformed, E::Invalid])
        .refuses(WRITING)
}

pub(in crate::http) fn watch(_: &Limits) -> Operation {
    let kinds = json!({
        "watching": schema("Watching"), "put": schema("KeyChange"), "delete": schema("KeyChange"),
        "expire": schema("KeyChange"), "error": schema("LineProblem"),
    });
    Operation::new("watchKeys", TAG, "Follow changes of keys (Server-Sent Events)")
        .about(format!(
            "First `watching`, then `put`, `delete` and `expire`, each once its change is on disk. An event's id is \
             `epoch:revision`, so that a browser's `EventSource` resumes by itself. The last {} changes of the store \
             are kept; behind older ones it is answered `compacted`, and so ends a stream whose reader falls behind them. \
             At least every {} s there is an event without data or a comment.",
            hubbub_core::kv::CHANGES_KEPT,
            HEARTBEAT.as_secs(),
        ))
        .header("Last-Event-ID", json!({"type": "string"}), "Go on behind this event; counts before `after`.")
        .query("prefix", json!({"type": "string"}), "Only keys that begin so, written as keys are.")
        .query("after", integer(0), "Begin behind this revision; without it, with the next change.")
        .query("epoch", schema("Epoch"), "The history `after` belongs to.")
        .gives(200, Media::Events(kinds), "Does not end by itself.")
        .refuses(&[E::Invalid, E::Compacted, E::Reset])
        .refuses(READING)
}

pub(in crate::http) fn delete(_: &Limits) -> Operation {
    let operation = Operation::new("deleteKey", TAG, "Delete a key");
    conditional(operation)
        .gives(204, Media::None, "Deleted.")
        .refuses(&[E::Invalid, E::UnknownKey, E::ConditionFailed])
        .refuses(WRITING)
}
