//! `hubbub stats --every`: prints a line of figures in each interval.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use hubbub_core::{Clock, Timestamp};
use serde_json::{Map, Value};
use tokio::time::MissedTickBehavior;

use crate::cli::StatsArgs;
use crate::client::connection::Connection;
use crate::client::metrics::Metrics;
use crate::client::session::Session;
use crate::client::show;
use crate::output::notice;
use crate::system::SystemClock;

/// What to print of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    Value,
    /// Its growth per second since the previous line.
    Rate,
}

/// Columns: name in CSV and JSON, title, metric, and what to print.
const COLUMNS: &[(&str, &str, &str, Shown)] = &[
    ("connections", "connections", "connections", Shown::Value),
    ("websockets", "websockets", "websocket_connections", Shown::Value),
    ("subscriptions", "following", "subscriptions", Shown::Value),
    ("rooms", "rooms", "store_rooms", Shown::Value),
    ("messages", "messages", "store_messages", Shown::Value),
    ("messagesInPerSecond", "in/s", "messages_accepted_total", Shown::Rate),
    ("messagesOutPerSecond", "out/s", "messages_delivered_total", Shown::Rate),
    ("waitingOperations", "waiting", "pipeline_waiting_operations", Shown::Value),
    ("storeBytes", "store bytes", "store_disk_bytes", Shown::Value),
    ("queueMessages", "queued", "store_queue_messages", Shown::Value),
    ("queueInPerSecond", "queue in/s", "queue_messages_sent_total", Shown::Rate),
    ("keys", "keys", "store_keys", Shown::Value),
];

/// Values of the metrics at one time, in the order of [`COLUMNS`].
struct Sample {
    at: Timestamp,
    taken: Instant,
    values: Vec<Option<f64>>,
}

/// Prints until interrupted. After the first line, an unreachable server is tried again in the next interval.
pub(super) async fn watch(args: &StatsArgs, every: Duration) -> anyhow::Result<()> {
    let mut csv = args.csv.as_deref().map(open_csv).transpose()?;
    let Session { mut connection, is_json, .. } = Session::new(&args.client)?;
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut last, mut lines) = (None, 0);
    while args.count.is_none_or(|count| lines < count) {
        let sample = tokio::select! {
            interrupted = tokio::signal::ctrl_c() => return interrupted.context("waiting for SIGINT"),
            sample = async {
                ticks.tick().await;
                take(&mut connection).await
            } => sample,
        };
        let sample = match sample {
            Ok(sample) => sample,
            // The first attempt must succeed: otherwise the address may be wrong.
            Err(error) if lines == 0 => return Err(error),
            Err(error) => {
                notice(&format!("{error:#}; trying again"));
                continue;
            }
        };
        let cells = cells(&sample, last.as_ref());
        show(is_json, &as_json(&sample, &cells), |_| as_text(&sample, &cells, lines == 0))?;
        if let Some((file, path)) = &mut csv {
            let written = file.write_all(as_csv(&sample, &cells).as_bytes());
            written.with_context(|| format!("writing to {}", path.display()))?;
        }
        last = Some(sample);
        lines += 1;
    }
    Ok(())
}

async fn take(connection: &mut Connection) -> anyhow::Result<Sample> {
    let metrics = Metrics::of(connection).await?;
    let value = |name: &str| metrics.value(&format!("hubbub_{name}"));
    let values: Vec<Option<f64>> = COLUMNS.iter().map(|(_, _, metric, _)| value(metric)).collect();
    if values.iter().all(Option::is_none) {
        bail!("/metrics of the server has no metrics of hubbub");
    }
    Ok(Sample { at: SystemClock::new().now(), taken: Instant::now(), values })
}

/// The values of a line; `None` = unknown.
fn cells(sample: &Sample, last: Option<&Sample>) -> Vec<Option<f64>> {
    let shown = COLUMNS.iter().zip(&sample.values).enumerate();
    shown
        .map(|(index, ((.., shown), value))| match shown {
            Shown::Value => *value,
            Shown::Rate => {
                let last = last?;
                let grown = (*value)? - (*last.values.get(index)?)?;
                let seconds = sample.taken.duration_since(last.taken).as_secs_f64();
                // A restarted server counts from 0 again.
                (grown >= 0.0 && seconds > 0.0).then(|| (grown / seconds * 10.0).round() / 10.0)
            }
        })
        .collect()
}

