//! Rows per second of several ways to write a batch of messages with their ids, in the tables as they are:
//! statements that are parsed each time, prepared ones, one stored function, binary COPY, and serializable transactions
//! with retries against locked rooms. Rounds take turns, so that ratios hold on a machine that is not quite quiet.
//!
//! `cargo run --release -p hubbub-postgres --example write_ways -- postgres://postgres@127.0.0.1:5432/postgres [ROWS] [BATCH]`
//! It works in a database of its own on that server, which it makes and drops.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::cast_precision_loss)]

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime};

use futures_util::future::join_all;
use hubbub_core::clock::{ManualClock, SeededRandom};
use hubbub_core::{Store, Timestamp};
use hubbub_postgres::{Postgres, PostgresOptions};
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, IsolationLevel, NoTls, Transaction};
use uuid::Uuid;

const DATABASE: &str = "hubbub_write_ways";
const ROUNDS: usize = 3;
const ROOMS: i32 = 50;
/// Where numbers of the next batch begin; every batch is of numbers of its own.
static NEXT: AtomicI64 = AtomicI64::new(1);
static RETRIES: AtomicU64 = AtomicU64::new(0);

const LOCK: &str = "select no, head from rooms where no = any($1) order by no for update";
const LOOK: &str = "select no, head from rooms where no = any($1) order by no";
const MESSAGES: &str = "insert into messages (room, sender, seq, received_at, sent_at, kind, message_id, username, body) \
                        select * from unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)";
const IDS: &str = "insert into message_ids (room, id_hash, received_at, seq) select * from unnest($1, $2, $3, $4) \
                   on conflict do nothing";
const HEADS: &str = "update rooms r set head = r.head + n.count, messages = messages + n.count \
                     from unnest($1, $2) n (no, count) where r.no = n.no";
const COPY: &str = "copy messages (room, sender, seq, received_at, sent_at, kind, message_id, username, body) \
                    from stdin binary";
const FUNCTION: &str = "create or replace function store_batch(wanted int[], counts bigint[], room int[], sender int[], \
        seq bigint[], received timestamptz[], sent timestamptz[], kind \"char\"[], id text[], name text[], body text[], \
        hash uuid[]) returns void language plpgsql as $$ begin \
    perform from rooms where no = any(wanted) order by no for update; \
    insert into messages (room, sender, seq, received_at, sent_at, kind, message_id, username, body) \
        select * from unnest(room, sender, seq, received, sent, kind, id, name, body); \
    insert into message_ids (room, id_hash, received_at, seq) select * from unnest(room, hash, received, seq) \
        on conflict do nothing; \
    update rooms r set head = r.head + n.count, messages = messages + n.count \
        from unnest(wanted, counts) n (no, count) where r.no = n.no; \
end $$";

type Param<'a> = &'a (dyn ToSql + Sync);

/// A batch, column by column.
struct Batch {
    rooms: Vec<i32>,
    counts: Vec<i64>,
    room: Vec<i32>,
    sender: Vec<i32>,
    seq: Vec<i64>,
    time: Vec<SystemTime>,
    kind: Vec<i8>,
    id: Vec<String>,
    name: Vec<Option<String>>,
    body: Vec<String>,
    hash: Vec<Uuid>,
}

impl Batch {
    fn new(size: usize) -> Self {
        let first = NEXT.fetch_add(i64::try_from(size).unwrap(), Relaxed);
        let seq: Vec<i64> = (first..).take(size).collect();
        let room: Vec<i32> =
            seq.iter().map(|seq| i32::try_from(seq % i64::from(ROOMS)).unwrap() + 1).collect();
        let rooms: Vec<i32> = (1..=ROOMS).collect();
        let count = |no: &i32| i64::try_from(room.iter().filter(|room| *room == no).count()).unwrap();
        // Spread as the hashes of ids are.
        let hash = |seq: &i64| {
            Uuid::from_u128(
                u128::from(seq.unsigned_abs()).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835),
            )
        };
        Self {
            counts: rooms.iter().map(count).collect(),
            rooms,
            sender: seq.iter().map(|seq| i32::try_from(seq % 1_000).unwrap()).collect(),
            time: vec![SystemTime::now(); size],
            kind: vec![0; size],
            id: seq.iter().map(|seq| format!("01980000-0000-7000-8000-{seq:012x}")).collect(),
            name: vec![None; size],
            body: vec!["x".repeat(120); size],
            hash: seq.iter().map(hash).collect(),
            room,
            seq,
        }
    }

    fn messages(&self) -> [Param<'_>; 9] {
        [
            &self.room,
            &self.sender,
            &self.seq,
            &self.time,
            &self.time,
            &self.kind,
            &self.id,
            &self.name,
            &self.body,
        ]
    }

    fn ids(&self) -> [Param<'_>; 4] {
        [&self.room, &self.hash, &self.time, &self.seq]
    }

    fn heads(&self) -> [Param<'_>; 2] {
        [&self.rooms, &self.counts]
    }
}

