//! Writes what the records of rooms changed: first everything that is invisible until a room names it, then the rooms.

use std::collections::{BTreeMap, HashMap};

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};
use scylla::value::MaybeUnset;

use super::ROOMS_AT_ONCE;
use super::room::{NewMessage, Place, Work};
use crate::counts;
use crate::db::{Db, Result, Writes};
use crate::state::slot_of;
use crate::store::Context;

/// Largest text of a message's row, in bytes. Larger ones are divided.
const TEXT_BYTES_MAX: usize = 256 << 10;
/// Parts of a large text that are written at the same time.
const CHUNKS_AT_ONCE: usize = 4;
/// Hours that a deleted room is taken out of at the same time.
const HOURS_AT_ONCE: usize = 16;

/// Writes the changed ones of some rooms of a partition of the log. Rows of several rooms that share a database partition go
/// together.
pub(super) async fn flush(context: &Context, part: i32, works: &[Work<'_>]) -> Result<()> {
    let db = &context.db;
    let mut writes: Vec<BoxFuture<'_, Result<()>>> = Vec::new();
    let changed = || works.iter().filter(|work| work.is_changed);
    for work in changed() {
        by_bucket(db, work, &mut writes);
        by_id(db, work, &mut writes);
        let state = &work.entry.state;
        if work.is_new && state.present {
            let values = (part, work.room, state.applied);
            writes.push(db.write("listing a room", &db.statements.set_room_name, values).boxed());
        }
        if work.is_cleared {
            writes.push(clear_hours(db, part, work).boxed());
            let values = (part, work.room, work.old_head, state.applied);
            writes.push(db.write("deleting a room", &db.statements.set_deleted_room, values).boxed());
        }
    }
    by_user(db, part, changed(), &mut writes);
    by_hour(db, part, changed(), &mut writes);
    at_once(writes, db.statements_max).await?;
    at_once(changed().map(|work| commit(context, part, work).boxed()).collect(), ROOMS_AT_ONCE).await?;
    if changed().any(|work| work.is_cleared) {
        context.cleanup.notify_one();
    }
    Ok(())
}

async fn at_once(writes: Vec<BoxFuture<'_, Result<()>>>, count: usize) -> Result<()> {
    stream::iter(writes).buffer_unordered(count).try_collect().await
}

fn by_bucket<'w>(db: &'w Db, work: &'w Work<'_>, writes: &mut Vec<BoxFuture<'w, Result<()>>>) {
    let statements = &db.statements;
    for messages in work.stored.chunk_by(|a, b| a.bucket == b.bucket) {
        let mut rows = Writes::default();
        for message in messages {
            let (send, seq) = (&message.send, message.seq);
            let is_large = send.text.len() > TEXT_BYTES_MAX;
            let (text, chunks) = if is_large { ("", Some(1)) } else { (send.text, None) };
            let username = MaybeUnset::from_option(send.username);
            let (kind, sent_at) = (send.kind as i8, send.timestamp.as_micros());
            let key = (work.room, message.bucket, seq, send.id, send.user, username, text);
            let (room, bucket, seq, id, user, username, text) = key;
            let chunks = MaybeUnset::<i32>::from_option(chunks);
            let values = (
                room,
                bucket,
                seq,
                id,
                user,
                username,
                text,
                chunks,
                kind,
                sent_at,
                message.received_at,
                seq,
            );
            rows.add(&statements.set_message, values, text.len() + 100);
            if is_large {
                writes.push(large_text(db, work.room, message).boxed());
            }
        }
        writes.push(db.write_all("writing messages", rows).boxed());
    }
}

async fn large_text(db: &Db, room: &str, message: &NewMessage<'_>) -> Result<()> {
    let mut rest = message.send.text;
    let mut parts: Vec<&str> = Vec::new();
    while !rest.is_empty() {
        let (part, after) =
            rest.split_at_checked(rest.floor_char_boundary(TEXT_BYTES_MAX)).unwrap_or((rest, ""));
        parts.push(part);
        rest = after;
    }
    let write = |(number, part)| {
        let values = (room, message.bucket, message.seq, number, part, message.seq);
        db.write("writing a large text", &db.statements.set_large_text, values)
    };
    let writing: Vec<_> = (0_i32..).zip(parts).map(write).collect();
    stream::iter(writing).buffer_unordered(CHUNKS_AT_ONCE).try_collect::<Vec<()>>().await.map(drop)
}

fn by_id<'w>(db: &'w Db, work: &'w Work<'_>, writes: &mut Vec<BoxFuture<'w, Result<()>>>) {
    let mut shards: HashMap<i16, Writes<'w>> = HashMap::new();
    for message in &work.stored {
        let (id, digest) = (message.send.id, message.digest.as_slice());
        let values = (work.room, message.shard, id, message.seq, message.received_at, digest, message.seq);
        shards.entry(message.shard).or_default().add(&db.statements.set_id, values, 100);
    }
    writes.extend(shards.into_values().map(|rows| db.write_all("writing ids", rows).boxed()));
}

