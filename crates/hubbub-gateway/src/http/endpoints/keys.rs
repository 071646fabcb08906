//! Keys and values.

use hubbub_core::ErrorCode::*;
use serde_json::json;

use super::super::endpoint::{Endpoint, delete, get, post, put};
use super::super::operation::{LIMIT, Media::*, OCTETS, Parameter, header, query};
use super::super::permission::Permission;
use super::super::spec::schemas::{integer, one_of, schema, text};
use super::super::{consistency, kv};
use crate::auth::Right;

const CONDITIONS: &[Parameter] = &[
    header(
        "If-Match",
        text,
        "`*`, or entity tags: done only if the key is there with one of them (else 412).",
    ),
    header(
        "If-None-Match",
        text,
        "`*`, or entity tags: done only if the key is not there, or with none of them (else 412).",
    ),
];
const TAG: Parameter = header("ETag", text, "The value's revision in quotes.");
const PREFIX: Parameter = query("prefix", text, "Only keys that begin so, written as keys are.");

pub(super) static ENDPOINTS: &[Endpoint] = &[
    put("/kv/{*key}", |call| Box::pin(kv::put(call)))
        .needs(Permission::Key(Right::Write))
        .named("putKey", "Set a key to a value")
        .about(
            "Any bytes, at most {value_bytes}. Answered once the value is on disk; every read that begins then returns \
             it, or a newer one. The answer's `ETag` is the value's revision in quotes.",
        )
        .parameters(&[
            CONDITIONS,
            &[header(
                "Hubbub-TTL",
                |_| json!({"type": "number"}),
                "Seconds the value stays. Without it: until it is deleted.",
            )],
        ])
        .takes(OCTETS)
        .gives(&[(201, Nothing, "The key is new."), (204, Nothing, "The key has another value.")])
        .with_headers(&[TAG])
        .refuses(&[Invalid, Malformed, ConditionFailed]),
    get("/kv/{*key}", |call| Box::pin(kv::get(call)))
        .needs(Permission::Key(Right::Read))
        .named("getKey", "Read a value")
        .about(
            "The value's bytes, with its revision as `ETag`, with `Hubbub-TTL` when it expires (the seconds left), and \
             with `Hubbub-Cache`: `hit` when it was in memory, else `miss`. Never older than what anybody was told \
             before the request came.",
        )
        .parameters(&[&[
            header("If-None-Match", text, "Entity tags the caller has: 304 when the value has one of them."),
            header("If-Match", text, "Entity tags: 412 when the value has none of them."),
            header(
                consistency::HEADER,
                |_| json!({"type": "string", "pattern": consistency::KEY_PATTERN}),
                "`bounded=50ms`: the value may be as old as that (at most one minute), where asking whether it is \
                 current takes time. Anything else but `strong` is `malformed`.",
            ),
        ]])
        .gives(&[(200, OCTETS, "The value."), (304, Nothing, "The value the caller has.")])
        .with_headers(&[
            TAG,
            header(
                "Hubbub-TTL",
                |_| json!({"type": "integer"}),
                "Seconds until the value expires; missing if it does not.",
            ),
            header("Hubbub-Cache", |_| one_of(&["hit", "miss"]), "Whether the value was in memory."),
        ])
        .refuses(&[Invalid, Malformed, UnknownKey, ConditionFailed]),
    get("/v1/kv", |call| Box::pin(kv::list(call)))
        .needs(Permission::Keys(Right::Read))
        .named("listKeys", "List keys")
        .about("In the order of their bytes. The list has every acknowledged key, and no expired one.")
        .parameters(&[&[
            PREFIX,
            query("after", |_| schema("Key"), "Only keys behind this one."),
            LIMIT,
        ]])
        .gives(&[(200, Json("KeyList"), "")])
        .refuses(&[Invalid]),
    post("/v1/kv", |call| Box::pin(kv::batch(call)))
        .needs(Permission::Caller)
        .named("changeKeys", "Change and read many keys")
        .about(
            "At most {items} items, and a body of at most {body_bytes} bytes. What is put comes first, then what is \
             deleted, then what is read; the changes are made durable together, and each is decided by itself. Values \
             beyond {batch_answer_mib} MiB of the answer are left out as `too_large`.",
        )
        .takes(Json("KeyBatch"))
        .gives(&[(200, Json("KeyBatchAnswer"), "")])
        .refuses(&[Malformed, Invalid]),
    get("/v1/kv/watch", |call| Box::pin(kv::watch(call)))
        .without_head()
        .needs(Permission::Keys(Right::Read))
        .named("watchKeys", "Follow changes of keys (Server-Sent Events)")
        .about(
            "First `watching`, then `put`, `delete` and `expire`, each once its change is on disk. An event's id is \
             `epoch:revision`, so that a browser's `EventSource` resumes by itself; that of `watching` is where it \
             begins. The last {changes_kept} changes of the store are kept; a cursor behind older ones is answered \
             `compacted`, which also ends a stream whose reader falls behind them. At least every {heartbeat_seconds} s \
             there is an event without data or a comment.",
        )
        .parameters(&[&[
            header("Last-Event-ID", text, "Continue behind this event; counts before `after`."),
            PREFIX,
            query("after", integer, "Begin behind this revision; without it, with the next change."),
            query("epoch", |_| schema("Epoch"), "The history `after` belongs to."),
        ]])
        .gives(&[(
            200,
            Events(&[
                ("watching", "Watching"),
                ("put", "KeyChange"),
                ("delete", "KeyChange"),
                ("expire", "KeyChange"),
                ("error", "LineProblem"),
            ]),
            "Does not end by itself.",
        )])
        .refuses(&[Invalid, Compacted, Reset]),
    delete("/kv/{*key}", |call| Box::pin(kv::delete(call)))
        .needs(Permission::Key(Right::Write))
        .named("deleteKey", "Delete a key")
        .parameters(&[CONDITIONS])
        .gives(&[(204, Nothing, "Deleted.")])
        .refuses(&[Invalid, UnknownKey, ConditionFailed]),
];