fn as_json(sample: &Sample, cells: &[Option<f64>]) -> Value {
    let mut members = Map::new();
    members.insert("timestamp".into(), sample.at.to_string().into());
    for ((name, _, _, shown), cell) in COLUMNS.iter().zip(cells) {
        #[allow(clippy::cast_possible_truncation, reason = "counts that JSON shows as whole numbers")]
        let value = match shown {
            Shown::Value => (*cell).map_or(Value::Null, |value| (value as i64).into()),
            Shown::Rate => (*cell).map_or(Value::Null, Value::from),
        };
        members.insert((*name).into(), value);
    }
    members.into()
}

fn as_text(sample: &Sample, cells: &[Option<f64>], with_head: bool) -> String {
    let mut out = String::new();
    if with_head {
        out.push_str(&format!("{:<24}", "time"));
        COLUMNS.iter().for_each(|(_, title, ..)| out.push_str(&format!(" {title:>12}")));
        out.push('\n');
    }
    out.push_str(&format!("{:<24}", sample.at.to_string()));
    for cell in cells {
        let cell = cell.map_or_else(|| "-".to_owned(), |value| value.to_string());
        out.push_str(&format!(" {cell:>12}"));
    }
    out.push('\n');
    out
}

fn head_of_csv() -> String {
    COLUMNS.iter().fold("timestamp".to_owned(), |head, (name, ..)| head + "," + name) + "\n"
}

fn as_csv(sample: &Sample, cells: &[Option<f64>]) -> String {
    let cells = cells.iter().map(|cell| cell.map_or_else(String::new, |value| value.to_string()));
    cells.fold(sample.at.to_string(), |line, cell| line + "," + &cell) + "\n"
}

/// Opens the file for appending. A new file gets a header; one with other columns is refused.
fn open_csv(path: &Path) -> anyhow::Result<(File, &Path)> {
    let open = || -> std::io::Result<(File, String)> {
        let mut file = OpenOptions::new().create(true).read(true).append(true).open(path)?;
        let mut head = String::new();
        BufReader::new(&file).read_line(&mut head)?;
        if head.is_empty() {
            head = head_of_csv();
            file.write_all(head.as_bytes())?;
        }
        Ok((file, head))
    };
    let (file, head) = open().with_context(|| format!("opening {} (--csv)", path.display()))?;
    if head != head_of_csv() {
        bail!("--csv {}: the file has other columns; name a new one", path.display());
    }
    Ok((file, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(taken: Instant, value: f64) -> Sample {
        Sample { at: Timestamp::from_micros(0), taken, values: vec![Some(value); COLUMNS.len()] }
    }

    #[test]
    fn counters_are_shown_as_rates() {
        let begin = Instant::now();
        let (first, second) = (sample(begin, 10.0), sample(begin + Duration::from_secs(4), 20.0));
        let rate = COLUMNS.iter().position(|(.., shown)| *shown == Shown::Rate).unwrap();
        assert_eq!((cells(&first, None)[0], cells(&first, None)[rate]), (Some(10.0), None));
        assert_eq!(
            (cells(&second, Some(&first))[0], cells(&second, Some(&first))[rate]),
            (Some(20.0), Some(2.5))
        );
        // The counter restarted from 0.
        let restarted = sample(begin + Duration::from_secs(8), 3.0);
        assert_eq!(cells(&restarted, Some(&second))[rate], None);
        assert!(
            as_csv(&first, &cells(&first, None))
                .starts_with("1970-01-01T00:00:00.000Z,10,10,10,10,10,,,10,10,10,,10\n")
        );
        assert_eq!(as_json(&first, &cells(&first, None))["messagesInPerSecond"], Value::Null);
    }
}
