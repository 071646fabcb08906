//! The last hour of the server's figures, in memory: what the dashboard draws.
//!
//! Once a second the server reads the metrics that exist anyway ([`Moment`]); nothing is counted for this. Two rings keep the
//! values of [`series`] between two readings: each second of the last five minutes, and each ten seconds of the last hour.
//! So the memory is bounded, whatever happens: about 300 KiB. Who watches gets each row once, encoded for all of them.
//!
//! Times are those of the monotonic clock: a wall clock that jumps bends no chart.

mod ring;
mod series;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hubbub_core::invariant::{broken_invariants, saturate};
use hubbub_core::store::StoreFigures;
use hubbub_pipeline::metrics::{ProcessFigures, Reading};
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::watch;

use crate::Gateway;
pub(crate) use ring::{Columns, Value};
use ring::{Ring, Row};
use series::Series;
pub(crate) use series::SeriesAbout;

/// Seconds of a row of the fine ring, and how many it has: five minutes.
const FINE: (Duration, usize) = (Duration::from_secs(1), 300);
/// Of the coarse one: an hour.
const COARSE: (Duration, usize) = (Duration::from_secs(10), 360);

/// Everything that was read of the server at one moment.
#[derive(Debug, Clone)]
struct Moment {
    at: Duration,
    metrics: Reading,
    store: StoreFigures,
    process: ProcessFigures,
    /// How long the replica that is furthest behind has been so, in microseconds; `None` = no replica says.
    replica_lag_us: Option<u64>,
    broken_invariants: u64,
}

impl Moment {
    fn of(gateway: &Gateway) -> Self {
        let lags = |figures: Vec<hubbub_core::replica::ReplicaFigures>| {
            figures.into_iter().filter_map(|replica| replica.lag_us).max()
        };
        Self {
            at: gateway.clock.monotonic(),
            metrics: gateway.metrics.read(),
            store: gateway.store.figures(),
            process: (gateway.program.figures)(),
            replica_lag_us: gateway.store.replicas().and_then(|replicas| lags(replicas.replicas())),
            broken_invariants: broken_invariants(),
        }
    }
}

/// A row for those who watch: the values of the last second, and of the last ten if they have just ended.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Sample {
    /// Seconds on the server's monotonic clock.
    at: f64,
    /// In the order of `series`; `null` = there was nothing to measure.
    values: Vec<Value>,
    /// The same over the last ten seconds, every ten seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    ten_seconds: Option<Vec<Value>>,
}

/// What is remembered at one moment.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Remembered {
    /// What the columns are, in their order; a store or a log that does not have something leaves it out.
    series: Vec<SeriesAbout>,
    /// Each second of the last five minutes.
    recent: Columns,
    /// Each ten seconds of the last hour.
    hour: Columns,
}

#[derive(Debug)]
pub(crate) struct Trends {
    rings: Mutex<Option<Rings>>,
    newest: watch::Sender<Arc<Sample>>,
}

#[derive(Debug)]
struct Rings {
    /// Those that this server has.
    series: Vec<Series>,
    fine: Ring,
    coarse: Ring,
}

impl Default for Trends {
    fn default() -> Self {
        let nothing = Sample { at: 0.0, values: Vec::new(), ten_seconds: None };
        Self { rings: Mutex::default(), newest: watch::Sender::new(Arc::new(nothing)) }
    }
}

impl Trends {
    /// Reads the server's figures; called every second.
    pub(crate) fn sample(&self, gateway: &Gateway) {
        let now = Moment::of(gateway);
        let sample = {
            let mut rings = self.lock();
            let Some(Rings { series, fine, coarse }) = rings.as_mut() else {
                let series = series::of(gateway);
                *rings = Some(Rings {
                    series,
                    fine: Ring::new(FINE, now.clone()),
                    coarse: Ring::new(COARSE, now),
                });
                return;
            };
            let values = |row: &Row| row.values.to_vec();
            let Some(row) = fine.add(&now, series) else { return };
            let (at, values_of_second) = (row.at.as_secs_f64(), values(row));
            Sample { at, values: values_of_second, ten_seconds: coarse.add(&now, series).map(values) }
        };
        self.newest.send_replace(Arc::new(sample));
    }

    /// Everything that is remembered, and the samples that come after it.
    pub(crate) fn watch(&self) -> (Remembered, watch::Receiver<Arc<Sample>>) {
        let rings = self.lock();
        // Under the lock no sample comes in between, but one that is remembered may not be published yet. It comes twice
        // then, with the same time.
        let receiver = self.newest.subscribe();
        let remembered = match rings.as_ref() {
            Some(Rings { series, fine, coarse }) => {
                let width = series.len();
                let series = series.iter().map(SeriesAbout::from).collect();
                Remembered { series, recent: fine.columns(width), hour: coarse.columns(width) }
            }
            None => Remembered { series: Vec::new(), recent: Columns::default(), hour: Columns::default() },
        };
        (remembered, receiver)
    }

    /// How often something happened in the last minute, by the name of its series; 0 if this server has none.
    pub(crate) fn in_last_minute(&self, name: &str) -> f64 {
        let rings = self.lock();
        let Some(Rings { series, fine, .. }) = rings.as_ref() else { return 0.0 };
        let column = series.iter().position(|one| one.name() == name);
        column.map_or(0.0, |column| fine.total_over(column, 60))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Rings>> {
        self.rings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn count_of(value: i64) -> u64 {
    saturate(value.max(0))
}
