//! What the report says about itself and about the server.

use std::time::Duration;

use hubbub_core::Timestamp;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::super::millis_since;
use super::super::rounded;
use super::rows::PlainTime;
use crate::Gateway;

/// How current the answer to a query is, and what it took.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Timing {
    #[serde(skip)]
    name: &'static str,
    as_of: PlainTime,
    took_ms: f64,
}

impl Timing {
    /// Of a query that began at `started` on the monotonic clock and has just ended.
    pub(super) fn since(gateway: &Gateway, name: &'static str, as_of: Timestamp, started: Duration) -> Self {
        Self { name, as_of: PlainTime(as_of), took_ms: millis_since(gateway, started) }
    }
}

/// Written as an object with a member for each query.
#[derive(Debug)]
struct Timings(Vec<Timing>);

impl Serialize for Timings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for timing in &self.0 {
            map.serialize_entry(timing.name, timing)?;
        }
        map.end()
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Metadata {
    timestamp: PlainTime,
    as_of: PlainTime,
    version: &'static str,
    uptime_seconds: f64,
    current_rates: CurrentRates,
    database_connection_pool: ConnectionPool,
    queries: Timings,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CurrentRates {
    messages_per_second: InOut,
    over_seconds: f64,
}

#[derive(Debug, Serialize)]
struct InOut {
    #[serde(rename = "in")]
    messages_in: f64,
    out: f64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ConnectionPool {
    active_connections: u64,
    idle_connections: u64,
    total_connections: u64,
    threads_awaiting: u64,
}

impl Metadata {
    /// Of a report that began at `began`; its answers are as current as the oldest of them.
    pub(super) fn of(gateway: &Gateway, began: Timestamp, timings: Vec<Timing>) -> Self {
        let now = gateway.clock.monotonic();
        let rates = gateway.statistics.rates(&gateway.metrics, now);
        let pool = gateway.store.figures().pool;
        Self {
            timestamp: PlainTime(gateway.now()),
            as_of: timings.iter().map(|timing| timing.as_of).min().unwrap_or(PlainTime(began)),
            version: env!("CARGO_PKG_VERSION"),
            uptime_seconds: rounded(gateway.statistics.uptime(now).as_secs_f64()),
            current_rates: CurrentRates {
                messages_per_second: InOut {
                    messages_in: rounded(rates.messages_in),
                    out: rounded(rates.messages_out),
                },
                over_seconds: rounded(rates.over.as_secs_f64()),
            },
            database_connection_pool: ConnectionPool {
                active_connections: pool.active,
                idle_connections: pool.idle,
                total_connections: pool.active.saturating_add(pool.idle),
                threads_awaiting: pool.waiting,
            },
            queries: Timings(timings),
        }
    }
}
