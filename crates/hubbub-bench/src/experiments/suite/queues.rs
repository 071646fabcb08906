//! Rows about queues, over the line protocol, and about messages to everybody: what they cost those who have nothing to do
//! with them.

use std::net::TcpListener;
use std::time::Duration;

use tokio::task::JoinHandle;

use super::paired::Pair;
use super::people::make;
use super::{Bench, Row, rounds};
use crate::client::Target;
use crate::experiments::bare::Kind;
use crate::host::machine::rss_anon_kib;
use crate::host::spawn::Server;
use crate::report::{Report, grouped};
use crate::statistics::median;
use crate::workloads::queue::QueueArgs;

const WORK: [&str; 8] = ["--ask", "0", "--refresh", "0", "--send", "1", "--take", "1"];
const TAKE: [&str; 8] = ["--ask", "0", "--refresh", "0", "--send", "0", "--take", "1"];
const MANY: &str = "2000";

/// Clients that each message is for.
const RECEIVERS: u32 = 200_000;
const RECEIVERS_QUICK: u32 = 20_000;

/// Others, who send and take at a steady rate.
const OTHERS: [&str; 12] =
    ["--ask", "0", "--refresh", "0", "--send", "1", "--take", "1", "--clients", "20", "--think", "5ms"];

const BETWEEN: Duration = Duration::from_secs(1);

/// Gone after two seconds, so that messages to be cleared away are part of it, and memory does not grow.
const MESSAGE: &str = r#"{"sender":"announcer","message":"to all","audience":"all","ttlMs":2000}"#;

impl Bench {
    /// A server that speaks the line protocol, and where.
    async fn speaking(&self) -> anyhow::Result<(Server, String)> {
        // Nobody else takes the port in the moment between.
        let line = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        Ok((self.fresh(&[("HUBBUB_LINE", &line)]).await?, line))
    }

    async fn queue(&self, server: &Server, line: &str, own: &[&str]) -> anyhow::Result<Report> {
        self.load::<QueueArgs>(server, &[&["--via", "line", "--line", line], own].concat()).await
    }

    /// Sends and takes with many messages waiting, by a few clients and by many; and what a waiting message costs.
    pub(super) async fn line(&self) -> anyhow::Result<Vec<Row>> {
        let (server, line) = self.speaking().await?;
        let before = rss_anon_kib(server.pid).unwrap_or(0);
        let (count, waiting) = (self.args.waiting.to_string(), grouped(self.args.waiting as f64));
        // Overrides the time of the measurement: all that matters here is that the queues are filled.
        let fill = ["--clients", MANY, "--depth", &count, "--warmup", "0ms", "--think", "1s"];
        let filled = self.queue(&server, &line, &[&WORK[..], &fill].concat()).await?;
        filled.must_be_clean("filling the queues")?;
        // What is done in the background after the last message belongs to it.
        tokio::time::sleep(Duration::from_secs(5)).await;
        let after = rss_anon_kib(server.pid).unwrap_or(0);

        let (mut pair, mut many) = (Pair::default(), Pair::default());
        let (echo, clients) = ([&WORK[..], &["--echo"]].concat(), [&WORK[..], &["--clients", MANY]].concat());
        for _ in 0..self.args.rounds {
            for (kind, side) in [(Kind::Line, &mut pair.bare), (Kind::DurableLine, &mut pair.durable)] {
                let bare = Server::bare(kind, self.dir.path(), &[]).await?;
                let address = bare.url.trim_start_matches("http://").to_owned();
                side.add(&self.queue(&bare, &address, &echo).await?);
                bare.kill().await?;
            }
            let few = self.queue(&server, &line, &WORK).await?;
            pair.real.add(&few);
            many.bare.add(&few);
            many.real.add(&self.queue(&server, &line, &clients).await?);
        }
        server.kill().await?;
        let each = after.saturating_sub(before) as f64 * 1024.0 / self.args.waiting.max(1) as f64;
        let what = format!("memory of a waiting message, {waiting} of 200 bytes");
        let memory = Row::new(what, format!("{each:.0} bytes"), "≤ 200 bytes", after > 0 && each <= 200.0);
        let what = format!("send and get over the line protocol, 80 clients, {waiting} messages waiting");
        Ok(vec![
            pair.row(&what, "operations/s", 0.75, "≥ 75 % of durable"),
            many.row("the same, 2,000 clients", "operations/s", 0.80, "≥ 80 % of 80 clients"),
            memory.noting(format!("anonymous memory: {before} KiB before, {after} KiB after")),
        ])
    }

