//! Rows about a server that holds millions of messages: memory, disk, history, backups, restart.

use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::process::Command;

use super::paired::Watched;
use super::{Bench, Row};
use crate::client::Target;
use crate::client::caller::get;
use crate::host::children::tied;
use crate::host::machine::scratch;
use crate::host::spawn::Server;
use crate::load::message_plan::BENCH_PREFIX;
use crate::load::run::Run;
use crate::report::{Report, grouped};
use crate::workloads::chat::ChatArgs;
use crate::workloads::http::HttpArgs;
use crate::workloads::query_load::{QueryTemplate, about_history, ask};

const ROOMS: u16 = 20;
const READS_PER_SECOND: u32 = 200;

impl Bench {
    /// Fills a server, then measures it at rest, under load and after a crash.
    pub(super) async fn loaded(&self) -> anyhow::Result<Vec<Row>> {
        let mut server = self.fresh(&[]).await?;
        let data = server.data.take().context("no data directory")?;
        let stored = self.args.messages;
        let fill = ["--in-flight", "64", "--text-bytes", "120", "-n", &stored.to_string()];
        server.load::<ChatArgs>(None, &fill).await?.must_be_clean("filling the server")?;
        let target = Target::parse(&server.url)?;
        // What is written in the background after the last message belongs to the size.
        tokio::time::sleep(Duration::from_secs(5)).await;
        let mut rows = vec![disk_row(data.path(), &target, stored).await?];

        let memory = Watched::start(server.pid);
        let asked = about_history(&target, ROOMS).await?;
        let (times, report) = self.read_and_write(&target, &server, asked).await?;
        let reading_mib = memory.stop() as f64 / 1024.0;
        rows.push(asked_row("history", &[5.0], &times, &report));
        let mut faults = report.faults();
        rows.push(self.people(&target, &server).await?);
        rows.extend(self.backup(&server, stored).await?);
        server.kill().await?;

        let server = Server::real(&self.program, data.path(), &[]).await?;
        let seconds = server.ready_after.as_secs_f64();
        let memory = Watched::start(server.pid);
        faults.extend(self.write(&server, self.args.time).await?.faults());
        let fresh_mib = memory.stop() as f64 / 1024.0;
        server.kill().await?;
        let (count, met) = (grouped(stored as f64), reading_mib > 0.0 && reading_mib <= 200.0);
        let what = format!("memory with {count} messages and 10,000/s");
        let row = Row::new(what, format!("{reading_mib:.0} MiB anonymous"), "≤ 200 MiB", met);
        let note = format!(
            "the most seen, after being filled and with history read; {fresh_mib:.0} MiB without either"
        );
        rows.push(row.noting(note).with_faults(faults));
        let what = format!("start after `kill -9` with {count} messages");
        rows.push(Row::new(what, format!("{seconds:.2} s"), "ready within 2 s", seconds <= 2.0));
        Ok(rows)
    }

    /// Asks questions while 10,000 messages are written each second.
    pub(super) async fn read_and_write(
        &self,
        target: &Target,
        server: &Server,
        questions: Vec<QueryTemplate>,
    ) -> anyhow::Result<(Arc<Run>, Report)> {
        let time = self.args.time * 2;
        let reading = ask(target, questions, READS_PER_SECOND, time, crate::host::machine::seed(), true);
        tokio::try_join!(reading, self.write(server, time))
    }

    /// 10,000 messages each second for some time.
    pub(super) async fn write(&self, server: &Server, time: Duration) -> anyhow::Result<Report> {
        server.load::<HttpArgs>(Some(time), &["--rate", "10000", "--text-bytes", "120"]).await
    }

    /// Latency of sends with and without a backup, then restoring it and verifying what came of it.
    pub(super) async fn backup(&self, server: &Server, stored: u64) -> anyhow::Result<Vec<Row>> {
        let backups = scratch("backup-", self.dir.path())?;
        let restored = self.dir.path().join("restored");
        let without = self.write(server, self.args.time).await?;
        let url = OsStr::new("--server");
        let backing = async {
            // Not at once, so that the load is under way.
            tokio::time::sleep(Duration::from_millis(500)).await;
            let begun = Instant::now();
            self.run(&["backup".as_ref(), backups.path().as_os_str(), url, server.url.as_ref()]).await?;
            anyhow::Ok(begun.elapsed())
        };
        let time = self.args.time.max(Duration::from_secs(8));
        let (took, with) = tokio::try_join!(backing, self.write(server, time))?;
        let begun = Instant::now();
        let to = OsStr::new("--to");
        self.run(&["restore".as_ref(), backups.path().as_os_str(), to, restored.as_os_str()]).await?;
        let restore = begun.elapsed();
        self.run(&["verify".as_ref(), restored.as_os_str()]).await?;
        let verify = begun.elapsed() - restore;
        std::fs::remove_dir_all(&restored)?;
        Ok(vec![sends_row(stored, took, &without, &with), back_row(stored, restore, verify)])
    }