fn by_user<'w>(
    db: &'w Db,
    part: i32,
    works: impl Iterator<Item = &'w Work<'w>>,
    writes: &mut Vec<BoxFuture<'w, Result<()>>>,
) {
    let statements = &db.statements;
    // The rooms, the spans of time and the first messages of a user have the same key.
    let mut users: HashMap<&str, Writes<'w>> = HashMap::new();
    let mut slots: HashMap<(&str, i64), Writes<'w>> = HashMap::new();
    for work in works {
        for message in &work.stored {
            let (user, seq, at) = (message.send.user, message.seq, message.received_at);
            let (room, bucket, id, slot) = (work.room, message.bucket, message.send.id, slot_of(at));
            match message.place {
                Place::First => {
                    let values = (user, at, room, seq, bucket, id, part, seq);
                    users.entry(user).or_default().add(&statements.set_user_first, values, 120);
                }
                Place::Slot { is_slot_new, is_room_new } => {
                    let values = (user, slot, at, room, seq, bucket, id, seq);
                    slots.entry((user, slot)).or_default().add(&statements.set_user_message, values, 120);
                    if is_room_new {
                        let rows = users.entry(user).or_default();
                        rows.add(&statements.set_user_room, (user, room, part, seq), 80);
                    }
                    if is_slot_new {
                        let rows = users.entry(user).or_default();
                        rows.add(&statements.set_user_slot, (user, slot, part, seq), 80);
                    }
                }
            }
        }
        for user in &work.new_members {
            let values = (user.as_str(), work.room, part, work.entry.state.applied);
            users.entry(user.as_str()).or_default().add(&statements.set_user_room, values, 80);
        }
    }
    let rows = users.into_values().chain(slots.into_values());
    writes.extend(rows.map(|rows| db.write_all("writing users' messages", rows).boxed()));
}

fn by_hour<'w>(
    db: &'w Db,
    part: i32,
    works: impl Iterator<Item = &'w Work<'w>>,
    writes: &mut Vec<BoxFuture<'w, Result<()>>>,
) {
    let statements = &db.statements;
    let mut hours: BTreeMap<i64, Writes<'w>> = BTreeMap::new();
    let mut listed: BTreeMap<i64, i64> = BTreeMap::new();
    for work in works {
        for ((hour, user), of_hour) in &work.changed_hour_users {
            let cell = counts::hour_cell(&of_hour.counts, of_hour.seq);
            let values = (*hour, part, work.room, user.as_str(), cell, of_hour.seq);
            hours.entry(*hour).or_default().add(&statements.set_hour_user, values, 60);
        }
        for hour in &work.new_hours {
            let applied = listed.entry(*hour).or_default();
            *applied = work.entry.state.applied.max(*applied);
        }
    }
    writes.extend(hours.into_values().map(|rows| db.write_all("counting an hour", rows).boxed()));
    for (hour, applied) in listed {
        let values = (part, hour, applied);
        writes.push(db.write("listing an hour", &statements.set_hour, values).boxed());
    }
}

/// Takes a deleted room out of the counts of hours.
async fn clear_hours(db: &Db, part: i32, work: &Work<'_>) -> Result<()> {
    let hours = db.rows::<(i64,)>("reading a room's hours", &db.statements.room_hours, (work.room,)).await?;
    let applied = work.entry.state.applied;
    let remove = |(hour,)| {
        let values = (applied, hour, part, work.room);
        db.write("clearing an hour", &db.statements.remove_hour_room, values)
    };
    let removing: Vec<_> = hours.into_iter().map(remove).collect();
    stream::iter(removing).buffer_unordered(HOURS_AT_ONCE).try_collect::<Vec<()>>().await.map(drop)
}

/// Kinds of rows that go with a deleted room: members, senders, hours. Its buckets go when they are cleaned up.
const CLEARED_KINDS: [i8; 3] = [1, 2, 3];

/// Makes everything visible at once, in one atomic batch to the room's partition.
async fn commit(context: &Context, part: i32, work: &Work<'_>) -> Result<()> {
    let db = &context.db;
    let (statements, room, state) = (&db.statements, work.room, &work.entry.state);
    let at = state.applied;
    let mut rows = Writes::default();
    rows.add(&statements.set_room, (at, state, room), 300);
    if work.is_cleared {
        // No batch that writes rows of a kind has a deletion of it: that would win over rows with the same timestamp.
        CLEARED_KINDS.iter().for_each(|kind| rows.add(&statements.remove_kind, (at, room, *kind), 0));
        return context.commit("writing a room", part, rows).await;
    }
    for (user, mark) in &work.changed_members {
        match mark {
            Some(mark) => {
                rows.add(&statements.set_member, (room, user.as_str(), mark.seq, mark.rank, at), 100)
            }
            None => rows.add(&statements.remove_member, (at, room, user.as_str()), 80),
        }
    }
    for (user, counts) in &work.changed_senders {
        rows.add(&statements.set_sender, (room, user.as_str(), counts::cell(counts), at), 60);
    }
    if !work.stored.is_empty() {
        for (name, bucket) in &work.changed_buckets {
            let values = (room, *name, bucket.kept, bucket.first_at, at);
            rows.add(&statements.set_bucket, values, 100);
        }
    }
    for hour in &work.new_hours {
        rows.add(&statements.set_room_hour, (room, *hour, at), 60);
    }
    context.commit("writing a room", part, rows).await
}
