//! Erases a user from the rooms of a partition of the log.
//!
//! Messages are removed first; then each room changes in one step; then ids are removed, and the entries that led here get ten
//! minutes to live. So a repeat, also one by a server that lost the partition, finds the same messages and writes the same.
//! An id is missing only where the room says already that its message is gone. Rows of messages that have expired, and are
//! there still, go, too; they are not counted.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt, stream};

use super::load::read_state;
use super::{Failure, Part};
use crate::db::{Db, PAGE_ROWS, Result, Writes};
use crate::read::{newest, oldest};
use crate::state::{self, RoomState, hour_of, slot_of};
use crate::store::Context;

/// Statements at the same time.
const AT_ONCE: usize = 16;
/// Attempts to change a room that somebody else is changing.
const TRIES: usize = 5;
const WHAT: &str = "erasing a user";

/// Where a message of the user is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    seq: i64,
    bucket: i64,
    received_at: i64,
    id: String,
    /// Whether it is listed among the user's first ones of the room.
    is_first: bool,
}

/// Erases a user's messages and memberships. Returns how many messages there were.
pub(super) async fn erase(
    context: &Context,
    at: Part,
    user: &str,
    seq: i64,
) -> std::result::Result<u64, Failure> {
    let (db, part) = (&context.db, at.number);
    let (mut places, slots, mut rooms) = places(db, part, user, seq).await?;
    let listed = db.stream::<(String, i32)>(WHAT, &db.statements.user_rooms, (user, ""), PAGE_ROWS).await?;
    let listed = listed.try_filter_map(async |(room, of)| Ok((of == part).then_some(room)));
    let listed: Vec<String> = listed.try_collect().await?;
    rooms.extend(listed.iter().cloned());
    let mut erased = 0;
    for room in rooms {
        let places = places.remove(&room).unwrap_or_default();
        erased += erase_from(context, at, user, &room, places, seq).await?;
    }
    let mut lists = Writes::default();
    for slot in slots {
        lists.add(&db.statements.expire_user_slot, (user, slot, part, seq), 80);
    }
    for room in listed {
        lists.add(&db.statements.expire_user_room, (user, room, part, seq), 80);
    }
    db.write_all(WHAT, lists).await?;
    Ok(erased)
}

/// The user's messages before the record `seq` that no other record erased, by room; the slots they are in; and the rooms of
/// the partition that first messages are in.
async fn places(
    db: &Db,
    part: i32,
    user: &str,
    seq: i64,
) -> Result<(BTreeMap<String, BTreeSet<Place>>, BTreeSet<i64>, BTreeSet<String>)> {
    let statements = &db.statements;
    let all = (user, i64::MIN, i64::MAX);
    let slots = db.stream::<(i64, i32)>(WHAT, &statements.user_slots, all, PAGE_ROWS).await?;
    let slots: Vec<(i64, i32)> = slots.try_collect().await?;
    let slots: BTreeSet<i64> =
        slots.into_iter().filter(|(_, of)| *of == part).map(|(slot, _)| slot).collect();
    let mut places: BTreeMap<String, BTreeSet<Place>> = BTreeMap::new();
    let mut rooms = BTreeSet::new();
    for slot in std::iter::once(None).chain(slots.iter().map(Some)) {
        let mut rows = listed(db, user, slot.copied()).await?;
        let is_first = slot.is_none();
        while let Some((received_at, room, of, bucket, id, erased, in_part)) =
            rows.next().await.transpose()?
        {
            // What is left of a place that expired: it leads nowhere.
            let Some(bucket) = bucket else { continue };
            if in_part == Some(part) && !rooms.contains(&room) {
                rooms.insert(room.clone());
            }
            if of < seq && erased.is_none_or(|by| by == seq) {
                let id = id.unwrap_or_default();
                let place = Place { seq: of, bucket, received_at, id, is_first };
                places.entry(room).or_default().insert(place);
            }
        }
    }
    Ok((places, slots, rooms))
}

/// Time, room, number, bucket and id of a message, what erased it, and the room's partition where it is known.
type Listed = (i64, String, i64, Option<i64>, Option<String>, Option<i64>, Option<i32>);

