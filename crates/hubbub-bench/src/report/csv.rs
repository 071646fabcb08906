//! `throughput.csv` and `metrics.csv`.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::Context;
use hubbub_core::Timestamp;
use hubbub_core::invariant::saturate;

use super::Report;
use crate::run::Run;

/// `startTime,endTime,messageCount,messagesPerSecond`; the last row ends with the run, and its rate is
/// scaled to its length.
pub(super) fn throughput(report: &Report, run: &Run) -> String {
    let mut out = "startTime,endTime,messageCount,messagesPerSecond\n".to_owned();
    for bucket in &report.throughput {
        let [from, to] = [bucket.start_s, bucket.end_s].map(|s| at(run, (s * 1e6) as i64));
        out.push_str(&format!("{from},{to},{},{:.1}\n", bucket.messages, bucket.per_second));
    }
    out
}

/// `timestamp,messageType,latencyMs,statusCode,roomId`, a row for each message.
pub(super) fn write_metrics(run: &Run, path: &Path) -> anyhow::Result<()> {
    let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    let mut out = BufWriter::new(file);
    writeln!(out, "timestamp,messageType,latencyMs,statusCode,roomId")?;
    let (record, prefix) = (run.record.lock(), &run.shape.room_prefix);
    for sample in &record.samples {
        let at = at(run, saturate(sample.done_us));
        let latency_ms = f64::from(sample.latency_us) / 1e3;
        let kind = record.by_kind.get(usize::from(sample.kind)).map_or("", |(kind, _)| *kind);
        let status = sample.ending.status_code();
        writeln!(out, "{at},{kind},{latency_ms:.3},{status},{prefix}{}", sample.room)?;
    }
    out.flush()?;
    Ok(())
}

/// The wall clock at `micros` after the start of the measured phase.
fn at(run: &Run, micros: i64) -> Timestamp {
    Timestamp::from_micros(run.started.as_micros().saturating_add(micros))
}
