//! What is drawn: every series, where it comes from, and which servers have it. To add one, add its line to [`SERIES`].

use hubbub_core::ErrorCode;
use hubbub_core::store::StoreFigures;
use hubbub_pipeline::histogram::HistogramReading;
use hubbub_pipeline::metrics::Reading;
use schemars::JsonSchema;
use serde::Serialize;

use super::{Moment, count_of};
use crate::Gateway;

/// Begins the names of the series of refusals by reason.
const REFUSED: &str = "refused.";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
enum Unit {
    Count,
    PerSecond,
    Seconds,
    Bytes,
    BytesPerSecond,
    // From 0 to 1.
    Share,
    // Processor time in seconds, per second.
    Cores,
}
use Unit::*;

/// One of the figures.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SeriesAbout {
    /// `messagesIn`; `refused.CODE` for the refusals with an error code.
    name: String,
    unit: Unit,
}

impl From<&Series> for SeriesAbout {
    fn from(series: &Series) -> Self {
        Self { name: series.name(), unit: series.unit() }
    }
}

/// Two moments, and the seconds between them.
pub(super) struct Span<'a> {
    pub(super) before: &'a Moment,
    pub(super) now: &'a Moment,
    pub(super) seconds: f64,
}

#[allow(clippy::cast_precision_loss, reason = "figures for people")]
impl Span<'_> {
    fn change(&self, get: impl Fn(&Moment) -> u64) -> u64 {
        get(self.now).saturating_sub(get(self.before))
    }

    fn rate(&self, get: impl Fn(&Reading) -> u64) -> Option<f64> {
        Some(self.change(|moment| get(&moment.metrics)) as f64 / self.seconds)
    }

    fn store_rate(&self, get: impl Fn(&StoreFigures) -> u64) -> Option<f64> {
        Some(self.change(|moment| get(&moment.store)) as f64 / self.seconds)
    }

    fn gauge(&self, get: impl Fn(&Reading) -> i64) -> Option<f64> {
        Some(count_of(get(&self.now.metrics)) as f64)
    }

    fn store(&self, get: impl Fn(&StoreFigures) -> u64) -> Option<f64> {
        Some(get(&self.now.store) as f64)
    }

    fn quantile(&self, quantile: f64, get: impl Fn(&Reading) -> &HistogramReading) -> Option<f64> {
        get(&self.now.metrics).quantile_since(get(&self.before.metrics), quantile)
    }

    fn mean(&self, get: impl Fn(&Reading) -> &HistogramReading) -> Option<f64> {
        get(&self.now.metrics).mean_since(get(&self.before.metrics))
    }

    fn count(&self, get: impl Fn(&Reading) -> &HistogramReading) -> Option<f64> {
        Some(get(&self.now.metrics).count_since(get(&self.before.metrics)) as f64 / self.seconds)
    }

    /// The share of hits; `None` = nothing was asked for.
    fn hits(&self, hits: impl Fn(&Moment) -> u64, misses: impl Fn(&Moment) -> u64) -> Option<f64> {
        let (hits, misses) = (self.change(hits) as f64, self.change(misses) as f64);
        (hits + misses > 0.0).then(|| hits / (hits + misses))
    }

    fn store_growth(&self) -> Option<f64> {
        // Merges make it smaller, too.
        Some((self.now.store.disk_bytes as f64 - self.before.store.disk_bytes as f64) / self.seconds)
    }

    fn cores(&self) -> Option<f64> {
        Some((self.now.process.cpu_seconds? - self.before.process.cpu_seconds?).max(0.0) / self.seconds)
    }
}

/// What a server must have for a series to be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Prerequisite {
    Always,
    QueuesAndKeys,
    /// Files of its own; no other server writes to it.
    Engine,
    /// PostgreSQL.
    Database,
    Replicas,
    Broker,
}
use Prerequisite::*;

impl Prerequisite {
    fn is_in(self, gateway: &Gateway) -> bool {
        match self {
            Always => true,
            QueuesAndKeys => gateway.store.has_queues_and_keys(),
            Engine => !gateway.store.is_shared(),
            Database => gateway.store.is_shared() && gateway.store.has_queues_and_keys(),
            Replicas => gateway.store.replicas().is_some(),
            Broker => gateway.log.health().kind != "direct",
        }
    }
}

