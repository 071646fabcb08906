//! How fast the four core queries are, how large everything is, and what each index is worth:
//! `query_bench URL [MESSAGES] [ROOMS]`. Fills an empty database up to that many messages (1 million) of a user for each 50
//! of them over 30 days, then prints sizes, times, and for each index the times with and without it, its size and what it
//! costs to write. The database is kept: another run asks only. Not for a database that anybody needs.

#![allow(clippy::print_stdout, reason = "a benchmark prints figures")]

mod fill;
mod indexes;
mod queries;

use std::sync::Arc;
use std::time::Instant;

use hubbub_core::clock::{ManualClock, SeededRandom};
use hubbub_core::{Store, Timestamp};
use hubbub_postgres::{Postgres, PostgresOptions};
use tokio_postgres::{Client, NoTls};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// When the first message is sent, and over how long a time all are.
const START_MICROS: i64 = 1_767_225_600_000_000;
const SPAN_MICROS: i64 = 30 * 86_400_000_000;
const MESSAGES_PER_USER: u64 = 50;

/// What is sent and asked for.
struct Workload {
    messages: u64,
    rooms: u64,
    users: u64,
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let url = args.next().ok_or("usage: query_bench URL [MESSAGES] [ROOMS]")?;
    let messages: u64 = args.next().map_or(Ok(1_000_000), |text| text.parse())?;
    let rooms: u64 = args.next().map_or(Ok(20), |text| text.parse())?;
    let workload = Workload { messages, rooms, users: (messages / MESSAGES_PER_USER).max(1) };

    let (client, connection) = tokio_postgres::connect(&url, NoTls).await?;
    tokio::spawn(connection);
    let clock = Arc::new(ManualClock::at(Timestamp::from_micros(START_MICROS)));
    let store = Postgres::open(PostgresOptions::new(&url), clock.clone(), &SeededRandom::new(1)).await?;
    let store = Arc::new(store);
    fill::fill(&store, &clock, &workload).await?;
    let begin = Instant::now();
    store.finish_maintenance().await?;
    println!("counted within {:.1} s after the last message", begin.elapsed().as_secs_f64());
    client.batch_execute("vacuum (analyze)").await?;
    sizes(&client, messages).await?;
    println!("\n{:<44} {:>8} {:>8} {:>8} {:>8}", "query, milliseconds", "p50", "p95", "p99", "target");
    for queries::Timed { what, times, target } in queries::time_all(&store, &workload).await? {
        let [p50, p95, p99] = [50, 95, 99].map(|percent| queries::at(&times, percent));
        println!("{what:<44} {p50:>8.2} {p95:>8.2} {p99:>8.2} {target:>8}");
    }
    store.close();
    indexes::weigh(&client, &workload).await
}

/// Bytes for each message, by table and index.
async fn sizes(client: &Client, messages: u64) -> Result<(), Failure> {
    let text = "with parts as ( \
        select regexp_replace(coalesce(parent.inhparent, c.oid)::regclass::text, '_[0-9]{8}', '') as name, c.relkind, c.oid \
        from pg_class c left join pg_inherits parent on parent.inhrelid = c.oid \
        where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'i')) \
        select name, relkind = 'i', sum(pg_total_relation_size(oid) - pg_indexes_size(oid))::int8 \
        from parts group by 1, 2 order by 3 desc";
    println!("\n{:<36} {:>12} {:>14}", "table or index", "MiB", "bytes/message");
    let (mut all, mut of_messages) = (0, 0);
    for row in client.query(text, &[]).await? {
        let (name, bytes): (String, i64) = (row.get(0), row.get(2));
        all += bytes;
        if name.starts_with("message") {
            of_messages += bytes;
        }
        if bytes > 1 << 20 {
            line(&name, bytes, messages);
        }
    }
    line("messages, ids and their indexes", of_messages, messages);
    line("everything", all, messages);
    Ok(())
}

#[allow(clippy::cast_precision_loss, reason = "figures for people")]
fn line(name: &str, bytes: i64, messages: u64) {
    println!("{name:<36} {:>12.1} {:>14.1}", bytes as f64 / 1_048_576.0, bytes as f64 / messages as f64);
}