/// The user's messages in a slot, or the first ones of the rooms.
async fn listed(db: &Db, user: &str, slot: Option<i64>) -> Result<BoxStream<'static, Result<Listed>>> {
    type InSlot = (i64, String, i64, Option<i64>, Option<String>, Option<i64>);
    let statements = &db.statements;
    let Some(slot) = slot else {
        return db.stream::<Listed>(WHAT, &statements.user_first_ids, (user,), PAGE_ROWS).await;
    };
    let rows = db.stream::<InSlot>(WHAT, &statements.user_message_ids, (user, slot), PAGE_ROWS).await?;
    let rows = rows.map_ok(|(at, room, seq, bucket, id, erased)| (at, room, seq, bucket, id, erased, None));
    Ok(rows.boxed())
}

async fn erase_from(
    context: &Context,
    at: Part,
    user: &str,
    room: &str,
    mut places: BTreeSet<Place>,
    seq: i64,
) -> std::result::Result<u64, Failure> {
    let db = &context.db;
    let mut tries = 0;
    let (ids, part, erased) = loop {
        let Some(state) = read_state(db, at, room).await? else { return Ok(0) };
        let part = state.part;
        places.retain(|place| place.seq > state.floor && place.seq <= state.head);
        let shards = |id| state.shards_of(id, context.options.bucket.first_ids);
        let ids: Vec<(i16, String, i64)> = places
            .iter()
            .flat_map(|place| shards(&place.id).map(|shard| (shard, place.id.clone(), place.seq)))
            .collect();
        if state.applied >= seq {
            // It was cut off behind the room. What led to the messages is there for a while, and also what led to expired ones.
            break (ids, part, places.len() as u64);
        }
        remove_messages(db, room, user, &places, (part, seq)).await?;
        tries += 1;
        match change(context, user, room, &places, state, seq).await {
            // Somebody else has just done it.
            Err(Failure::Overtaken) if tries < TRIES => {}
            done => break (ids, part, done?),
        }
    };
    // With the message's own number: where it had expired, its id may be that of a later message by now.
    let remove = |(shard, id, of)| db.write(WHAT, &db.statements.remove_id, (of, room, shard, id));
    let removing: Vec<_> = ids.into_iter().map(remove).collect();
    stream::iter(removing).buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
    expire_places(db, user, room, &places, (part, seq)).await?;
    Ok(erased)
}

/// Gives the entries that led to removed messages ten minutes to live.
async fn expire_places(
    db: &Db,
    user: &str,
    room: &str,
    places: &BTreeSet<Place>,
    (part, seq): (i32, i64),
) -> Result<()> {
    let mut slots: BTreeMap<Option<i64>, Writes<'_>> = BTreeMap::new();
    for Place { seq: of, bucket, received_at, id, is_first } in places {
        let (slot, id) = (slot_of(*received_at), id.as_str());
        if *is_first {
            let values = (user, *received_at, room, *of, *bucket, id, part, seq, seq);
            slots.entry(None).or_default().add(&db.statements.expire_user_first, values, 80);
        } else {
            let values = (user, slot, *received_at, room, *of, *bucket, id, seq, seq);
            slots.entry(Some(slot)).or_default().add(&db.statements.expire_user_message, values, 80);
        }
    }
    let expiring: Vec<_> = slots.into_values().map(|rows| db.write_all(WHAT, rows)).collect();
    stream::iter(expiring).buffer_unordered(AT_ONCE).try_collect().await
}

/// Removes messages and their counts by hours.
async fn remove_messages(
    db: &Db,
    room: &str,
    user: &str,
    places: &BTreeSet<Place>,
    (part, at): (i32, i64),
) -> Result<()> {
    let statements = &db.statements;
    let mut buckets: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    for place in places {
        buckets.entry(place.bucket).or_default().push(place.seq);
    }
    for (bucket, seqs) in &buckets {
        let (mut rows, mut texts) = (Writes::default(), Writes::default());
        for seq in seqs {
            rows.add(&statements.remove_message, (at, room, bucket, seq), 60);
            texts.add(&statements.remove_large_text, (at, room, bucket, seq), 60);
        }
        db.write_all(WHAT, rows).await?;
        db.write_all(WHAT, texts).await?;
    }
    let hours: BTreeSet<i64> = places.iter().map(|place| hour_of(place.received_at)).collect();
    let remove = |hour| db.write(WHAT, &statements.remove_hour_user, (at, hour, part, room, user));
    let removing: Vec<_> = hours.into_iter().map(remove).collect();
    stream::iter(removing).buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
    Ok(())
}

