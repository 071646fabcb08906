//! Health, metrics and the documents.

use serde_json::{Value, json};

use super::super::operation::Media;
use super::super::schemas::schema;
use super::Operation;

pub(super) const TAG: &str = "Service";

pub(super) fn all() -> Vec<Operation> {
    let up = json!({
        "status": "UP", "version": env!("CARGO_PKG_VERSION"),
        "components": {
            "store": {"status": "UP", "reason": null, "latencyMs": 0.02},
            "disk": {"status": "UP"},
            "log": {"status": "UP", "kind": "direct"},
            "bus": {"status": "UP", "kind": "local"},
            "clock": {"status": "UP"},
        },
    });
    let ready = |path, id| {
        Operation::new(("get", path), id, TAG, "Whether writes are taken")
            .about("Any path prefix may stand before `/health`.")
            .gives(200, Media::Json(schema("Health")), "Ready.")
            .gives(503, Media::Json(schema("Health")), "Writes are not taken; reads may be.")
            .example("up", &[], (200, up.clone()))
    };
    let document = |path, id, summary| {
        let any = json!({"type": "object", "additionalProperties": true});
        Operation::new(("get", path), id, TAG, summary).gives(200, Media::Json(any), "").example(
            "whole",
            &[],
            (200, json!({})),
        )
    };
    vec![
        ready("/health", "getHealth"),
        ready("/health/ready", "getReadiness"),
        Operation::new(("get", "/health/live"), "getLiveness", TAG, "Whether the process answers")
            .gives(200, Media::Json(schema("Live")), "")
            .example("up", &[], (200, json!({"status": "UP"}))),
        Operation::new(("get", "/metrics"), "getMetrics", TAG, "Counters and latencies for Prometheus")
            .about(
                "With `Accept: application/json` the report of `/v1/stats/report` instead, with its parameters; the \
                 setting `metrics.default` says which of the two is answered where `Accept` is missing or takes anything.",
            )
            .gives(200, Media::Other("application/openmetrics-text"), "OpenMetrics text.")
            .example("text", &[], (200, Value::from("# TYPE …\n"))),
        document("/openapi.json", "getOpenApi", "The HTTP API, as OpenAPI 3.1"),
        document("/asyncapi.json", "getAsyncApi", "The sockets, as AsyncAPI 3.0"),
    ]
}
