//! `/health`, `/health/live`, `/health/ready` and `/metrics`.

use std::sync::Arc;
use std::time::Duration;

use hubbub_core::clock::ClockDoubt;
use hubbub_core::replica::ReplicaFigures;
use hubbub_core::store::StoreHealth;
use hubbub_pipeline::log::LogHealth;
use hyper::StatusCode;
use serde_json::{Value, json};

use super::endpoint::Call;
use super::{Answer, respond};
use crate::Gateway;

/// How long the store has to answer; whoever asks about health will not wait for ever.
const PATIENCE: Duration = Duration::from_secs(3);

pub(super) async fn ready(call: Call) -> Answer {
    let gateway = call.gateway();
    let started = gateway.clock.monotonic();
    // A real read, so that the latency says something about the store and not about this function.
    let read = tokio::time::timeout(PATIENCE, gateway.store.rooms(None, 1)).await;
    let latency_ms = gateway.clock.monotonic().saturating_sub(started).as_secs_f64() * 1e3;
    let (store, disk, alarm) = match gateway.store.health() {
        StoreHealth::Up => (None, None, None),
        StoreHealth::Alarm(reason) => (None, None, Some(reason)),
        StoreHealth::DiskFull(reason) => (None, Some(reason), None),
        StoreHealth::Failed(reason) | StoreHealth::Unreachable(reason) => (Some(reason), None, None),
    };
    let store = store.or(match read {
        Ok(read) => read.err().map(|error| error.to_string()),
        Err(_) => Some(format!("no answer within {PATIENCE:?}")),
    });
    let log = gateway.log.health();
    let is_up = store.is_none() && disk.is_none() && log.fault.is_none();
    let component = |reason: &Option<String>| match reason {
        None => json!({"status": "UP"}),
        Some(reason) => json!({"status": "DOWN", "reason": reason}),
    };
    let mut store_component = json!({
        "status": if store.is_none() { "UP" } else { "DOWN" }, "reason": store.or(alarm),
        "latencyMs": (latency_ms * 1e3).round() / 1e3,
    });
    if let (Some(replicas), Some(members)) = (gateway.store.replicas(), store_component.as_object_mut()) {
        members.insert("replicas".into(), replicas.replicas().iter().map(replica).collect());
    }
    let body = json!({
        "status": if is_up { "UP" } else { "DOWN" },
        "version": env!("CARGO_PKG_VERSION"),
        "components": {
            "store": store_component,
            "disk": component(&disk),
            "log": log_component(&log),
            "bus": {"status": "UP", "kind": "local"},
            "clock": clock_component(gateway.clock.doubt().or_else(|| gateway.store.clock_doubt())),
        },
    });
    let status = if is_up { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Ok(respond(status, "application/json", body.to_string()))
}

/// A replica that is away makes reads slower, and nothing worse.
fn replica(replica: &ReplicaFigures) -> Value {
    json!({
        "replica": replica.place,
        "status": if replica.fault.is_none() { "UP" } else { "DOWN" },
        "reason": replica.fault,
        "lagMs": replica.lag_us.map(|lag_us| lag_us / 1_000),
    })
}

/// A wall clock that is not believed stops nothing.
fn clock_component(doubt: Option<ClockDoubt>) -> Value {
    let Some(doubt) = doubt else { return json!({"status": "UP"}) };
    let (ClockDoubt::Stepped { micros } | ClockDoubt::Unproven { micros }) = doubt;
    json!({"status": "DEGRADED", "reason": doubt.to_string(), "stepMs": micros / 1_000})
}

fn log_component(log: &LogHealth) -> Value {
    let mut component = serde_json::Map::new();
    let status = if log.fault.is_none() { "UP" } else { "DOWN" };
    let fault = log.fault.as_ref().map(|fault| json!(fault));
    for (name, value) in [
        ("status", Some(json!(status))),
        ("kind", Some(json!(log.kind))),
        ("reason", fault),
        ("depth", log.depth.map(|depth| json!(depth))),
        ("lagMs", log.lag_us.map(|lag_us| json!(lag_us / 1_000))),
    ] {
        if let Some(value) = value {
            component.insert(name.to_owned(), value);
        }
    }
    Value::Object(component)
}

pub(super) async fn live(_: Call) -> Answer {
    Ok(respond(StatusCode::OK, "application/json", r#"{"status":"UP"}"#))
}

pub(super) fn metrics(gateway: &Arc<Gateway>) -> Answer {
    gateway.keys.measure();
    let text = gateway.metrics.render(&gateway.store);
    Ok(respond(StatusCode::OK, "application/openmetrics-text; version=1.0.0; charset=utf-8", text))
}
