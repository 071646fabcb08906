//! Health, metrics and the documents.

use hubbub_core::limits::Limits;
use serde_json::json;

use super::super::operation::Media;
use super::super::schemas::schema;
use super::Operation;

pub(super) const TAG: &str = "Service";

fn readiness(id: &'static str) -> Operation {
    Operation::new(id, TAG, "Whether writes are taken")
        .about("Any path prefix may stand before `/health`.")
        .gives(200, Media::Json(schema("Health")), "Ready.")
        .gives(503, Media::Json(schema("Health")), "Writes are not taken; reads may be.")
}

pub(in crate::http) fn health(_: &Limits) -> Operation {
    readiness("getHealth")
}

pub(in crate::http) fn ready(_: &Limits) -> Operation {
    readiness("getReadiness")
}

pub(in crate::http) fn live(_: &Limits) -> Operation {
    Operation::new("getLiveness", TAG, "Whether the process answers").gives(
        200,
        Media::Json(schema("Live")),
        "",
    )
}

pub(in crate::http) fn metrics(_: &Limits) -> Operation {
    Operation::new("getMetrics", TAG, "Counters and latencies for Prometheus")
        .about(
            "With `Accept: application/json` the report of `/v1/stats/report` instead, with its parameters; the \
             setting `metrics.default` says which of the two is answered where `Accept` is missing or takes anything.",
        )
        .gives(200, Media::Other("application/openmetrics-text"), "OpenMetrics text.")
}

fn document(id: &'static str, summary: &'static str) -> Operation {
    let any = json!({"type": "object", "additionalProperties": true});
    let operation = Operation::new(id, TAG, summary);
    operation.gives(200, Media::Json(any), "")
}

pub(in crate::http) fn openapi(_: &Limits) -> Operation {
    document("getOpenApi", "The HTTP API, as OpenAPI 3.1")
}

pub(in crate::http) fn asyncapi(_: &Limits) -> Operation {
    document("getAsyncApi", "The sockets, as AsyncAPI 3.0")
}