#[derive(Debug)]
pub(super) struct Entry {
    name: &'static str,
    unit: Unit,
    prerequisite: Prerequisite,
    value: fn(&Span<'_>) -> Option<f64>,
}

const fn entry(
    name: &'static str,
    unit: Unit,
    prerequisite: Prerequisite,
    value: fn(&Span<'_>) -> Option<f64>,
) -> Entry {
    Entry { name, unit, prerequisite, value }
}

#[allow(clippy::cast_precision_loss, reason = "figures for people")]
static SERIES: &[Entry] = &[
    entry("messagesIn", PerSecond, Always, |s| s.rate(|m| m.accepted)),
    entry("messagesOut", PerSecond, Always, |s| s.rate(|m| m.delivered)),
    entry("duplicates", PerSecond, Always, |s| s.rate(|m| m.duplicate)),
    entry("unconfirmed", PerSecond, Always, |s| s.rate(|m| m.unconfirmed)),
    entry("httpRequests", PerSecond, Always, |s| s.rate(|m| m.http_requests)),
    entry("lineCommands", PerSecond, Always, |s| s.rate(|m| m.line_commands)),
    entry("ackP50", Seconds, Always, |s| s.quantile(0.5, |m| &m.client_time)),
    entry("ackP99", Seconds, Always, |s| s.quantile(0.99, |m| &m.client_time)),
    entry("waitP50", Seconds, Always, |s| s.quantile(0.5, |m| &m.wait_time)),
    entry("waitP99", Seconds, Always, |s| s.quantile(0.99, |m| &m.wait_time)),
    entry("commitP50", Seconds, Always, |s| s.quantile(0.5, |m| &m.store_time)),
    entry("commitP99", Seconds, Always, |s| s.quantile(0.99, |m| &m.store_time)),
    entry("fanOutP50", Seconds, Always, |s| s.quantile(0.5, |m| &m.fan_out_time)),
    entry("fanOutP99", Seconds, Always, |s| s.quantile(0.99, |m| &m.fan_out_time)),
    entry("batches", PerSecond, Always, |s| s.count(|m| &m.batch_size)),
    entry("batchSize", Count, Always, |s| s.mean(|m| &m.batch_size)),
    entry("waiting", Count, Always, |s| s.gauge(|m| m.waiting)),
    entry("inFlight", Count, Always, |s| s.gauge(|m| m.in_flight)),
    entry("liveBytes", Bytes, Always, |s| s.gauge(|m| m.live_bytes)),
    entry("liveEvictions", PerSecond, Always, |s| s.rate(|m| m.live_evictions)),
    entry("connections", Count, Always, |s| s.gauge(|m| m.connections)),
    entry("websockets", Count, Always, |s| s.gauge(|m| m.websockets)),
    entry("lineConnections", Count, Always, |s| s.gauge(|m| m.line_connections)),
    entry("subscriptions", Count, Always, |s| s.gauge(|m| m.subscriptions)),
    entry("slowReaders", PerSecond, Always, |s| s.rate(|m| m.slow_subscribers)),
    entry("connectionsRefused", PerSecond, Always, |s| {
        s.rate(|m| m.connections_refused + m.connections_refused_by_address)
    }),
    entry("queueMessages", Count, QueuesAndKeys, |s| s.store(|f| f.queue_messages)),
    entry("queueSent", PerSecond, QueuesAndKeys, |s| s.rate(|m| m.queue_sent)),
    entry("queueTaken", PerSecond, QueuesAndKeys, |s| s.rate(|m| m.queue_taken + m.queue_leased)),
    entry("queueWaiting", Count, QueuesAndKeys, |s| s.gauge(|m| m.queue_waiting_consumers)),
    entry("queueDead", PerSecond, QueuesAndKeys, |s| s.store_rate(|f| f.queue_dead)),
    entry("keyReads", PerSecond, QueuesAndKeys, |s| s.rate(|m| m.kv_hits + m.kv_misses)),
    entry("keyChanges", PerSecond, QueuesAndKeys, |s| s.rate(|m| m.kv_changes)),
    entry("keyCacheHits", Share, QueuesAndKeys, |s| s.hits(|m| m.metrics.kv_hits, |m| m.metrics.kv_misses)),
    entry("memberCacheHits", Share, Always, |s| {
        s.hits(|m| m.metrics.members_hits, |m| m.metrics.members_misses)
    }),
    entry("roomCacheHits", Share, Database, |s| s.hits(|m| m.store.cache.hits, |m| m.store.cache.misses)),
    entry("storeBytes", Bytes, Engine, |s| s.store(|f| f.disk_bytes)),
    entry("storeGrowth", BytesPerSecond, Engine, |s| s.store_growth()),
    entry("storeMessages", Count, Always, |s| s.store(|f| f.messages)),
    entry("storeRooms", Count, Always, |s| s.store(|f| f.rooms)),
    entry("lastSync", Seconds, Engine, |s| s.store(|f| f.sync_us_last).map(|micros| micros / 1e6)),
    entry("unsealedSlots", Count, Engine, |s| s.store(|f| f.unsealed_slots)),
    entry("unreadable", PerSecond, Engine, |s| s.store_rate(|f| f.unreadable)),
    entry("poolActive", Count, Database, |s| s.store(|f| f.pool.active)),
    entry("poolWaiting", Count, Database, |s| s.store(|f| f.pool.waiting)),
    entry("poolTimeouts", PerSecond, Database, |s| s.store_rate(|f| f.pool.timeouts)),
    entry("partitionsMissing", Count, Database, |s| s.store(|f| f.partitions_missing)),
    entry("replicaLag", Seconds, Replicas, |s| s.now.replica_lag_us.map(|micros| micros as f64 / 1e6)),
    entry("logPublished", PerSecond, Broker, |s| s.rate(|m| m.log_published)),
    entry("logConsumed", PerSecond, Broker, |s| s.rate(|m| m.log_consumed)),
    entry("logDepth", Count, Broker, |s| s.gauge(|m| m.log_depth.saturating_add(m.log_unacked))),
    entry("logLag", Seconds, Broker, |s| s.gauge(|m| m.log_lag).map(|micros| micros / 1e6)),
    entry("logConfirmP99", Seconds, Broker, |s| s.quantile(0.99, |m| &m.log_confirm_time)),
    entry("logWayP99", Seconds, Broker, |s| s.quantile(0.99, |m| &m.log_broker_time)),
    entry("logDead", PerSecond, Broker, |s| s.rate(|m| m.log_dead)),
    entry("cpu", Cores, Always, |s| s.cores()),
    entry("memory", Bytes, Always, |s| s.now.process.resident_bytes.map(|bytes| bytes as f64)),
    entry("openFiles", Count, Always, |s| s.now.process.open_fds.map(|count| count as f64)),
    entry("brokenInvariants", PerSecond, Always, |s| {
        Some(s.change(|m| m.broken_invariants) as f64 / s.seconds)
    }),
    entry("refused", PerSecond, Always, |s| s.rate(|m| m.rejected.iter().sum())),
];

/// A line of the table, or the refusals with one code.
#[derive(Debug, Clone, Copy)]
pub(super) enum Series {
    Of(&'static Entry),
    Refused(usize, ErrorCode),
}

/// Those that a server has.
pub(super) fn of(gateway: &Gateway) -> Vec<Series> {
    let entries = SERIES.iter().filter(|entry| entry.prerequisite.is_in(gateway)).map(Series::Of);
    let codes = ErrorCode::ALL.iter().enumerate().map(|(index, code)| Series::Refused(index, *code));
    entries.chain(codes).collect()
}

impl Series {
    pub(super) fn name(&self) -> String {
        match self {
            Self::Of(entry) => entry.name.to_owned(),
            Self::Refused(_, code) => format!("{REFUSED}{}", code.as_str()),
        }
    }

    fn unit(&self) -> Unit {
        match self {
            Self::Of(entry) => entry.unit,
            Self::Refused(..) => PerSecond,
        }
    }

    pub(super) fn value(&self, span: &Span<'_>) -> Option<f64> {
        match self {
            Self::Of(entry) => (entry.value)(span),
            Self::Refused(index, _) => {
                span.rate(|metrics| metrics.rejected.get(*index).copied().unwrap_or(0))
            }
        }
    }
}
