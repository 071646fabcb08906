//! The statements that write a batch of messages, batches to write, and the tables to write to.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use hubbub_core::clock::{ManualClock, SeededRandom};
use hubbub_core::{Store, Timestamp};
use hubbub_postgres::{Postgres, PostgresOptions};
use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};
use uuid::Uuid;

use crate::Failure;
use crate::database::connect;

/// Rooms that batches are for.
pub(crate) const ROOMS: i32 = 50;
/// Where numbers of the next batch begin; every batch is of numbers of its own.
static NEXT: AtomicI64 = AtomicI64::new(1);

/// What the store sends for a batch, in its order: the first with `begin`, the others on their way together. Of the
/// columns of rooms only those are here that messages change.
pub(crate) const LOCK: &str = "select no, head from rooms where no = any($1) order by no for update";
pub(crate) const MESSAGES: &str = "insert into messages (room, sender, seq, received_at, sent_at, kind, message_id, username, body) \
     select * from unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)";
pub(crate) const IDS: &str = "insert into message_ids (room, id_hash, received_at, seq) select * from unnest($1, $2, $3, $4) \
     on conflict do nothing";
pub(crate) const HEADS: &str = "update rooms r set head = r.head + n.count, messages = messages + n.count \
     from unnest($1, $2) n (no, count) where r.no = n.no";

pub(crate) const INT: Type = Type::INT4_ARRAY;
pub(crate) const LONG: Type = Type::INT8_ARRAY;
const TIME: Type = Type::TIMESTAMPTZ_ARRAY;
const TEXT: Type = Type::TEXT_ARRAY;
pub(crate) const MESSAGE_TYPES: [Type; 9] = [INT, INT, LONG, TIME, TIME, Type::CHAR_ARRAY, TEXT, TEXT, TEXT];
pub(crate) const ID_TYPES: [Type; 4] = [INT, Type::UUID_ARRAY, TIME, LONG];

pub(crate) type Param<'a> = &'a (dyn ToSql + Sync);

/// A batch, column by column, ordered by room as the store orders it.
pub(crate) struct Batch {
    pub(crate) rooms: Vec<i32>,
    pub(crate) counts: Vec<i64>,
    pub(crate) room: Vec<i32>,
    pub(crate) sender: Vec<i32>,
    pub(crate) seq: Vec<i64>,
    pub(crate) time: Vec<SystemTime>,
    pub(crate) kind: Vec<i8>,
    pub(crate) id: Vec<String>,
    pub(crate) name: Vec<String>,
    pub(crate) body: Vec<String>,
    pub(crate) hash: Vec<Uuid>,
}

impl Batch {
    /// Messages with texts of 120 bytes that no other batch has.
    pub(crate) fn new(size: usize) -> Self {
        let count = i64::try_from(size).unwrap_or(i64::MAX);
        let first = NEXT.fetch_add(count, Relaxed);
        let room_of = |seq: &i64| i32::try_from(seq % i64::from(ROOMS)).unwrap_or(0) + 1;
        let mut seq: Vec<i64> = (first..first + count).collect();
        seq.sort_by_key(|seq| (room_of(seq), *seq));
        let room: Vec<i32> = seq.iter().map(room_of).collect();
        let mut rooms = room.clone();
        rooms.dedup();
        let in_room = |no: &i32| room.iter().filter(|room| *room == no).count();
        // Spread as the hashes of ids are.
        let hash = |seq: &i64| {
            let spread = 0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835;
            Uuid::from_u128(u128::from(seq.unsigned_abs()).wrapping_mul(spread))
        };
        Self {
            counts: rooms.iter().map(|no| i64::try_from(in_room(no)).unwrap_or(0)).collect(),
            rooms,
            sender: seq.iter().map(|seq| i32::try_from(seq % 1_000).unwrap_or(0)).collect(),
            time: vec![SystemTime::now(); size],
            kind: vec![0; size],
            id: seq.iter().map(|seq| format!("01980000-0000-7000-8000-{seq:012x}")).collect(),
            name: vec![String::new(); size],
            body: vec!["x".repeat(120); size],
            hash: seq.iter().map(hash).collect(),
            room,
            seq,
        }
    }

    /// Parameters of [`MESSAGES`].
    pub(crate) fn messages(&self) -> [Param<'_>; 9] {
        let Self { room, sender, seq, time, kind, id, name, body, .. } = self;
        [room, sender, seq, time, time, kind, id, name, body]
    }

    /// Parameters of [`IDS`].
    pub(crate) fn ids(&self) -> [Param<'_>; 4] {
        [&self.room, &self.hash, &self.time, &self.seq]
    }

    /// Parameters of [`HEADS`].
    pub(crate) fn heads(&self) -> [Param<'_>; 2] {
        [&self.rooms, &self.counts]
    }
}

/// Makes the tables of the store in an empty database, with partitions for now, and the rooms.
pub(crate) async fn make_tables(url: &str) -> Result<(), Failure> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let clock = Arc::new(ManualClock::at(Timestamp::from_micros(i64::try_from(now.as_micros())?)));
    Postgres::open(PostgresOptions::new(url), clock, &SeededRandom::new(1)).await?.close();
    let rooms = format!("insert into rooms (id) select 'room-' || n from generate_series(1, {ROOMS}) n");
    Ok(connect(url).await?.batch_execute(&rooms).await?)
}

/// Empties them, and begins with a clean slate in other respects.
pub(crate) async fn empty_tables(client: &Client) -> Result<(), Failure> {
    // Each by itself: `vacuum` cannot be part of a transaction.
    for text in ["truncate messages, message_ids", "vacuum rooms", "checkpoint"] {
        client.batch_execute(text).await?;
    }
    Ok(())
}
