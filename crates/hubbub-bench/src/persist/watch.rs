//! What server, broker, database and machine do while a run is under way, once a second.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::Source;
use super::books::{Books, read};
use crate::client::Target;
use crate::client::get::get;
use crate::ledger::sum;

/// Time between two looks.
const EVERY: Duration = Duration::from_secs(1);

/// What was seen at one time; rates are those since the look before.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Look {
    /// Seconds since the beginning.
    pub(crate) at_s: f64,
    pub(crate) values: BTreeMap<String, f64>,
}

/// Counters and figures of one moment.
#[derive(Debug, Default)]
struct Raw {
    at: Option<Instant>,
    /// What only grows; shown as rates.
    counters: BTreeMap<String, f64>,
    /// What stands as it is.
    figures: BTreeMap<String, f64>,
}

/// Looks again and again until it is told to stop.
pub(crate) struct Watch {
    task: tokio::task::JoinHandle<Vec<Look>>,
    stop: Arc<tokio::sync::Notify>,
}

impl Watch {
    /// Begins; `names` are the names of processes to look at besides the server and this one.
    pub(crate) fn start(
        target: Option<Target>,
        server_pid: Option<u32>,
        names: Vec<String>,
        books: Arc<Books>,
        source: Source,
    ) -> Self {
        let stop = Arc::new(tokio::sync::Notify::new());
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            let begun = Instant::now();
            let (mut looks, mut before) = (Vec::new(), Raw::default());
            loop {
                let raw = raw(target.as_ref(), server_pid, &names, &books, &source).await;
                if before.at.is_some() {
                    looks.push(raw.since(&before, begun));
                }
                before = raw;
                let next = tokio::time::sleep(EVERY);
                tokio::select! {
                    () = next => {}
                    () = stopped.notified() => return looks,
                }
            }
        });
        Self { task, stop }
    }

    /// What was seen.
    pub(crate) async fn stop(self) -> Vec<Look> {
        self.stop.notify_one();
        self.task.await.unwrap_or_default()
    }
}

async fn raw(
    target: Option<&Target>,
    server_pid: Option<u32>,
    names: &[String],
    books: &Books,
    source: &Source,
) -> Raw {
    let mut raw = Raw::default();
    raw.counters.insert("published/s".into(), read(&books.confirmed) as f64);
    if let Some(target) = target
        && let Ok(metrics) = get(target, "/metrics").await
    {
        let mut counter = |shown: &str, name: &str| {
            if let Some(value) = sum(&metrics, name) {
                raw.counters.insert(shown.into(), value as f64);
            }
        };
        counter("stored/s", "hubbub_messages_stored_total");
        counter("batches/s", "hubbub_pipeline_batch_operations_count");
        for (shown, name) in [
            ("pool active", "hubbub_store_pool_active"),
            ("pool waiting", "hubbub_store_pool_waiting"),
            ("waiting for the store", "hubbub_pipeline_waiting_operations"),
        ] {
            if let Some(value) = sum(&metrics, name) {
                raw.figures.insert(shown.into(), value as f64);
            }
        }
    }
    source.look(&mut raw.counters, &mut raw.figures).await;
    processes(server_pid, names, &mut raw);
    if let Some((writes, bytes)) = disk() {
        raw.counters.insert("disk writes/s".into(), writes);
        raw.counters.insert("disk MB/s".into(), bytes / 1e6);
    }
    raw.at = Some(Instant::now());
    raw
}

impl Raw {
    fn since(&self, before: &Self, begun: Instant) -> Look {
        let (at, earlier) = (self.at.unwrap_or(begun), before.at.unwrap_or(begun));
        let seconds = at.duration_since(earlier).as_secs_f64().max(1e-3);
        let mut values = self.figures.clone();
        for (name, value) in &self.counters {
            if let Some(earlier) = before.counters.get(name) {
                values.insert(name.clone(), ((value - earlier) / seconds).max(0.0));
            }
        }
        Look { at_s: at.duration_since(begun).as_secs_f64(), values }
    }
}

/// Processor time and memory of the server, of this process, and of all processes whose names begin as `names` say.
fn processes(server_pid: Option<u32>, names: &[String], raw: &mut Raw) {
    let own = std::process::id();
    for (shown, pid) in
        [Some(("generator", own)), server_pid.map(|pid| ("server", pid))].into_iter().flatten()
    {
        if let Some(cpu) = crate::machine::process_seconds(pid) {
            raw.counters.insert(format!("{shown} CPU"), cpu);
        }
        if let Some(kib) = crate::machine::rss_anon_kib(pid) {
            raw.figures.insert(format!("{shown} MiB"), kib as f64 / 1024.0);
        }
    }
    for name in names {
        let (mut cpu, mut kib, mut count) = (0.0, 0, 0);
        for pid in pids_named(name) {
            cpu += crate::machine::process_seconds(pid).unwrap_or(0.0);
            kib += crate::machine::rss_anon_kib(pid).unwrap_or(0);
            count += 1;
        }
        if count > 0 {
            raw.counters.insert(format!("{name} CPU"), cpu);
            raw.figures.insert(format!("{name} MiB"), kib as f64 / 1024.0);
            raw.figures.insert(format!("{name} processes"), f64::from(count));
        }
    }
}