const INT: Type = Type::INT4_ARRAY;
const LONG: Type = Type::INT8_ARRAY;
const TIME: Type = Type::TIMESTAMPTZ_ARRAY;
const TEXT: Type = Type::TEXT_ARRAY;
const MESSAGE_TYPES: [Type; 9] = [INT, INT, LONG, TIME, TIME, Type::CHAR_ARRAY, TEXT, TEXT, TEXT];
const ID_TYPES: [Type; 4] = [INT, Type::UUID_ARRAY, TIME, LONG];

#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    Parsed,
    Prepared,
    Function,
    Copy,
    Serializable,
}

async fn parsed(tx: &Transaction<'_>, text: &str, types: &[Type], params: &[Param<'_>]) -> Result<(), Error> {
    let typed: Vec<_> = params.iter().copied().zip(types.iter().cloned()).collect();
    tx.query_typed(text, &typed).await.map(drop)
}

/// The statements of a connection.
struct Prepared {
    lock: tokio_postgres::Statement,
    look: tokio_postgres::Statement,
    messages: tokio_postgres::Statement,
    ids: tokio_postgres::Statement,
    heads: tokio_postgres::Statement,
    function: tokio_postgres::Statement,
}

impl Prepared {
    async fn new(client: &Client) -> Self {
        let function = "select store_batch($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";
        Self {
            lock: client.prepare(LOCK).await.unwrap(),
            look: client.prepare(LOOK).await.unwrap(),
            messages: client.prepare_typed(MESSAGES, &MESSAGE_TYPES).await.unwrap(),
            ids: client.prepare_typed(IDS, &ID_TYPES).await.unwrap(),
            heads: client.prepare_typed(HEADS, &[INT, LONG]).await.unwrap(),
            function: client.prepare(function).await.unwrap(),
        }
    }
}

