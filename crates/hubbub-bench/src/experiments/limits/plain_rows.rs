//! PostgreSQL without a server in front of it: the same rows into the same tables in plain batches, and keys one
//! statement for each.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context;
use hubbub_core::clock::{RandomSource, SeededRandom};
use hubbub_core::invariant::saturate;
use hubbub_postgres::{Postgres, PostgresOptions};
use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::Alone;
use super::postgres::{Database, Prepared, connect};
use crate::host::machine::{SystemClock, seed};
use crate::load::message_plan::{Job, Shape, below};
use crate::load::room_load::join;
use crate::results::record::Dist;

type Param<'a> = &'a (dyn tokio_postgres::types::ToSql + Sync);

/// Rows of a batch, as the store's own batches have at most.
const BATCH: usize = 5_000;
/// Connections that write, as the store's own lanes.
const CONNECTIONS: u64 = 2;

impl Database {
    /// Bytes of the tables that messages are in, with their indexes, and how many messages there are.
    pub(crate) async fn message_bytes(&self) -> anyhow::Result<(i64, i64)> {
        let client = connect(&self.url).await?;
        let size = "select coalesce(sum(pg_total_relation_size(relid)), 0)::int8 from ( \
                      select relid from pg_partition_tree('messages') union all \
                      select relid from pg_partition_tree('message_ids')) tables";
        let bytes = client.query_one(size, &[]).await?.get(0);
        let count = client.query_one("select count(*) from messages", &[]).await?.get(0);
        Ok((bytes, count))
    }
}

pub(crate) async fn make_tables(url: &str) -> anyhow::Result<()> {
    use hubbub_core::Store as _;
    let random = SeededRandom::new(seed());
    Postgres::open(PostgresOptions::new(url), Arc::new(SystemClock::new()), &random).await?.close();
    Ok(())
}

const IDS: &str = "insert into message_ids (room, id_hash, received_at, seq) \
     select room, hash::uuid, $4, seq from unnest($1::int[], $2::text[], $3::int8[]) as t (room, hash, seq) \
     on conflict do nothing";
const MESSAGES: &str = "insert into messages (room, sender, seq, received_at, sent_at, kind, message_id, body) \
     select room, sender, seq, $6, $6, '0', id, body \
     from unnest($1::int[], $2::int[], $3::int8[], $4::text[], $5::text[]) as t (room, sender, seq, id, body) \
     on conflict do nothing";

/// Rooms, users and bytes of a text, as `bench persist` has them.
const ROOMS: u16 = 1_000;
const USERS: u32 = 10_000;
const TEXT_BYTES: usize = 120;

/// Brings rows into the tables of messages and their ids for some time, in plain batches of `batch`.
pub(crate) async fn rows(server: &str, time: Duration, batch: Option<NonZeroUsize>) -> anyhow::Result<Alone> {
    let shape = Arc::new(Shape::of_residents(seed(), USERS, TEXT_BYTES));
    let database = Database::fresh(server).await?;
    make_tables(&database.url).await?;
    let (begun, stored) = (Instant::now(), Arc::new(Mutex::new((0, Dist::default()))));
    let mut tasks = JoinSet::new();
    for lane in 0..CONNECTIONS {
        let (url, shape, stored) = (database.url.clone(), shape.clone(), stored.clone());
        let batch = batch.map_or(BATCH, NonZeroUsize::get);
        tasks.spawn(async move { fill(&url, &shape, lane, batch, begun + time, &stored).await });
    }
    join(tasks).await?;
    let elapsed = begun.elapsed();
    database.remove().await?;
    let (rows, latency) = &*stored.lock();
    Ok(Alone { per_second: *rows as f64 / elapsed.as_secs_f64(), latency: latency.stats() })
}