fn pids_named(name: &str) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        comm.trim_end().starts_with(name)
    })
    .collect()
}

/// Writes finished and bytes written on all whole disks.
fn disk() -> Option<(f64, f64)> {
    let stats = fs::read_to_string("/proc/diskstats").ok()?;
    let (mut writes, mut bytes) = (0.0, 0.0);
    for line in stats.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let Some(name) = fields.get(2) else { continue };
        // Parts of a disk are counted with it.
        if name.starts_with("loop") || !fs::exists(format!("/sys/block/{name}")).unwrap_or(false) {
            continue;
        }
        let field = |index: usize| fields.get(index).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
        writes += field(7);
        bytes += field(9) * 512.0;
    }
    Some((writes, bytes))
}

/// Before, average, peak and after of one figure.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Course {
    pub(crate) name: String,
    pub(crate) before: f64,
    pub(crate) average: f64,
    pub(crate) peak: f64,
    pub(crate) after: f64,
}

/// The course of each figure; `before` and `after` are those of the first and the last look.
pub(crate) fn courses(looks: &[Look]) -> Vec<Course> {
    let names: std::collections::BTreeSet<&String> =
        looks.iter().flat_map(|look| look.values.keys()).collect();
    names
        .into_iter()
        .map(|name| {
            let values: Vec<f64> = looks.iter().filter_map(|look| look.values.get(name).copied()).collect();
            Course {
                name: name.clone(),
                before: values.first().copied().unwrap_or(0.0),
                average: values.iter().sum::<f64>() / values.len().max(1) as f64,
                peak: values.iter().copied().fold(0.0, f64::max),
                after: values.last().copied().unwrap_or(0.0),
            }
        })
        .collect()
}

/// How a rate changes over a run, as shares of its mean over the whole run, with a 95 % confidence interval: a line
/// through the looks by least squares.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Slope {
    pub(crate) share: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// The slope of the figure `name` over means of `width` looks; `None` with fewer than five of them.
pub(crate) fn slope(looks: &[Look], name: &str, width: usize) -> Option<Slope> {
    let values: Vec<f64> = looks.iter().filter_map(|look| look.values.get(name).copied()).collect();
    let means: Vec<f64> = values
        .chunks_exact(width.max(1))
        .map(|chunk| chunk.iter().sum::<f64>() / chunk.len() as f64)
        .collect();
    let n = means.len() as f64;
    if n < 5.0 {
        return None;
    }
    let (mean_x, mean_y) = ((n - 1.0) / 2.0, means.iter().sum::<f64>() / n);
    let centred = |index: usize| index as f64 - mean_x;
    let sxx: f64 = (0..means.len()).map(|index| centred(index).powi(2)).sum();
    let sxy: f64 = means.iter().enumerate().map(|(index, y)| centred(index) * (y - mean_y)).sum();
    let slope = sxy / sxx;
    let residuals: f64 =
        means.iter().enumerate().map(|(index, y)| (y - mean_y - slope * centred(index)).powi(2)).sum();
    let error = (residuals / (n - 2.0) / sxx).sqrt();
    // Two standard errors are 95 % where there are many points, and a little more than that where there are few.
    let whole = |slope: f64| slope * (n - 1.0) / mean_y.max(f64::MIN_POSITIVE);
    let spread = if n < 20.0 { 2.4 } else { 2.0 } * error;
    Some(Slope { share: whole(slope), low: whole(slope - spread), high: whole(slope + spread) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(rates: impl Iterator<Item = f64>) -> Vec<Look> {
        rates
            .map(|rate| Look { at_s: 0.0, values: BTreeMap::from([("stored/s".to_owned(), rate)]) })
            .collect()
    }

    #[test]
    fn a_slope_is_told_from_noise() {
        let falling = slope(&looks((0..100).map(|i| 1_000.0 - f64::from(i))), "stored/s", 1).unwrap();
        assert!((falling.share + 99.0 / 950.5).abs() < 1e-3, "{falling:?}");
        assert!(falling.high < -0.1, "{falling:?}");
        let noise = slope(&looks((0..100).map(|i| 1_000.0 + f64::from(i % 7))), "stored/s", 1).unwrap();
        assert!(noise.low < 0.0 && noise.high > 0.0 && noise.high - noise.low < 0.01, "{noise:?}");
        assert!(slope(&looks((0..4).map(f64::from)), "stored/s", 1).is_none());
    }

    #[test]
    fn a_course_has_its_peak() {
        let course = courses(&looks([1.0, 9.0, 2.0].into_iter())).remove(0);
        assert_eq!((course.before, course.average, course.peak, course.after), (1.0, 4.0, 9.0, 2.0));
    }
}
