//! What server, broker, database and machine do while a run is under way, sampled once a second, and how that goes over
//! the run ([`series`]).
//!
//! [`source`] asks servers ([`server`]), the database and the broker, and reads `/proc` ([`processes`], [`threads`],
//! [`disks`], [`network`]) → [`raw`] makes a sample of two such moments → [`measured`] keeps a bounded number of rows. What is
//! not known is missing, and never 0. Histograms of the server over longer times are read by [`buckets`].

pub(crate) mod buckets;
pub(crate) mod charts;
mod disks;
mod measured;
mod network;
mod processes;
mod raw;
pub(crate) mod series;
mod server;
mod source;
mod threads;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) use disks::{DISK, DISK_BUSY, DISK_FLUSH};
pub(crate) use measured::SystemSample;
pub(crate) use processes::{COMMIT, CPU, DATABASE, DATABASE_CPU, GENERATOR, LOG, POSTGRES, SERVER, WORKERS};
pub(crate) use server::BATCH_MS;
pub(crate) use source::Source;
#[cfg(feature = "postgres")]
pub(crate) use source::database_pids;

use crate::report::Table;
use measured::History;
use raw::Raw;
use series::Span;

const EVERY: Duration = Duration::from_secs(1);

/// What the sessions of the database that wait for a lock are called in samples.
pub(crate) const LOCK_WAITS: &str = "lock waits";
/// The same of the processors that it may use.
pub(crate) const DATABASE_CORES: &str = "database cores";

pub(crate) struct Sampler {
    task: tokio::task::JoinHandle<Vec<SystemSample>>,
    stop: Arc<tokio::sync::Notify>,
    begun: Instant,
}

impl Sampler {
    pub(crate) fn start(source: Source) -> Self {
        let stop = Arc::new(tokio::sync::Notify::new());
        let stopped = stop.clone();
        let begun = Instant::now();
        let task = tokio::spawn(async move {
            let (mut samples, mut before) = (History::new(), None::<Raw>);
            let mut is_over = false;
            loop {
                let raw = source.sample(begun).await;
                if let Some(before) = before {
                    samples.add(raw.since(&before));
                }
                before = Some(raw);
                if is_over {
                    return samples.into_rows();
                }
                tokio::select! {
                    () = tokio::time::sleep(EVERY) => {}
                    () = stopped.notified() => is_over = true,
                }
                // What was over so soon is seen at its end.
                if is_over && !samples.is_empty() {
                    return samples.into_rows();
                }
            }
        });
        Self { task, stop, begun }
    }

    /// A part of the time, as samples count it.
    pub(crate) fn span(&self, from: Instant, to: Instant) -> Span {
        let at_s = |at: Instant| at.saturating_duration_since(self.begun).as_secs_f64();
        Span { from_s: at_s(from), to_s: at_s(to) }
    }

    pub(crate) async fn stop(self) -> Vec<SystemSample> {
        self.stop.notify_one();
        self.task.await.unwrap_or_default()
    }
}

/// A row for each sample, a column for each figure, by their names, and then one for each thing that is the busiest.
pub(crate) fn samples_csv(samples: &[SystemSample]) -> String {
    let names: BTreeSet<&String> = samples.iter().flat_map(|sample| sample.values.keys()).collect();
    let busiest: BTreeSet<&String> = samples.iter().flat_map(|sample| sample.busiest.keys()).collect();
    let without_unit = |name: &&String| name.trim_end_matches(" %").to_owned();
    let heads = names.iter().copied().cloned().chain(busiest.iter().map(without_unit));
    let mut table = Table::new(std::iter::once("seconds".to_owned()).chain(heads));
    for sample in samples {
        let value = |name: &&String| {
            sample.values.get(*name).map_or_else(String::new, |value| value.mean().to_string())
        };
        let whose = |name: &&String| sample.busiest.get(*name).cloned().unwrap_or_default();
        let cells = names.iter().map(value).chain(busiest.iter().map(whose));
        table.row(std::iter::once(format!("{:.3}", sample.at_s)).chain(cells));
    }
    table.csv()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_has_as_many_cells_as_there_are_names() {
        let sample = |at_s, values: &[(&str, f64)], busiest: &[&str]| SystemSample {
            at_s,
            values: values.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect(),
            busiest: busiest
                .iter()
                .map(|name| ("server hottest thread %".to_owned(), (*name).to_owned()))
                .collect(),
        };
        let samples = [
            sample(1.0, &[("server hottest thread %", 50.5), ("stored/s", 3.0)], &["a, \"b\""]),
            sample(2.0004, &[("disk MB/s", 0.0)], &[]),
        ];
        assert_eq!(
            samples_csv(&samples),
            "seconds,disk MB/s,server hottest thread %,stored/s,server hottest thread\n\
             1.000,,50.5,3,\"a, \"\"b\"\"\"\n2.000,0,,,\n"
        );
        assert_eq!(samples_csv(&[]), "seconds\n");
    }
}