/// Lowers the ranks of members that have read some of a user's messages. A batch takes no more than 65,535 rows, so where they are
/// many, most are written at once, and only the rest is returned. Until the room is changed, their unread counts are too high.
///
/// What this record has written already, before it was cut, stays as it is. Whoever is ahead has written later numbers, which
/// win.
async fn change_ranks<'a>(
    context: &'a Context,
    room: &'a str,
    user: &str,
    seqs: &[i64],
    seq: i64,
) -> Result<Writes<'a>> {
    let (db, statements) = (&context.db, &context.db.statements);
    let mut ranks = Writes::default();
    let mut members =
        db.stream::<(String, i64, i64, Option<i64>)>(WHAT, &statements.ranks, (room,), PAGE_ROWS).await?;
    while let Some((name, mark, rank, written)) = members.next().await.transpose()? {
        let read = seqs.partition_point(|of| *of <= mark) as i64;
        if name == user || read == 0 {
            continue;
        }
        // Written again: it may be on one replica only.
        let rank = if written == Some(seq) { rank } else { rank - read };
        if ranks.len() >= context.options.bucket.ranks {
            db.write_all(WHAT, std::mem::take(&mut ranks)).await?;
        }
        ranks.add(&statements.set_member, (room, name, mark, rank, seq), 100);
    }
    Ok(ranks)
}

/// Changes the room in one step. Returns the number of messages that it held of the user.
async fn change(
    context: &Context,
    user: &str,
    room: &str,
    places: &BTreeSet<Place>,
    mut state: RoomState,
    seq: i64,
) -> std::result::Result<u64, Failure> {
    let (db, statements) = (&context.db, &context.db.statements);
    let kept = places.iter().filter(|place| place.seq > state.removed);
    let seqs: Vec<i64> = kept.map(|place| place.seq).collect();
    let gone = seqs.len() as i64;
    let member = db.row::<(RoomState, i64, i64)>(WHAT, &statements.member, (room, user)).await?;
    if gone == 0 && member.is_none() {
        return Ok(0);
    }
    let mut rows = Writes::default();
    rows.add(&statements.remove_member, (seq, room, user), 80);
    if gone > 0 {
        rows.add(&statements.remove_sender, (seq, room, user), 80);
        change_buckets(db, room, (places, state.removed), seq, &mut rows).await?;
        rows.append(change_ranks(context, room, user, &seqs, seq).await?);
        state.kept -= gone;
        state.senders -= 1;
        let first = oldest(db, room, &state).await?;
        let last = newest(db, room, &state).await?;
        let before_first = match first {
            Some((first, _)) => seqs.iter().rev().find(|of| **of < first).copied(),
            None => Some(state.head),
        };
        state.removed = state.removed.max(before_first.unwrap_or_default());
        (state.first_at, state.last_at) = (first.map(|(_, at)| at), last.map(|(_, at)| at));
        if first.is_none() {
            // What others wrote has expired, and nothing is left here that would take its rows along.
            state.close_bucket();
            rows.add(&statements.remove_room_hours, (seq, room, i64::MAX), 60);
        }
    }
    let is_emptied = gone > 0 && state.first_at.is_none();
    // Everything was read as of one record, or else it was of this one, by somebody who is ahead.
    if state::read(db, room).await?.is_none_or(|now| now.applied != state.applied) {
        return Err(Failure::Overtaken);
    }
    state.members -= i64::from(member.is_some());
    state.changes += 1;
    state.applied = seq;
    if is_emptied {
        db.write(WHAT, &statements.set_deleted_room, (state.part, room, state.head, seq)).await?;
    }
    rows.add(&statements.set_room, (seq, &state, room), 300);
    context.commit(WHAT, state.part, rows).await?;
    context.totals.add(-gone, 0);
    if is_emptied {
        context.cleanup.notify_one();
    }
    Ok(gone.unsigned_abs())
}

async fn change_buckets<'w>(
    db: &'w Db,
    room: &'w str,
    (places, removed): (&BTreeSet<Place>, i64),
    seq: i64,
    rows: &mut Writes<'w>,
) -> Result<()> {
    let mut gone: BTreeMap<i64, i64> = BTreeMap::new();
    for place in places.iter().filter(|place| place.seq > removed) {
        *gone.entry(place.bucket).or_default() += 1;
    }
    for (bucket, gone) in gone {
        let found = db.row::<(i64, i64, i64)>(WHAT, &db.statements.bucket_of, (room, bucket)).await?;
        if let Some((name, kept, first_at)) = found.filter(|(name, ..)| *name == bucket) {
            rows.add(&db.statements.set_bucket, (room, name, kept - gone, first_at, seq), 100);
        }
    }
    Ok(())
}
