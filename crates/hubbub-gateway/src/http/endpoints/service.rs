//! Sockets, health, metrics and the documents.

use hubbub_core::ErrorCode::*;

use super::super::endpoint::{Endpoint, get};
use super::super::operation::{Media::*, Parameter, query};
use super::super::permission::Permission;
use super::super::spec::schemas::one_of;
use super::super::{health, spec, stats};
use crate::auth::Scope;
use crate::ws;

const SWITCHES: &[Parameter] = &[
    query("echo", |_| one_of(&["1", "true", ""]), "Answers carry `originalMessage`."),
    query("live", |_| one_of(&["1", "true", ""]), "The room's messages are sent too."),
    query(
        "pad",
        |_| one_of(&["0", "1"]),
        "With `0`, answers may cross a multiple of 16,384 bytes of the stream.",
    ),
];

pub(super) static SOCKETS: &[Endpoint] = &[
    get("/v1/ws", |call| Box::pin(ws::upgrade_api(call)))
        .without_head()
        .needs(Permission::Socket)
        .named("openSocket", "Many rooms over one socket")
        .about("JSON frames with a `type`: subscribe, send, typing; see the channel `api`.")
        .gives(&[(101, Nothing, "Speak WebSocket (RFC 6455).")])
        .refuses_only(&[Malformed, Invalid, Forbidden]),
    get("/chat/{room}", |call| Box::pin(ws::upgrade_chat(call)))
        .without_head()
        .under_any_prefix()
        .needs(Permission::Caller)
        .named("openChat", "One room, for simple clients")
        .about(
            "Each text frame is a message, each is answered in order once durable; see the channel `chat`. Any path \
             prefix may stand before `/chat`.",
        )
        .parameters(&[SWITCHES])
        .gives(&[(101, Nothing, "Speak WebSocket (RFC 6455).")])
        .refuses_only(&[Malformed, Invalid, Forbidden]),
];

const fn readiness(template: &'static str, id: &'static str) -> Endpoint {
    get(template, |call| Box::pin(health::ready(call)))
        .under_any_prefix()
        .needs(Permission::Open)
        .named(id, "Whether writes are accepted")
        .about("Any path prefix may stand before `/health`.")
        .gives(&[
            (
                200,
                Json("Health"),
                "Ready. `DEGRADED`: the store is away, and a broker keeps messages until it is back.",
            ),
            (503, Json("Health"), "Writes are not accepted; reads may be."),
        ])
}

pub(super) static ENDPOINTS: &[Endpoint] = &[
    readiness("/health", "getHealth"),
    readiness("/health/ready", "getReadiness"),
    get("/health/live", |call| Box::pin(health::live(call)))
        .under_any_prefix()
        .needs(Permission::Open)
        .named("getLiveness", "Whether the process answers")
        .gives(&[(200, Json("Live"), "")]),
    get("/metrics", |call| Box::pin(stats::metrics(call)))
        .needs(Permission::Scope(Scope::Metrics))
        .named("getMetrics", "Counters and latencies for Prometheus")
        .about(
            "With `Accept: application/json` the report of `/v1/stats/report` instead, with its parameters; the \
             setting `metrics.default` says which of the two is answered where `Accept` is missing or takes anything.",
        )
        .gives(&[(200, Other("text/plain"), "Prometheus text format 0.0.4.")]),
    get("/openapi.json", |call| Box::pin(spec::openapi(call)))
        .needs(Permission::Open)
        .named("getOpenApi", "The HTTP API, as OpenAPI 3.1")
        .gives(&[(200, AnyObject, "")]),
    get("/asyncapi.json", |call| Box::pin(spec::asyncapi(call)))
        .needs(Permission::Open)
        .named("getAsyncApi", "The sockets, as AsyncAPI 3.0")
        .gives(&[(200, AnyObject, "")]),
];
