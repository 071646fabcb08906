//! Rows about latency and connections: delivery, a hot room, idle sockets.

use std::time::Duration;

use super::{Bench, Fresh, Row, noise_note};
use crate::chat::{self, ChatArgs};
use crate::client::Target;
use crate::client::chat::open;
use crate::http::{self, HttpArgs};
use crate::limits::median;
use crate::machine::rss_anon_kib;
use crate::options::arguments;
use crate::report::grouped;
use crate::spawn::Server;

/// Connections that the memory of idle ones is measured with.
const IDLE: usize = 10_000;

impl Bench {
    fn seconds(&self) -> String {
        format!("{}s", self.time.as_secs_f64())
    }

    /// From the intended send over HTTP to the arrival on another connection.
    pub(super) async fn delivery(&self) -> anyhow::Result<Row> {
        let (mut p99, mut p999, mut noise, mut faults) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for _ in 0..self.rounds {
            let Fresh { server, _data } = self.fresh(&[]).await?;
            let (time, pid) = (self.seconds(), server.pid.to_string());
            let line = ["--quiet", "--rows-max", "0", "--target", &server.url, "--server-pid", &pid];
            let own = ["--rate", "10000", "--listeners", "20", "--duration", &time];
            let args: HttpArgs = arguments("http", &[&line[..], &own].concat())?;
            let report = http::measure(&args).await?;
            if let Some(delivery) = &report.delivery {
                p99.push(delivery.latency.p99_ms);
                p999.push(delivery.latency.p99_9_ms);
            }
            noise.push(report.noise());
            faults.extend(report.faults());
            server.kill().await?;
        }
        let (p99, p999) = (median(&p99), median(&p999));
        Ok(Row {
            what: "send → delivered, 10,000/s open loop".to_owned(),
            measured: format!("p99 {p99:.2} ms, p99.9 {p999:.2} ms"),
            limit: String::new(),
            share: String::new(),
            target: "p99 ≤ 5 ms, p99.9 ≤ 20 ms",
            ok: p99 > 0.0 && p99 <= 5.0 && p999 <= 20.0 && faults.is_empty(),
            note: [vec![noise_note(median(&noise))], faults].concat().join("; "),
        })
    }

    /// The p99 of 20 rooms at 1,000/s together while pipelined connections send to one room, or to 20 others.
    pub(super) async fn hot_room(&self) -> anyhow::Result<Row> {
        let (mut spread, mut hot, mut rates) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..self.rounds {
            for (rooms, p99) in [("20", &mut spread), ("1", &mut hot)] {
                let Fresh { server, _data } = self.fresh(&[]).await?;
                let (load, others) = self.beside(&server, rooms).await?;
                p99.push(others);
                rates.push(format!("{}/s into {rooms}", grouped(load)));
                server.kill().await?;
            }
        }
        let (spread, hot) = (median(&spread), median(&hot));
        let ratio = hot / spread.max(1e-3);
        Ok(Row {
            what: "p99 of other rooms beside a hot one".to_owned(),
            measured: format!("{hot:.2} ms"),
            limit: format!("{spread:.2} ms spread evenly"),
            share: format!("{ratio:.2} ×"),
            target: "≤ 2 × spread evenly",
            ok: hot > 0.0 && ratio <= 2.0,
            note: format!("load {} rooms", rates.join(", ")),
        })
    }

    async fn beside(&self, server: &Server, rooms: &str) -> anyhow::Result<(f64, f64)> {
        let (time, target) = (self.seconds(), server.url.as_str());
        let common = ["--quiet", "--rows-max", "0", "--target", target, "--duration", &time];
        let load =
            ["-n", "1000000000", "-c", "40", "--in-flight", "64", "--room-prefix", "hot-", "--rooms", rooms];
        let load: ChatArgs =
            arguments("chat", &[&common[..], &load, &["--warmup-connections", "0"]].concat())?;
        let others = ["--rate", "1000", "--room-prefix", "cold-"];
        let others: HttpArgs = arguments("http", &[&common[..], &others].concat())?;
        let (load, others) = tokio::try_join!(chat::measure(&load), http::measure(&others))?;
        Ok((load.per_second, others.latency.p99_ms))
    }

    /// Anonymous memory for each open socket that says nothing.
    pub(super) async fn idle(&self) -> anyhow::Result<Row> {
        let Fresh { server, _data } = self.fresh(&[]).await?;
        let target = Target::parse(&server.url)?;
        let wanted = IDLE.min(files_max().saturating_sub(200));
        let before = rss_anon_kib(server.pid).unwrap_or(0);
        let mut sockets = Vec::with_capacity(wanted);
        for who in 0..wanted {
            let opened = open(&target, &format!("/v1/ws?user=idle-{who}"), who as u64).await;
            let socket = opened.map_err(|cause| {
                anyhow::anyhow!("only {who} of {wanted} sockets could be opened: {}", cause.name())
            })?;
            sockets.push(socket);
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        let after = rss_anon_kib(server.pid).unwrap_or(0);
        server.kill().await?;
        let each_kib = after.saturating_sub(before) as f64 / sockets.len().max(1) as f64;
        let fewer = wanted < IDLE;
        Ok(Row {
            what: format!("memory of an idle WebSocket, {} open", grouped(wanted as f64)),
            measured: format!("{each_kib:.1} KiB"),
            limit: String::new(),
            share: String::new(),
            target: "≤ 12 KiB",
            ok: after > 0 && each_kib <= 12.0,
            note: if fewer {
                "the limit of open files allows no more (ulimit -n)".to_owned()
            } else {
                String::new()
            },
        })
    }
}

/// How many files this process may open.
fn files_max() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(1_024)
}
