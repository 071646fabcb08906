//! Keys and values.

use hubbub_core::kv::{KEY_BYTES_MAX, TTL_MS_MAX};
use hubbub_core::limits::Limits;
use serde_json::{Value, json};

use super::{Named, described, integer, merged, object, schema};
use crate::http::kv::ITEMS_MAX;

pub(super) fn all(limits: &Limits) -> Named {
    let about = "A key as it is written in text, in paths as well as here: percent-encoded, so that a key from a list \
        goes into a path unchanged. Slashes and what else a path may hold stand for themselves, and on input so does \
        everything beyond ASCII, as UTF-8.";
    let key = json!({"type": "string", "minLength": 1, "maxLength": 3 * KEY_BYTES_MAX, "description": about});
    let revision =
        "The store's number of the change that made the value: greater than any before, never used again.";
    let expires =
        json!({"expiresAt": described(schema("Time"), "When it runs out; missing when it does not.")});
    let info = object(
        "",
        json!({"key": schema("Key"), "revision": schema("Revision"), "bytes": described(integer(0), "Bytes of the value.")}),
        expires.clone(),
    );
    let next = json!({"type": ["string", "null"], "description": "The `after` of the next page; `null` at the end."});
    let list = object(
        "",
        json!({
            "keys": {"type": "array", "items": info},
            "revision": described(integer(0), "Changes behind it may not be in the list: watch `after` it."),
            "epoch": schema("Epoch"),
            "next": next,
        }),
        json!({}),
    );
    let change = object("", json!({"key": schema("Key"), "revision": schema("Revision")}), json!({}));
    let watching = object(
        "Where the events begin.",
        json!({"epoch": schema("Epoch"), "after": described(integer(0), "The revision they lie behind.")}),
        json!({}),
    );
    vec![
        ("Key", key),
        ("Revision", described(integer(1), revision)),
        ("KeyList", list),
        ("KeyChange", change),
        ("Watching", watching),
        ("KeyBatch", batch(limits)),
        ("KeyBatchAnswer", answers(&expires)),
    ]
}

fn value() -> Value {
    json!({
        "value": {"type": "string", "description": "The value as text."},
        "base64": {"type": "string", "contentEncoding": "base64", "description": "Instead of `value`: bytes that are no UTF-8."},
    })
}

fn batch(limits: &Limits) -> Value {
    let condition = json!({"ifRevision": described(integer(0), "Only if the key has this revision; 0 = only if it is not there.")});
    let put = merged(
        &format!("A value of at most {} bytes.", limits.value_bytes),
        &[
            &object("", json!({"key": schema("Key")}), value()),
            &object(
                "",
                json!({}),
                json!({"ttl": {"type": "number", "exclusiveMinimum": 0, "maximum": TTL_MS_MAX / 1_000, "description": "Seconds it stays."}}),
            ),
            &object("", json!({}), condition.clone()),
        ],
    );
    let delete = json!({"anyOf": [schema("Key"), object("", json!({"key": schema("Key")}), condition)]});
    object(
        &format!("At most {ITEMS_MAX} items together."),
        json!({}),
        json!({
            "put": {"type": "array", "items": put},
            "delete": {"type": "array", "items": delete},
            "get": {"type": "array", "items": schema("Key")},
        }),
    )
}

fn answers(expires: &Value) -> Value {
    let key = json!({"key": schema("Key")});
    let refused = merged("", &[&object("", key.clone(), json!({})), &super::basics::problem(false)]);
    let done = |required: Value, optional: Value| {
        merged(
            "",
            &[
                &object("", key.clone(), json!({})),
                &object("", required, json!({})),
                &object("", json!({}), optional),
            ],
        )
    };
    let either = |done: Value| json!({"type": "array", "items": {"anyOf": [done, refused]}});
    let created = json!({"type": "boolean", "description": "Whether the key was not there before."});
    let put = done(json!({"revision": schema("Revision"), "created": created}), expires.clone());
    let deleted =
        done(json!({"deleted": {"type": "boolean", "description": "Whether it was there."}}), json!({}));
    let mut found = value();
    if let (Some(found), Some(expires)) = (found.as_object_mut(), expires.as_object()) {
        found.extend(expires.clone());
    }
    let found = done(json!({"revision": schema("Revision")}), found);
    object(
        "An answer for each item, in its order.",
        json!({"put": either(put), "delete": either(deleted), "get": either(found)}),
        json!({}),
    )
}
