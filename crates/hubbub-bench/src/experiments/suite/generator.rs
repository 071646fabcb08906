//! Rows about the load generator itself: what a message costs it beside what a bare echo server pays for the same message, and
//! what connections cost it. It runs in a process of its own, as `hubbub bench chat` does.

use std::process::Stdio;

use anyhow::{Context, ensure};
use serde_json::Value;
use tokio::process::Command;

use super::paired::Watched;
use super::rooms::{IDLE, files_max};
use super::{Bench, Row, rounds};
use crate::experiments::bare::Kind;
use crate::experiments::limits::ENDLESS;
use crate::host::children::tied;
use crate::host::spawn::Server;
use crate::report::grouped;
use crate::statistics::median;

/// What a message may cost it, as a share of what it costs the echo server.
const COST_MAX: f64 = 0.4;
/// Anonymous memory that it may have with all connections.
const MEMORY_MAX_MIB: f64 = 300.0;

/// What one run found.
struct Generated {
    /// Processor time for each message, in microseconds.
    generator_us: f64,
    server_us: f64,
    /// The most anonymous memory of the generator.
    memory_mib: f64,
    faults: Vec<String>,
}

impl Bench {
    pub(super) async fn generator(&self) -> anyhow::Result<Vec<Row>> {
        let (mut own, mut echo, mut faults) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..self.args.rounds {
            let found = self.generate(&["--warmup-messages", "100"]).await?;
            own.push(found.generator_us);
            echo.push(found.server_us);
            faults.extend(found.faults);
        }
        let (generator, server) = (median(&own), median(&echo));
        let ratio = generator / server.max(1e-3);
        let met = generator > 0.0 && ratio <= COST_MAX && faults.is_empty();
        let what = "processor time of the load generator for a message, 128 connections, one at a time";
        let us = |all: &[f64]| rounds(all, |us| format!("{us:.2}"));
        let cost = Row::new(what, format!("{generator:.2} µs"), "≤ 0.4 × a bare echo server", met)
            .against(format!("{server:.2} µs of the echo server"), format!("{ratio:.2} ×"))
            .noting(format!("rounds {} against {} µs", us(&own), us(&echo)))
            .with_faults(faults);

        let connections = IDLE.min(files_max().saturating_sub(200));
        let count = connections.to_string();
        let found = self.generate(&["--connections", &count, "--warmup-connections", "0"]).await?;
        let mib = found.memory_mib;
        let met = mib > 0.0 && mib <= MEMORY_MAX_MIB && found.faults.is_empty();
        let what = format!("memory of the load generator, {} connections", grouped(connections as f64));
        let each_kib = 1024.0 * mib / connections.max(1) as f64;
        let memory = Row::new(what, format!("{mib:.0} MiB anonymous"), "≤ 300 MiB", met)
            .noting(format!("{each_kib:.1} KiB for each connection, everything included"))
            .with_connections(connections, IDLE)
            .with_faults(found.faults);
        Ok(vec![cost, memory])
    }

    /// Has a generator send to an echo server of its own.
    async fn generate(&self, own: &[&str]) -> anyhow::Result<Generated> {
        let echo = Server::bare(Kind::WsEcho, self.dir.path(), &[]).await?;
        echo.during(async |echo: &Server| {
            let (pid, time) = (echo.pid.to_string(), format!("{}s", self.args.time.as_secs_f64()));
            let threads = self.args.threads.to_string();
            let mut command = Command::new(std::env::current_exe()?);
            command
                .args(["bench", "chat", "--echo", "--quiet", "--json", "--database", "none"])
                .args(["--server", &echo.url, "--server-pid", &pid, "--threads", &threads])
                .args(["-n", ENDLESS, "--duration", &time])
                .args(own)
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            let child = tied(&mut command).spawn().context("cannot start a load generator")?;
            let watched = child.id().map(Watched::start);
            let ended = child.wait_with_output().await;
            let memory_kib = watched.map_or(0, Watched::stop);
            let ended = ended.context("the load generator was lost")?;
            let said = String::from_utf8_lossy(&ended.stderr);
            ensure!(!ended.stdout.is_empty(), "the load generator found nothing: {}", said.trim());
            Generated::of(&serde_json::from_slice(&ended.stdout)?, memory_kib)
        })
        .await
    }
}

impl Generated {
    /// By the summary of a run.
    fn of(summary: &Value, memory_kib: u64) -> anyhow::Result<Self> {
        let figure = |place: &str| {
            let found = summary.pointer(place).and_then(Value::as_f64);
            found.with_context(|| format!("the summary has no {place}"))
        };
        let per_second = figure("/perSecond")?;
        ensure!(per_second > 0.0, "the load generator got no answer");
        let faults = summary.get("faults").and_then(Value::as_array).into_iter().flatten();
        Ok(Self {
            generator_us: 1e6 * figure("/cpu/generator")? / per_second,
            server_us: 1e6 * figure("/cpu/server")? / per_second,
            memory_mib: memory_kib as f64 / 1024.0,
            faults: faults.filter_map(Value::as_str).map(str::to_owned).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_summary_tells_what_a_message_costs() {
        let summary =
            json!({"perSecond": 1e5, "cpu": {"generator": 0.5, "server": 0.25}, "faults": ["1 refused"]});
        let found = Generated::of(&summary, 2_048).unwrap();
        assert_eq!((found.generator_us, found.server_us, found.memory_mib), (5.0, 2.5, 2.0));
        assert_eq!(found.faults, ["1 refused"]);
        let slow = json!({"perSecond": 0.5, "cpu": {"generator": 0.01, "server": 0.02}});
        assert_eq!(Generated::of(&slow, 0).unwrap().server_us, 40_000.0);
        for (summary, said) in
            [(json!({"perSecond": 1.0}), "/cpu/generator"), (json!({"perSecond": 0.0}), "no answer")]
        {
            let error = Generated::of(&summary, 0).err().unwrap();
            assert!(error.to_string().contains(said), "{error}");
        }
    }
}
