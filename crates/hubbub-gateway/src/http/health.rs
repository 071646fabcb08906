//! `/health`, `/health/live`, `/health/ready` and `/metrics`.

use std::sync::Arc;

use hubbub_core::clock::ClockAnomaly;
use hubbub_core::replica::ReplicaFigures;
use hubbub_core::store::StoreHealth;
use hubbub_pipeline::LogHealth;
use hubbub_pipeline::metrics::MEDIA_TYPE;
use hyper::StatusCode;
use hyper::header::RETRY_AFTER;
use schemars::JsonSchema;
use serde::Serialize;

use super::endpoint::Call;
use super::store_read::{StoreRead, read_something};
use super::{Answer, json_of, respond};
use crate::Gateway;
use crate::auth::Scope;
use crate::auth::caller::Requirement;
use crate::problem::RETRY_AFTER_S;

pub(super) async fn ready(call: Call) -> Answer {
    let read = read_something(call.gateway()).await;
    let (status, components) = examine(call.gateway(), read);
    let may_see = call.caller_ref().is_ok_and(|caller| caller.is_allowed(Requirement::Scope(Scope::Health)));
    let version = may_see.then_some(env!("CARGO_PKG_VERSION"));
    let health = Health { status, version, components: may_see.then_some(components) };
    if status != Soundness::Down {
        return json_of(StatusCode::OK, &health);
    }
    let mut answer = json_of(StatusCode::SERVICE_UNAVAILABLE, &health)?;
    answer.headers_mut().insert(RETRY_AFTER, RETRY_AFTER_S.into());
    Ok(answer)
}

/// Whether writes are accepted, and how each component is.
fn examine(gateway: &Gateway, read: StoreRead) -> (Soundness, Components) {
    let StoreRead { latency_ms, fault: read_fault } = read;
    let (failed, away, disk, alarm) = match gateway.store.health() {
        StoreHealth::Up => (None, None, None, None),
        StoreHealth::Alarm(reason) => (None, None, None, Some(reason)),
        StoreHealth::DiskFull(reason) => (None, None, Some(reason), None),
        StoreHealth::Failed(reason) => (Some(reason), None, None, None),
        StoreHealth::Unreachable(reason) => (None, Some(reason), None, None),
    };
    let is_failed = failed.is_some();
    let away = away.or(read_fault.filter(|_| !is_failed));
    let log = gateway.log.health();
    let is_store_away = away.is_some() || disk.is_some();
    let status = match log.fault.is_some() || is_failed {
        true => Soundness::Down,
        false if !is_store_away => Soundness::Up,
        false if gateway.log.parts_messages() => Soundness::Degraded,
        false => Soundness::Down,
    };
    let [away, disk] = [away, disk].map(|reason| reason.map(|reason| explain(gateway, reason)));
    let store = failed.or(away);
    let bus = Component { kind: Some(log.bus), ..Component::default() };
    let store = StoreComponent {
        status: Soundness::of(store.as_ref(), alarm.as_ref()),
        reason: store.or(alarm),
        latency_ms,
        replicas: gateway.store.replicas().map(|r| r.replicas().into_iter().map(Replica::from).collect()),
    };
    let components = Components {
        store,
        disk: Component { status: Status::of(disk.as_ref()), reason: disk, ..Component::default() },
        log: LogComponent::from(log),
        bus,
        tls: gateway.tls.as_ref().map(|tls| WeakenedComponent::from(tls.fault())),
        auth: gateway.auth.is_on().then(|| WeakenedComponent::from(gateway.auth.fault())),
        clock: gateway.clock.anomaly().or_else(|| gateway.store.clock_anomaly()).into(),
    };
    (status, components)
}

/// Why the store takes nothing for now; and what works all the same, where a broker keeps messages until it does.
pub(super) fn explain(gateway: &Gateway, reason: String) -> String {
    if !gateway.log.parts_messages() || gateway.log.health().fault.is_some() {
        return reason;
    }
    let what = match gateway.store.has_queues_and_keys() {
        true => "reads, changes of rooms, queues and keys",
        false => "reads and changes of rooms",
    };
    format!("{reason}; messages are taken, and wait in the broker until it is mended, but {what} may fail")
}

#[derive(Debug, Clone, Copy, Default, Serialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
#[schemars(inline)]
enum Status {
    #[default]
    Up,
    Down,
}