    async fn run(&self, arguments: &[&OsStr]) -> anyhow::Result<()> {
        let output = tied(Command::new(&self.program).args(arguments)).output().await;
        let output = output.context("cannot start the program")?;
        let error = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(output.status.success(), "{arguments:?} failed: {error}");
        Ok(())
    }
}

/// `targets_ms` are those of the kinds in their order; the last one holds for all further ones.
pub(super) fn asked_row(what: &str, targets_ms: &[f64], asked: &Run, report: &Report) -> Row {
    let [_, _, rejected, unconfirmed] = asked.counts.totals();
    let (record, failed) = (asked.record.lock(), rejected + unconfirmed);
    let (mut parts, mut ok) = (Vec::new(), failed == 0);
    let last = targets_ms.last().copied().unwrap_or(0.0);
    for ((name, dist), target) in
        record.by_kind.iter().zip(targets_ms.iter().copied().chain(std::iter::repeat(last)))
    {
        let p99 = dist.percentile_ms(99.0);
        ok &= dist.len() > 0 && p99 <= target;
        parts.push(format!("{name} {p99:.2} ms"));
    }
    let rate = grouped(report.per_second);
    let what = format!("{what}, {READS_PER_SECOND} requests/s beside {rate} messages/s");
    let target = if targets_ms.len() == 1 { "p99 ≤ 5 ms" } else { "p99 ≤ 5 ms, active users ≤ 50 ms" };
    let asked = format!(
        "{} requests, p99 of all {:.2} ms, counted from when each was due",
        record.all.len(),
        record.all.percentile_ms(99.0)
    );
    let row = Row::new(what, format!("p99 {}", parts.join(", ")), target, ok).noting(asked);
    let unanswered = (failed > 0).then(|| format!("{failed} questions without an answer"));
    row.beside(&[report.noise()]).with_faults(report.faults().into_iter().chain(unanswered).collect())
}

async fn disk_row(data: &Path, target: &Target, stored: u64) -> anyhow::Result<Row> {
    let page: serde_json::Value =
        serde_json::from_str(&get(target, &format!("/v1/rooms/{BENCH_PREFIX}1/messages?limit=1000")).await?)?;
    let messages = page.get("messages").and_then(|messages| messages.as_array()).context("no messages")?;
    let json_bytes: usize = messages.iter().map(|message| message.to_string().len()).sum();
    let each = json_bytes as f64 / messages.len().max(1) as f64;
    let (used, json) = (bytes_used(data)? as f64, each * stored as f64);
    let mib = |bytes: f64| format!("{:.0} MiB", bytes / (1024.0 * 1024.0));
    let what = format!("disk, {} messages with 120-byte texts", grouped(stored as f64));
    Ok(Row::new(what, mib(used), "≤ 1.0 × their JSON", used > 0.0 && used <= json)
        .against(format!("{} as JSON", mib(json)), format!("{:.2} ×", used / json.max(1.0)))
        .noting(format!("{each:.0} bytes of JSON for a message; the texts are random words")))
}

/// Blocks that all files below `dir` take.
fn bytes_used(dir: &Path) -> std::io::Result<u64> {
    let mut sum = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let meta = entry.metadata()?;
        sum += if meta.is_dir() { bytes_used(&entry.path())? } else { meta.blocks() * 512 };
    }
    Ok(sum)
}

fn sends_row(stored: u64, took: Duration, without: &Report, with: &Report) -> Row {
    let (with_ms, without_ms) = (with.latency.p99_ms, without.latency.p99_ms);
    let ratio = with_ms / without_ms.max(0.001);
    let (stored, rate) = (grouped(stored as f64), grouped(with.per_second));
    let what = format!("p99 of sends during a backup of {stored} messages, {rate} messages/s");
    Row::new(what, format!("{with_ms:.2} ms"), "≤ 2 × without", ratio <= 2.0)
        .against(format!("{without_ms:.2} ms without"), format!("{ratio:.2} ×"))
        .noting(format!("the backup took {:.1} s", took.as_secs_f64()))
        .beside(&[with.noise(), without.noise()])
        .with_faults([with.faults(), without.faults()].concat())
}

fn back_row(stored: u64, restore: Duration, verify: Duration) -> Row {
    let [restore, verify] = [restore, verify].map(|time| time.as_secs_f64());
    let what = format!("restore and verify {} messages", grouped(stored as f64));
    Row::new(what, format!("{restore:.1} s + {verify:.1} s"), "≤ 30 s", restore + verify <= 30.0)
}