async fn fill(
    url: &str,
    shape: &Shape,
    lane: u64,
    batch: usize,
    until: Instant,
    stored: &Mutex<(u64, Dist)>,
) -> anyhow::Result<()> {
    let mut client = connect(url).await?;
    let (ids, messages) = (client.prepare(IDS).await?, client.prepare(MESSAGES).await?);
    let mut next = vec![0_i64; usize::from(ROOMS)];
    let (mut index, random) = (lane, SeededRandom::new(seed()));
    while Instant::now() < until {
        let mut columns = Columns::default();
        for _ in 0..batch {
            // Rooms of one connection are not those of another, as in the store.
            let room = below(random.next_u64(), u64::from(ROOMS)) / CONNECTIONS * CONNECTIONS + lane;
            if let Some(seq) = next.get_mut(usize::try_from(room)?) {
                *seq += 1;
                columns.push(shape, &shape.draw(&random, index, u16::try_from(room)?), *seq);
            }
            index += CONNECTIONS;
        }
        let (now, begun) = (SystemTime::now(), Instant::now());
        let Columns { rooms, senders, seqs, ids: names, hashes, bodies } = &columns;
        let tx = client.transaction().await?;
        let first: [Param<'_>; 4] = [rooms, hashes, seqs, &now];
        let second: [Param<'_>; 6] = [rooms, senders, seqs, names, bodies, &now];
        let (ids_done, messages_done) =
            tokio::join!(tx.execute(&ids, &first), tx.execute(&messages, &second));
        let rows = messages_done?;
        anyhow::ensure!(ids_done? == rows, "ids and messages differ");
        tx.commit().await?;
        let (all, latency) = &mut *stored.lock();
        *all += rows;
        latency.add(saturate(begun.elapsed().as_micros()));
    }
    Ok(())
}

#[derive(Default)]
struct Columns {
    rooms: Vec<i32>,
    senders: Vec<i32>,
    seqs: Vec<i64>,
    ids: Vec<String>,
    hashes: Vec<String>,
    bodies: Vec<String>,
}

impl Columns {
    fn push(&mut self, shape: &Shape, job: &Job, seq: i64) {
        let mut id = Vec::new();
        shape.write_id(job.index, &mut id);
        self.rooms.push(job.room.into());
        self.senders.push(job.user.cast_signed());
        self.seqs.push(seq);
        self.ids.push(String::from_utf8_lossy(&id).into_owned());
        let salted = job.index ^ (u64::from(job.room) << 40);
        let [high, low] = [job.index, salted].map(|n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        self.hashes.push(format!("{high:016x}{low:016x}"));
        self.bodies.push(shape.text(job).to_owned());
    }
}

/// Puts per second that `callers` reach with one upsert for each put, over a pool of `connections`.
pub(crate) async fn puts_rate(
    server: &str,
    callers: usize,
    connections: usize,
    keys: u64,
    time: Duration,
) -> anyhow::Result<f64> {
    let database = Database::fresh(server).await?;
    let client = connect(&database.url).await?;
    let table = "create table bare (key bytea primary key, value bytea not null, revision bigint not null)";
    client.batch_execute(table).await?;
    let upsert = "insert into bare values ($1, $2, 1) \
         on conflict (key) do update set value = excluded.value, revision = bare.revision + 1";
    let pool = Arc::new(Prepared::open(&database.url, connections, upsert).await?);
    let (begun, puts) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let mut tasks = JoinSet::new();
    for _ in 0..callers {
        let (pool, puts) = (pool.clone(), puts.clone());
        tasks.spawn(async move {
            while begun.elapsed() < time {
                let number = puts.fetch_add(1, Ordering::Relaxed);
                let key = format!("key-{:012}", number.wrapping_mul(0x9E37_79B9_7F4A_7C15) % keys);
                pool.run(&[&key.as_bytes(), &[7_u8; 100].as_slice()]).await?;
            }
            anyhow::Ok(())
        });
    }
    join(tasks).await?;
    let rate = puts.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64();
    database.remove().await?;
    Ok(rate)
}

/// Rows per second that `callers`, each with a connection of its own, select by the keys `bench-N` of the load tool.
pub(crate) async fn selects_rate(
    database: &str,
    callers: usize,
    select: &str,
    time: Duration,
) -> anyhow::Result<f64> {
    let pool = Arc::new(Prepared::open(database, callers, select).await?);
    let (begun, selects) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let mut tasks = JoinSet::new();
    for _ in 0..callers {
        let (pool, selects) = (pool.clone(), selects.clone());
        tasks.spawn(async move {
            while begun.elapsed() < time {
                let number = selects.fetch_add(1, Ordering::Relaxed);
                let key = format!("bench-{}", number.wrapping_mul(0x9E37_79B9_7F4A_7C15) % 100_000);
                pool.run(&[&key.as_bytes()]).await?.context("no such key")?;
            }
            anyhow::Ok(())
        });
    }
    join(tasks).await?;
    Ok(selects.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64())
}
