//! What the report says about itself and about the server.

use std::collections::BTreeMap;
use std::time::Duration;

use hubbub_core::Timestamp;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use super::super::{millis_since, rounded};
use super::rows::PlainTime;
use crate::Gateway;

/// How current the answer to a query is, and what it took.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub(super) struct Timing {
    #[serde(skip)]
    name: &'static str,
    /// Everything acknowledged up to here is in the answer.
    as_of: PlainTime,
    /// What the query took, in milliseconds.
    #[schemars(range(min = 0))]
    took_ms: f64,
}

impl Timing {
    /// Of a query that began at `started` on the monotonic clock and has just ended.
    pub(super) fn since(gateway: &Gateway, name: &'static str, as_of: Timestamp, started: Duration) -> Self {
        Self { name, as_of: PlainTime(as_of), took_ms: millis_since(gateway, started) }
    }
}

/// Writes an object with a member for each query.
fn by_name<S: Serializer>(timings: &[Timing], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(timings.iter().map(|timing| (timing.name, timing)))
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub(super) struct Metadata {
    /// When the report was made, in UTC.
    timestamp: PlainTime,
    /// The oldest `asOf` of all queries.
    as_of: PlainTime,
    version: &'static str,
    #[schemars(range(min = 0))]
    uptime_seconds: f64,
    current_rates: CurrentRates,
    /// Zeros where the store needs no connections.
    database_connection_pool: ConnectionPool,
    /// Each of the queries above by its name.
    #[serde(serialize_with = "by_name")]
    #[schemars(with = "BTreeMap<String, Timing>")]
    queries: Vec<Timing>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
struct CurrentRates {
    messages_per_second: InOut,
    /// How many seconds these are: the last ten, about.
    #[schemars(range(min = 0))]
    over_seconds: f64,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct InOut {
    /// Acknowledged to senders.
    #[serde(rename = "in")]
    #[schemars(range(min = 0))]
    messages_in: f64,
    /// Handed to subscribers' sockets.
    #[schemars(range(min = 0))]
    out: f64,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
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
            queries: timings,
        }
    }
}
