//! Rows about latency and connections: delivery, a hot room, idle sockets.

use std::time::Duration;

use super::together::Together;
use super::{Bench, Row};
use crate::client::Target;
use crate::client::chat::open;
use crate::experiments::limits::ENDLESS;
use crate::host::background_load::median_share;
use crate::host::machine::rss_anon_kib;
use crate::host::spawn::Server;
use crate::report::{Report, grouped};
use crate::statistics::median;
use crate::workloads::chat::ChatArgs;
use crate::workloads::http::HttpArgs;

/// Connections that the memory of idle ones is measured with.
pub(super) const IDLE: usize = 10_000;

impl Bench {
    /// From the intended send over HTTP to the arrival on another connection.
    pub(super) async fn delivery(&self) -> anyhow::Result<Row> {
        let (mut p99, mut p999, mut noise, mut faults) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let load = ["--rate", "10000", "--listeners", "20"];
        for _ in 0..self.args.rounds {
            let report = self.load_fresh::<HttpArgs>(&load).await?;
            if let Some(delivery) = &report.delivery {
                p99.push(delivery.latency.p99_ms);
                p999.push(delivery.latency.p99_9_ms);
            }
            noise.push(report.noise());
            faults.extend(report.faults());
        }
        let (p99, p999) = (median(&p99), median(&p999));
        let met = p99 > 0.0 && p99 <= 5.0 && p999 <= 20.0 && faults.is_empty();
        let measured = format!("p99 {p99:.2} ms, p99.9 {p999:.2} ms");
        let row =
            Row::new("send → delivered, 10,000/s open loop", measured, "p99 ≤ 5 ms, p99.9 ≤ 20 ms", met);
        Ok(row.beside(&[median_share(&noise)]).with_faults(faults))
    }

    /// The p99 of 20 rooms at 1,000/s together while pipelined connections send to one room, or to 20 others.
    pub(super) async fn hot_room(&self) -> anyhow::Result<Row> {
        let (mut spread, mut hot, mut rates) = (Vec::new(), Vec::new(), Vec::new());
        let (mut noise, mut faults) = (Vec::new(), Vec::new());
        for _ in 0..self.args.rounds {
            for (rooms, p99) in [("20", &mut spread), ("1", &mut hot)] {
                let measuring = async |server: &Server| self.beside(server, rooms).await;
                let (load, others, lost) = self.fresh(&[]).await?.during(measuring).await?;
                p99.push(others.latency.p99_ms);
                noise.push(others.noise());
                faults.extend(load.faults().into_iter().chain(others.faults()).chain(lost));
                rates.push(format!("{}/s into {rooms}", grouped(load.per_second)));
            }
        }
        let (spread, hot) = (median(&spread), median(&hot));
        let ratio = hot / spread.max(1e-3);
        let met = hot > 0.0 && ratio <= 2.0 && faults.is_empty();
        let what = "p99 of other rooms beside a hot one";
        Ok(Row::new(what, format!("{hot:.2} ms"), "≤ 2 × spread evenly", met)
            .against(format!("{spread:.2} ms spread evenly"), format!("{ratio:.2} ×"))
            .noting(format!("load {} rooms", rates.join(", ")))
            .beside(&[median_share(&noise)])
            .with_faults(faults))
    }

    /// The reports of the load, and of the others, and what the server stored that does not fit both.
    async fn beside(&self, server: &Server, rooms: &str) -> anyhow::Result<(Report, Report, Option<String>)> {
        let load =
            ["-n", ENDLESS, "-c", "40", "--in-flight", "64", "--room-prefix", "hot-", "--rooms", rooms];
        let load = [&load[..], &["--warmup-connections", "0", "--beside-others"]].concat();
        let others = ["--rate", "1000", "--room-prefix", "cold-", "--beside-others"];
        let together = Together::begin(Target::parse(&server.url)?).await?;
        let (load, others) =
            tokio::try_join!(self.load::<ChatArgs>(server, &load), self.load::<HttpArgs>(server, &others))?;
        let lost = together.end([&load, &others]).await?;
        Ok((load, others, lost))
    }

    /// Anonymous memory for each open socket that says nothing.
    pub(super) async fn idle(&self) -> anyhow::Result<Row> {
        let server = self.fresh(&[]).await?;
        let target = Target::parse(&server.url)?;
        self.idle_at(server, &target, "an idle WebSocket", (12.0, "≤ 12 KiB")).await
    }

    /// The same for sockets of `what` at `target`, and how many KiB each may have.
    pub(super) async fn idle_at(
        &self,
        server: Server,
        target: &Target,
        what: &str,
        (most_kib, limit): (f64, &'static str),
    ) -> anyhow::Result<Row> {
        let wanted = IDLE.min(files_max().saturating_sub(200));
        let before = rss_anon_kib(server.pid).unwrap_or(0);
        let mut sockets = Vec::with_capacity(wanted);
        for who in 0..wanted {
            let opened = open(target, &format!("/v1/ws?user=idle-{who}"), who as u64).await;
            let socket = opened.map_err(|cause| {
                anyhow::anyhow!("only {who} of {wanted} sockets could be opened: {}", cause.name())
            })?;
            sockets.push(socket);
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        let after = rss_anon_kib(server.pid).unwrap_or(0);
        server.kill().await?;
        let each_kib = after.saturating_sub(before) as f64 / sockets.len().max(1) as f64;
        let what = format!("memory of {what}, {} open", grouped(wanted as f64));
        let row = Row::new(what, format!("{each_kib:.1} KiB"), limit, after > 0 && each_kib <= most_kib);
        Ok(row.with_connections(wanted, IDLE))
    }
}

impl Row {
    /// Of so many connections in place of those that the row is about, if they are fewer: the limit of open files allows no more.
    pub(super) fn with_connections(self, connections: usize, wanted: usize) -> Self {
        if connections >= wanted {
            return self;
        }
        let [connections, wanted] = [connections, wanted].map(|count| grouped(count as f64));
        let differs = Some(format!("{connections} connections instead of {wanted}"));
        Self { differs, ..self.noting("the limit of open files allows no more (ulimit -n)") }
    }
}

/// How many files this process may open.
pub(super) fn files_max() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_connections_than_the_row_is_about_are_marked() {
        let row = |connections| {
            Row::new("memory", "5 KiB".to_owned(), "≤ 12 KiB", true).with_connections(connections, IDLE)
        };
        assert_eq!(row(IDLE).marks(), "");
        let fewer = row(824);
        assert_eq!(fewer.marks(), "; **824 connections instead of 10,000**");
        assert!(fewer.note.contains("ulimit -n"), "{fewer:?}");
    }
}