impl Status {
    fn when(is_up: bool) -> Self {
        if is_up { Self::Up } else { Self::Down }
    }

    fn of(fault: Option<&String>) -> Self {
        Self::when(fault.is_none())
    }
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Health {
    /// `DEGRADED`: messages are taken and wait in the broker, because the store is away.
    status: Soundness,
    /// Missing, like `components`, where a token is needed and has not the scope `health`.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    components: Option<Components>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct Components {
    store: StoreComponent,
    disk: Component,
    log: LogComponent,
    bus: Component,
    clock: ClockComponent,
    /// Of a server that encrypts connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    tls: Option<WeakenedComponent>,
    /// Of a server that asks for tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    auth: Option<WeakenedComponent>,
}

// An old certificate stops nothing, as long as it is valid; nor does what cannot be read of revocations.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct WeakenedComponent {
    status: Soundness,
    /// Of `tls`: why the certificate in use is not the one in the files. Of `auth`: what cannot be read, and is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl From<Option<String>> for WeakenedComponent {
    fn from(reason: Option<String>) -> Self {
        Self { status: Soundness::of(None, reason.as_ref()), reason }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
struct StoreComponent {
    status: Soundness,
    reason: Option<String>,
    /// What a small read took.
    latency_ms: f64,
    /// Of a database that has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    replicas: Option<Vec<Replica>>,
}

#[derive(Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Component {
    status: Status,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

// It accepts messages unless it is down.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
struct LogComponent {
    status: Soundness,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Messages that a broker keeps until they are stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    depth: Option<u64>,
    /// For how long the oldest of them has been there.
    #[serde(skip_serializing_if = "Option::is_none")]
    lag_ms: Option<u64>,
}

impl From<LogHealth> for LogComponent {
    fn from(log: LogHealth) -> Self {
        let LogHealth { kind, fault, alarm, depth, lag_us, .. } = log;
        let status = Soundness::of(fault.as_ref(), alarm.as_ref());
        Self { status, kind, reason: fault.or(alarm), depth, lag_ms: lag_us.map(|lag_us| lag_us / 1_000) }
    }
}

/// What may answer reads of history and statistics. One that is away makes reads slower, and nothing worse.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Replica {
    replica: String,
    status: Status,
    /// Why it is not read from.
    reason: Option<String>,
    /// For how long it has lacked something.
    lag_ms: Option<u64>,
}

impl From<ReplicaFigures> for Replica {
    fn from(figures: ReplicaFigures) -> Self {
        let ReplicaFigures { place, fault, lag_us, .. } = figures;
        let status = Status::of(fault.as_ref());
        Self { replica: place, status, reason: fault, lag_ms: lag_us.map(|lag_us| lag_us / 1_000) }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
#[schemars(inline)]
enum Soundness {
    Up,
    Degraded,
    Down,
}

impl Soundness {
    fn of(fault: Option<&String>, alarm: Option<&String>) -> Self {
        match (fault, alarm) {
            (Some(_), _) => Self::Down,
            (None, Some(_)) => Self::Degraded,
            (None, None) => Self::Up,
        }
    }
}

// A wall clock that is not believed stops nothing.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
struct ClockComponent {
    status: Soundness,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// How far the wall clock is ahead of the time the server goes by.
    #[serde(skip_serializing_if = "Option::is_none")]
    step_ms: Option<i64>,
}

impl From<Option<ClockAnomaly>> for ClockComponent {
    fn from(anomaly: Option<ClockAnomaly>) -> Self {
        let Some(anomaly) = anomaly else {
            return Self { status: Soundness::Up, reason: None, step_ms: None };
        };
        let (ClockAnomaly::Stepped { micros } | ClockAnomaly::Unproven { micros }) = anomaly;
        let reason = Some(anomaly.to_string());
        Self { status: Soundness::Degraded, reason, step_ms: Some(micros / 1_000) }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Live {
    status: Status,
}

pub(super) async fn live(_: Call) -> Answer {
    json_of(StatusCode::OK, &Live { status: Status::Up })
}

pub(super) fn metrics(gateway: &Arc<Gateway>) -> Answer {
    gateway.keys.measure();
    let text = gateway.metrics.render(&*gateway.store, &gateway.log.health(), &gateway.program);
    Ok(respond(StatusCode::OK, MEDIA_TYPE, text))
}
