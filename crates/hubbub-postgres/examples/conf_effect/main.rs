//! What `deploy/postgresql.conf` is worth: messages a second and the four core queries, on a PostgreSQL with its defaults
//! and on one with that file.
//!
//! `cargo run --release -p hubbub-postgres --example conf_effect [MESSAGES] [ROUNDS] [ROOMS] [PORT]`
//! It starts both servers, one at a time, in turn, by `scripts/services/postgres.sh`, and removes them. In each round each
//! has an empty database, is filled through the store, counts, is vacuumed, and is asked.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::cast_precision_loss,
    reason = "a benchmark prints figures"
)]

#[path = "../support/database.rs"]
mod database;
#[path = "../support/figures.rs"]
mod figures;
#[path = "../query_bench/fill.rs"]
mod fill;
#[path = "../query_bench/queries.rs"]
mod queries;
#[path = "../support/server.rs"]
mod server;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use hubbub_core::clock::{ManualClock, SeededRandom};
use hubbub_core::{Store, Timestamp};
use hubbub_postgres::{Postgres, PostgresOptions};

use database::connect;
use figures::{median, paired};
use queries::Timed;
use server::Server;

type Failure = Box<dyn std::error::Error + Send + Sync>;

const FILE: &str = include_str!("../../../../deploy/postgresql.conf");
const DATABASE: &str = "hubbub_conf_effect";
const START_MICROS: i64 = 1_767_225_600_000_000;
const SPAN_MICROS: i64 = 30 * 86_400_000_000;
const MESSAGES_PER_USER: u64 = 50;

/// What is sent and asked for.
struct Workload {
    messages: u64,
    rooms: u64,
    users: u64,
}

/// One of the two servers, with what was measured of it.
struct Side {
    server: Server,
    settings: BTreeMap<String, String>,
    rates: Vec<f64>,
    /// Milliseconds at the median and at p99, a row for each query.
    queries: BTreeMap<&'static str, [Vec<f64>; 2]>,
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: u64| arguments.next().map_or(Ok(default), |text| text.parse());
    let (messages, rounds, rooms, port) = (number(1_000_000)?, number(3)?, number(20)?, number(15_792)?);
    let workload = Workload { messages, rooms, users: (messages / MESSAGES_PER_USER).max(1) };
    let port = u16::try_from(port)?;
    let mut sides = [Side::new(port, ""), Side::new(port + 1, FILE)];
    for round in 0..rounds.max(1) {
        // Whoever is first in one round is second in the next.
        for turn in 0..2 {
            let index = usize::try_from((round + turn) % 2)?;
            if let Some(side) = sides.get_mut(index) {
                side.measure(&workload).await?;
            }
        }
    }
    let [defaults, tuned] = &sides;
    print(&workload, rounds, defaults, tuned)
}

impl Side {
    fn new(port: u16, config: &str) -> Self {
        let server = Server::new(port, config);
        Self { server, settings: BTreeMap::new(), rates: Vec::new(), queries: BTreeMap::new() }
    }

    async fn measure(&mut self, workload: &Workload) -> Result<(), Failure> {
        self.server.start()?;
        let admin = self.server.url("postgres");
        let url = database::make(&admin, DATABASE).await?;
        let client = connect(&url).await?;
        let settings = "select name, coalesce(current_setting(name), '') from pg_settings \
             where name not in ('port', 'unix_socket_directories') and name !~ '_(directory|file)$' \
             and name not like 'lc%'";
        let rows = client.query(settings, &[]).await?;
        self.settings = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        for name in ["fsync", "synchronous_commit", "full_page_writes"] {
            if self.settings.get(name).is_none_or(|value| value != "on") {
                return Err(format!("{name} is not on: these figures would be worth nothing").into());
            }
        }
        let clock = Arc::new(ManualClock::at(Timestamp::from_micros(START_MICROS)));
        let store = Postgres::open(PostgresOptions::new(&url), clock.clone(), &SeededRandom::new(1)).await?;
        let store = Arc::new(store);
        let begin = Instant::now();
        fill::fill(&store, &clock, workload).await?;
        self.rates.push(workload.messages as f64 / begin.elapsed().as_secs_f64());
        store.finish_maintenance().await?;
        client.batch_execute("vacuum (analyze)").await?;
        for Timed { what, times, .. } in queries::time_all(&store, workload).await? {
            let [medians, p99s] = self.queries.entry(what).or_default();
            medians.push(queries::at(&times, 50));
            p99s.push(queries::at(&times, 99));
        }
        store.close();
        drop(client);
        database::drop(&admin, DATABASE).await?;
        self.server.stop()
    }
}

fn print(workload: &Workload, rounds: u64, defaults: &Side, tuned: &Side) -> Result<(), Failure> {
    println!("\nsettings that differ (some follow from others):");
    for (name, value) in &defaults.settings {
        let other = tuned.settings.get(name).ok_or("a setting is missing")?;
        if other != value {
            println!("  {name}: {value} → {other}");
        }
    }
    println!(
        "\n{} messages, {} rooms, {} users; medians of {rounds} rounds in turn, ratio by round\n\n\
         | what | defaults | deploy/postgresql.conf | ratio |\n| --- | --- | --- | --- |",
        workload.messages, workload.rooms, workload.users
    );
    let line = |what: &str, defaults: &[f64], tuned: &[f64], digits: usize| {
        println!(
            "| {what} | {:.digits$} | {:.digits$} | {:.2} × |",
            median(defaults),
            median(tuned),
            paired(tuned, defaults)
        );
    };
    line("messages stored a second", &defaults.rates, &tuned.rates, 0);
    for (what, [medians, p99s]) in &defaults.queries {
        let [tuned_medians, tuned_p99s] = tuned.queries.get(what).ok_or("a query is missing")?;
        line(&format!("{what}, p50 ms"), medians, tuned_medians, 2);
        line(&format!("{what}, p99 ms"), p99s, tuned_p99s, 2);
    }
    Ok(())
}
