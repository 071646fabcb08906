//! Rows about backups: what they cost while they are made, and how long it takes to come back from one.

use std::ffi::OsStr;
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::process::Command;

use super::{Bench, Row, noise_note};
use crate::report::{Report, grouped};
use crate::spawn::Server;

impl Bench {
    /// Latency of sends with and without a backup, then restoring it and verifying what came of it.
    pub(super) async fn backup(&self, server: &Server, stored: u64) -> anyhow::Result<Vec<Row>> {
        let backups = tempfile::Builder::new().prefix("backup-").tempdir_in(self.dir.path())?;
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
        let output = Command::new(&self.program).args(arguments).output().await;
        let output = output.context("cannot start the program")?;
        let error = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(output.status.success(), "{arguments:?} failed: {error}");
        Ok(())
    }
}

fn sends_row(stored: u64, took: Duration, without: &Report, with: &Report) -> Row {
    let (with_ms, without_ms) = (with.latency.p99_ms, without.latency.p99_ms);
    let ratio = with_ms / without_ms.max(0.001);
    let (stored, rate) = (grouped(stored as f64), grouped(with.per_second));
    let what = format!("p99 of sends during a backup of {stored} messages, {rate} messages/s");
    Row::new(what, format!("{with_ms:.2} ms"), "≤ 2 × without", ratio <= 2.0)
        .against(format!("{without_ms:.2} ms without"), format!("{ratio:.2} ×"))
        .noting(format!("the backup took {:.1} s; {}", took.as_secs_f64(), noise_note(with.noise())))
}

fn back_row(stored: u64, restore: Duration, verify: Duration) -> Row {
    let [restore, verify] = [restore, verify].map(|time| time.as_secs_f64());
    let what = format!("restore and verify {} messages", grouped(stored as f64));
    Row::new(what, format!("{restore:.1} s + {verify:.1} s"), "≤ 30 s", restore + verify <= 30.0)
}
