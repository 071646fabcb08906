//! Health and backups.

use serde_json::json;

use super::{Named, id, integer, object, one_of, schema};

pub(super) fn all() -> Named {
    let mut all: Named = Vec::new();
    let status = one_of(&["UP", "DOWN"]);
    let component = object(
        "",
        json!({"status": status}),
        json!({
            "reason": {"type": ["string", "null"]}, "kind": {"type": "string"},
            "latencyMs": {"type": "number", "description": "What a small read took."},
            "replicas": {"type": "array", "items": schema("Replica"), "description": "Of a database that has any."},
        }),
    );
    all.push(("Component", component));
    let replica = object(
        "What may answer reads of history and statistics.",
        json!({
            "replica": {"type": "string"}, "status": status,
            "reason": {"type": ["string", "null"], "description": "Why it is not read from."},
            "lagMs": {
                "type": ["integer", "null"], "minimum": 0, "description": "For how long it has lacked something.",
            },
        }),
        json!({}),
    );
    all.push(("Replica", replica));
    let component = schema("Component");
    let clock = object(
        "",
        json!({"status": one_of(&["UP", "DEGRADED"])}),
        json!({
            "reason": {"type": "string"},
            "stepMs": {"type": "integer", "description": "How far the wall clock is ahead of the time the server goes by."},
        }),
    );
    let components = json!({
        "store": component, "disk": component, "log": component, "bus": component, "clock": clock,
    });
    all.push((
        "Health",
        object(
            "",
            json!({"status": status, "version": {"type": "string"}, "components": object("", components, json!({}))}),
            json!({}),
        ),));
    let file = json!({"name": {"type": "string"}, "bytes": integer(0), "crc32c": integer(0)});
    let files = json!({"type": "array", "items": object("", file, json!({}))});
    let backup = json!({"backupId": id(), "epoch": schema("Epoch"), "messages": integer(0), "files": files});
    all.push(("Backup", object("", backup, json!({}))));
    all.push(("Live", object("", json!({"status": status}), json!({}))));
    all
}