    /// Takes from queues that had five times as many messages, against takes from new ones.
    pub(super) async fn taken(&self) -> anyhow::Result<Row> {
        let (new, old) = (self.speaking().await?, self.speaking().await?);
        let waiting = self.args.waiting;
        let (depth, taken) = (waiting.to_string(), (5 * waiting).to_string());
        let mut pair = Pair::default();
        for round in 0..self.args.rounds {
            for ((server, line), side, taken) in
                [(&new, &mut pair.bare, "0"), (&old, &mut pair.real, if round == 0 { &taken } else { "0" })]
            {
                let own = ["--depth", &depth, "--taken", taken];
                side.add(&self.queue(server, line, &[&TAKE[..], &own].concat()).await?);
            }
        }
        new.0.kill().await?;
        old.0.kill().await?;
        let (waiting, taken) = (grouped(waiting as f64), grouped(5.0 * waiting as f64));
        let what = format!("get with {waiting} waiting and {taken} taken before");
        Ok(pair.row(&what, "gets/s", 0.80, "≥ 80 % of a new queue"))
    }

    /// The 99th percentile of sends and takes of others, without and with a message to 200,000 clients each second.
    pub(super) async fn broadcast(&self) -> anyhow::Result<Row> {
        let receivers = if self.args.quick { RECEIVERS_QUICK } else { RECEIVERS };
        let (server, line) = self.speaking().await?;
        let target = Target::parse(&server.url)?;
        make(&target, vec![("PUT", "/v1/queues/news".to_owned(), "{}")]).await?;
        let clients = (1..=receivers).map(|client| ("PUT", format!("/v1/clients/receiver{client}"), ""));
        make(&target, clients.collect()).await?;
        let (mut quiet, mut busy, mut faults) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..self.args.rounds {
            let alone = self.queue(&server, &line, &OTHERS).await?;
            quiet.push(alone.latency.p99_ms);
            let sending = announce(&target);
            let measured = self.queue(&server, &line, &OTHERS).await;
            if sending.is_finished() {
                return Err(sending.await?.context("a message to everybody was not accepted"));
            }
            sending.abort();
            let beside = measured?;
            busy.push(beside.latency.p99_ms);
            faults.extend([alone.faults(), beside.faults()].concat());
        }
        server.kill().await?;
        let (without, with) = (median(&quiet), median(&busy));
        let ratio = with / without.max(0.001);
        let ms = |all: &[f64]| rounds(all, |ms| format!("{ms:.2}"));
        let what = format!("p99 of send and get beside a message to {receivers} clients each second");
        let met = (with <= 5.0 || ratio <= 2.0) && faults.is_empty();
        let row = Row::new(what, format!("{with:.2} ms"), "≤ 5 ms, or 2 × without", met).with_faults(faults);
        Ok(row.against(format!("{without:.2} ms without"), format!("{ratio:.1} ×")).noting(format!(
            "rounds {} against {}",
            ms(&busy),
            ms(&quiet)
        )))
    }
}

/// Sends messages to everybody until aborted, or until one is not accepted; then it says why.
fn announce(target: &Target) -> JoinHandle<anyhow::Error> {
    let target = target.clone();
    tokio::spawn(async move {
        let post = || vec![("POST", "/v1/queues/news/messages".to_owned(), MESSAGE)];
        loop {
            if let Err(error) = make(&target, post()).await {
                return error;
            }
            tokio::time::sleep(BETWEEN).await;
        }
    })
}
