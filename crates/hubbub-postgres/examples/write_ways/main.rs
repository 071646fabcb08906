//! Rows per second of several ways to write a batch of messages with their ids, into the tables as they are, with their
//! indexes: prepared statements, statements that are parsed each time, one stored function, COPY into a staging table,
//! COPY into the table, and serializable transactions with retries against locked rooms. Each over one connection and
//! over two that write to the same rooms. Rounds take turns, and the order within them, so that ratios hold on a machine
//! that is not quite quiet.
//!
//! `cargo run --release -p hubbub-postgres --example write_ways -- postgres://postgres@127.0.0.1:5432/postgres [ROWS] [BATCH] [ROUNDS]`
//! It works in a database of its own on that server, which it makes and drops.

#![allow(clippy::print_stdout, clippy::cast_precision_loss, reason = "a benchmark prints figures")]

mod batch;
#[path = "../support/database.rs"]
mod database;
#[path = "../support/figures.rs"]
mod figures;
mod ways;

use std::time::Instant;

use futures_util::future::try_join_all;

use batch::{Batch, ROOMS};
use database::connect;
use figures::{median, paired};
use ways::{FUNCTION, Way, Writer};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const DATABASE: &str = "hubbub_write_ways";

/// What is written in one measurement.
#[derive(Clone, Copy)]
struct Load {
    rows: usize,
    batch: usize,
    writers: usize,
}

/// Rows per second, and retries for each batch, of every round.
#[derive(Default, Clone)]
struct Seen {
    rates: Vec<f64>,
    retries: Vec<f64>,
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let server = arguments.next().ok_or("usage: write_ways URL [ROWS] [BATCH] [ROUNDS]")?;
    let mut number = |default: usize| arguments.next().map_or(Ok(default), |text| text.parse());
    let (rows, batch, rounds) = (number(100_000)?, number(1_000)?, number(5)?);
    let url = database::make(&server, DATABASE).await?;
    batch::make_tables(&url).await?;
    let admin = connect(&url).await?;
    admin.batch_execute(FUNCTION).await?;
    for writers in [1, 2] {
        let load = Load { rows, batch, writers };
        let mut seen = vec![Seen::default(); Way::ALL.len()];
        for round in 0..rounds {
            for index in 0..Way::ALL.len() {
                let index = (index + round) % Way::ALL.len();
                let (Some(way), Some(seen)) = (Way::ALL.get(index), seen.get_mut(index)) else { continue };
                batch::empty_tables(&admin).await?;
                let (rate, retries) = measure(*way, &url, load).await?;
                seen.rates.push(rate);
                seen.retries.push(retries);
            }
        }
        print(load, rounds, &seen);
    }
    drop(admin);
    database::drop(&server, DATABASE).await
}

async fn measure(way: Way, url: &str, load: Load) -> Result<(f64, f64), Failure> {
    let mut writers = Vec::new();
    for _ in 0..load.writers {
        writers.push(Writer::new(connect(url).await?).await?);
    }
    let batches = (load.rows / load.batch / load.writers).max(1);
    let begin = Instant::now();
    let writing = writers.into_iter().map(|writer| {
        let writing = async move {
            let mut retries = 0;
            for _ in 0..batches {
                retries += writer.write(way, &Batch::new(load.batch)).await?;
            }
            Ok::<u64, Failure>(retries)
        };
        async { tokio::spawn(writing).await? }
    });
    let retries: u64 = try_join_all(writing).await?.into_iter().sum();
    let written = (batches * load.writers) as f64;
    Ok((written * load.batch as f64 / begin.elapsed().as_secs_f64(), retries as f64 / written))
}

fn print(load: Load, rounds: usize, seen: &[Seen]) {
    let Load { rows, batch, writers } = load;
    println!(
        "\nwriters: {writers}; {rows} rows in batches of {batch} to {ROOMS} rooms; medians of {rounds} rounds, share of the \
         first by round\n\n| way | rows/s | share | lowest, highest | retries of a batch |\n| --- | --- | --- | --- | --- |"
    );
    let Some(first) = seen.first() else { return };
    for (way, Seen { rates, retries }) in Way::ALL.iter().zip(seen) {
        let low = rates.iter().copied().fold(f64::INFINITY, f64::min);
        let high = rates.iter().copied().fold(0.0, f64::max);
        let (rate, share) = (median(rates), 100.0 * paired(rates, &first.rates));
        println!(
            "| {} | {rate:.0} | {share:.0} % | {low:.0}, {high:.0} | {:.2} |",
            way.name(),
            median(retries)
        );
    }
}