async fn write(way: Way, tx: &Transaction<'_>, on: &Prepared, batch: &Batch) -> Result<(), Error> {
    match way {
        Way::Parsed => {
            parsed(tx, LOCK, &[INT], &[&batch.rooms]).await?;
            let (messages, ids, heads) = (batch.messages(), batch.ids(), batch.heads());
            tokio::try_join!(
                parsed(tx, MESSAGES, &MESSAGE_TYPES, &messages),
                parsed(tx, IDS, &ID_TYPES, &ids),
                parsed(tx, HEADS, &[INT, LONG], &heads),
            )?;
        }
        Way::Prepared | Way::Serializable => {
            let look = if way == Way::Prepared { &on.lock } else { &on.look };
            tx.query(look, &[&batch.rooms]).await?;
            let (messages, ids, heads) = (batch.messages(), batch.ids(), batch.heads());
            tokio::try_join!(
                tx.execute(&on.messages, &messages),
                tx.execute(&on.ids, &ids),
                tx.execute(&on.heads, &heads),
            )?;
        }
        Way::Function => {
            let mut params: Vec<Param<'_>> = vec![&batch.rooms, &batch.counts];
            params.extend(batch.messages());
            params.push(&batch.hash);
            tx.query(&on.function, &params).await?;
        }
        Way::Copy => {
            tx.query(&on.lock, &[&batch.rooms]).await?;
            let types = [
                Type::INT4,
                Type::INT4,
                Type::INT8,
                Type::TIMESTAMPTZ,
                Type::TIMESTAMPTZ,
                Type::CHAR,
                Type::TEXT,
                Type::TEXT,
                Type::TEXT,
            ];
            let writer = BinaryCopyInWriter::new(tx.copy_in(COPY).await?, &types);
            tokio::pin!(writer);
            let strings = batch.id.iter().zip(&batch.name).zip(&batch.body);
            let numbers =
                batch.room.iter().zip(&batch.sender).zip(&batch.seq).zip(&batch.time).zip(&batch.kind);
            for (((((room, sender), seq), time), kind), ((id, name), body)) in numbers.zip(strings) {
                let row: [Param<'_>; 9] = [room, sender, seq, time, time, kind, id, name, body];
                writer.as_mut().write(&row).await?;
            }
            writer.finish().await?;
            let (ids, heads) = (batch.ids(), batch.heads());
            tokio::try_join!(tx.execute(&on.ids, &ids), tx.execute(&on.heads, &heads))?;
        }
    }
    Ok(())
}

/// Writes so many batches over one connection, each again until no other is in its way.
async fn run(way: Way, url: &str, batches: usize, size: usize) {
    let (mut client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    let on = Prepared::new(&client).await;
    for _ in 0..batches {
        let batch = Batch::new(size);
        loop {
            let level = match way {
                Way::Serializable => IsolationLevel::Serializable,
                _ => IsolationLevel::ReadCommitted,
            };
            let tx = client.build_transaction().isolation_level(level).start().await.unwrap();
            let done = match write(way, &tx, &on, &batch).await {
                Ok(()) => tx.commit().await,
                Err(error) => Err(error),
            };
            match done {
                Ok(()) => break,
                Err(error)
                    if matches!(
                        error.code(),
                        Some(code) if *code == SqlState::T_R_SERIALIZATION_FAILURE
                            || *code == SqlState::T_R_DEADLOCK_DETECTED
                            || *code == SqlState::IN_FAILED_SQL_TRANSACTION
                    ) =>
                {
                    RETRIES.fetch_add(1, Relaxed);
                }
                failed => failed.unwrap(),
            }
        }
    }
}

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let server = arguments.next().unwrap_or_else(|| "postgres://postgres@127.0.0.1:5432/postgres".into());
    let url = format!("{}/{DATABASE}", server.rsplit_once('/').unwrap().0);
    let (admin, connection) = tokio_postgres::connect(&server, NoTls).await.unwrap();
    tokio::spawn(connection);
    let drop = format!("drop database if exists {DATABASE} with (force)");
    admin.batch_execute(&drop).await.unwrap();
    admin.batch_execute(&format!("create database {DATABASE}")).await.unwrap();
    let mut number = |default: usize| arguments.next().map_or(default, |text| text.parse().unwrap());
    let (rows, size) = (number(100_000), number(1_000));
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let now = Timestamp::from_micros(i64::try_from(now.as_micros()).unwrap());
    let clock = Arc::new(ManualClock::at(now));
    // Makes the tables and a partition for now.
    Postgres::open(PostgresOptions::new(&url), clock, &SeededRandom::new(1)).await.unwrap().close();
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute(FUNCTION).await.unwrap();
    let rooms = "insert into rooms (id) select 'room-' || n from generate_series(1, 50) n";
    client.batch_execute(rooms).await.unwrap();
    let ways = [Way::Parsed, Way::Prepared, Way::Function, Way::Copy, Way::Serializable];
    println!("{rows} rows in batches of {size} to {ROOMS} rooms, rows per second; {ROUNDS} rounds in turn");
    for connections in [1, 2] {
        for round in 1..=ROUNDS {
            for way in ways {
                client.batch_execute("truncate messages, message_ids; checkpoint").await.unwrap();
                RETRIES.store(0, Relaxed);
                let begin = Instant::now();
                let batches = rows / size / connections;
                join_all(
                    (0..connections).map(|_| {
                        tokio::spawn(run(way, Box::leak(url.clone().into_boxed_str()), batches, size))
                    }),
                )
                .await;
                let rate = (batches * size * connections) as f64 / begin.elapsed().as_secs_f64();
                let retries = RETRIES.load(Relaxed);
                println!(
                    "connections {connections}, round {round}, {way:?}: {rate:.0} rows/s, {retries} retries"
                );
            }
        }
    }
    admin.batch_execute(&drop).await.unwrap();
}
