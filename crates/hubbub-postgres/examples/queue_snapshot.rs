//! Whether a hot queue keeps its rate while another session holds a snapshot open, which keeps everything that was ever
//! taken from being cleared away: `queue_snapshot [SECONDS] [away|lease] [BATCH]`.
//!
//! Sends a batch, takes it (in takes of ten), and with `lease` acknowledges it, over and over, for so many seconds without
//! a snapshot and then with one. Prints the rates, in messages through the queue per second, and their ratio.
//! `HUBBUB_TEST_POSTGRES` names the server, in which a database is made and dropped.

#![allow(clippy::print_stdout, missing_docs)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use hubbub_core::clock::SeededRandom;
use hubbub_core::queue::{
    Audience, Delivery, Due, QueueOutcome, QueueSend, QueueSettings, Settle, Take, TakeHow, Wanted,
};
use hubbub_core::{Clock, Op, OpBatch, Outcome, QueueOp, Store, Timestamp};
use hubbub_postgres::{Postgres, PostgresOptions};
use tokio_postgres::{Client, NoTls};

type Failed = Box<dyn std::error::Error + Send + Sync>;

const SERVER: &str = "postgres://postgres@127.0.0.1:15432/postgres";
const DATABASE: &str = "queue_snapshot";
const QUEUE: &str = "hot";
/// Messages of one take.
const TAKE: usize = 10;
/// Messages that wait in the queue all the time.
const WAITING: usize = 1_000;
/// Parts of each phase whose rates are printed.
const PARTS: u32 = 6;

struct SystemClock(Instant);

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }

    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }
}

fn apply(store: &Postgres, ops: &[QueueOp<'_>]) -> Result<Vec<Outcome>, Failed> {
    let mut batch = OpBatch::default();
    ops.iter().for_each(|op| batch.push(&Op::Queue(*op)));
    Ok(store.apply(&batch)?)
}

fn send(store: &Postgres, count: usize) -> Result<(), Failed> {
    let text = "x".repeat(200);
    let send = QueueSend {
        queue: QUEUE,
        sender: "ada",
        audience: Audience::Anyone,
        text: &text,
        message_id: None,
        due: Due::Now,
        group: None,
        ttl_ms: None,
        registers: true,
    };
    apply(store, &vec![QueueOp::Send(send); count]).map(drop)
}

fn take(store: &Postgres, count: usize, how: TakeHow) -> Result<Vec<Delivery>, Failed> {
    let wanted = Wanted { queue: Some(QUEUE), receiver: Some("bob"), sender: None, newest_first: false };
    let take = QueueOp::Take(Take { wanted, max: TAKE, how, registers: true });
    let mut taken = Vec::new();
    for outcome in apply(store, &vec![take; count / TAKE])? {
        match outcome {
            Outcome::Queue(QueueOutcome::Taken(deliveries)) => taken.extend(deliveries),
            other => return Err(format!("a take was answered {other:?}").into()),
        }
    }
    Ok(taken)
}

/// Messages through the queue per second, over `time`; and the time that sends took of it.
fn rate(store: &Postgres, leases: bool, batch: usize, time: Duration) -> Result<(f64, f64), Failed> {
    let (start, mut taken, mut sending) = (Instant::now(), 0, Duration::ZERO);
    while start.elapsed() < time {
        let begun = Instant::now();
        send(store, batch)?;
        sending += begun.elapsed();
        let how = if leases { TakeHow::Lease { lease_ms: Some(60_000) } } else { TakeHow::Away };
        let got = take(store, batch, how)?;
        taken += got.len();
        if leases {
            let receipts = got.iter().filter_map(|one| one.receipt);
            let acks = receipts.map(|receipt| QueueOp::Settle { queue: QUEUE, receipt, how: Settle::Ack });
            apply(store, &acks.collect::<Vec<_>>())?;
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    Ok((taken as f64 / seconds, sending.as_secs_f64() / seconds))
}

/// The rates of the parts of a phase, and that of the last third of them.
fn phase(what: &str, store: &Postgres, leases: bool, batch: usize, seconds: u32) -> Result<f64, Failed> {
    let part = Duration::from_secs(seconds.into()) / PARTS;
    let mut rates = Vec::new();
    for number in 1..=PARTS {
        let (rate, sending) = rate(store, leases, batch, part)?;
        println!("{what} {number}/{PARTS}: {rate:.0} messages/s, sends {:.0} % of the time", sending * 100.0);
        rates.push(rate);
    }
    let last = rates.iter().rev().take(2);
    Ok(last.clone().sum::<f64>() / last.count() as f64)
}

async fn connect(url: &str) -> Result<Client, Failed> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

#[tokio::main]
async fn main() -> Result<(), Failed> {
    let args: Vec<String> = std::env::args().collect();
    let number = |place: usize, default: u32| {
        args.get(place).map_or(Ok(default), |text| text.parse()).map_err(|error| format!("{error}"))
    };
    let (seconds, batch) = (number(1, 60)?, usize::try_from(number(3, 500)?)?);
    let leases = args.get(2).is_some_and(|how| how == "lease");
    let server = std::env::var("HUBBUB_TEST_POSTGRES").unwrap_or_else(|_| SERVER.into());
    let admin = connect(&server).await?;
    admin.batch_execute(&format!("drop database if exists {DATABASE} with (force)")).await?;
    admin.batch_execute(&format!("create database {DATABASE}")).await?;
    let url = server.rsplit_once('/').map_or(server.clone(), |(server, _)| format!("{server}/{DATABASE}"));
    let clock = Arc::new(SystemClock(Instant::now()));
    let store = Postgres::open(PostgresOptions::new(&url), clock, &SeededRandom::new(1)).await?;
    apply(&store, &[QueueOp::Put { queue: QUEUE, settings: &QueueSettings::default() }])?;
    send(&store, WAITING)?;

    let without = phase("without", &store, leases, batch, seconds)?;
    let other = connect(&url).await?;
    other.batch_execute("begin isolation level repeatable read").await?;
    other.query("select count(*) from queue_messages", &[]).await?;
    let with = phase("with   ", &store, leases, batch, seconds)?;
    println!(
        "ratio: {:.2} (the last third of each, {:.0} and {:.0} messages/s)",
        with / without,
        without,
        with
    );

    drop(other);
    store.close();
    admin.batch_execute(&format!("drop database if exists {DATABASE} with (force)")).await?;
    Ok(())
}
