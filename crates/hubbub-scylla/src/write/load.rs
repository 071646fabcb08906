//! Loads what the records of a room are decided by: exactly as of the record that its state names, or not at all.

use std::collections::{BTreeSet, HashMap};

use futures_util::future::{try_join, try_join_all};
use hubbub_core::invariant::saturate;
use hubbub_core::{RoomChange, RoomOp};

use super::ids::{self, KnownIds, UsedIds};
use super::room::{Bucket, HourUser, RoomEntry, Work};
use super::{Failure, Part, Record};
use crate::counts::{self, HourSenderRow, SenderRow};
use crate::db::{Db, Result};
use crate::state::{self, Counts, Mark, RoomState, hour_of};
use crate::store::Context;

/// Names in one statement. ScyllaDB allows 100.
const NAMES_PER_READ: usize = 90;
/// Attempts to read a room that somebody else is writing.
const TRIES: usize = 5;

/// A room, and everything its records may touch. Those that are in it already are left to be skipped.
pub(super) async fn load<'a>(
    context: &Context,
    part: Part,
    room: &'a str,
    records: &[&Record<'a>],
    mut cached: Option<RoomEntry>,
) -> std::result::Result<Work<'a>, Failure> {
    let db = &context.db;
    for _ in 0..TRIES {
        let mut entry = match cached.take() {
            Some(entry) => entry,
            None => match read_state(db, part, room).await? {
                Some(state) => RoomEntry::new(state),
                None => RoomEntry::empty(RoomState::unknown(part.number)),
            },
        };
        let applied = entry.state.applied;
        let records: Vec<&Record<'a>> =
            records.iter().copied().filter(|record| record.seq > applied).collect();
        if records.is_empty() {
            return Ok(Work::new(room, entry));
        }
        let (state, known) = (entry.state.clone(), entry.ids.take());
        let ids = load_ids(context, room, &state, known, &records);
        let (people, (known, used_ids)) = try_join(load_people(db, room, &records, &mut entry), ids).await?;
        entry.ids = known;
        let mut is_read = people || used_ids.is_some();
        let mut work = Work::new(room, entry);
        work.used_ids = used_ids.unwrap_or_default();
        is_read |= load_bucket(db, room, &mut work).await?;
        is_read |= load_ranks(db, &mut work, &records).await?;
        // What is cached is of the same record as the state.
        if !is_read {
            return Ok(work);
        }
        // Somebody may be ahead: then what was read is of a later record than the state. An id that is missing may be gone
        // since, together with a message that is still in the state.
        let stored = state::read(db, room).await?.map_or(0, |state| state.applied);
        if stored == applied {
            return Ok(work);
        }
    }
    Err(Failure::Overtaken)
}

/// The state of a room that is to be changed, and is not in memory. A change that was not confirmed is found if a replica has it
/// that answers; then all rows of the room are brought to all replicas, before anything follows from some of them.
pub(super) async fn read_state(db: &Db, part: Part, room: &str) -> Result<Option<RoomState>> {
    let row = db.row_of_all::<(Option<RoomState>,)>("reading a room", &db.statements.room, (room,)).await?;
    let state = row.and_then(|(state,)| state);
    if state.as_ref().is_some_and(|state| state.applied > part.confirmed) {
        db.repair("repairing a room", &db.statements.whole_room, (room,)).await;
    }
    Ok(state)
}

/// All ids of a room, if they are known or few, and which of those of new messages are used: `None` = nothing was read.
async fn load_ids(
    context: &Context,
    room: &str,
    state: &RoomState,
    mut known: Option<KnownIds>,
    records: &[&Record<'_>],
) -> Result<(Option<KnownIds>, Option<UsedIds>)> {
    let ids = || {
        records.iter().filter_map(|record| match &record.op {
            RoomOp::Send(send) => Some(send.id),
            RoomOp::Change(_) => None,
        })
    };
    let mut is_read = false;
    if known.is_none() && ids().next().is_some() {
        known = KnownIds::read(context, room, state).await?;
        is_read = true;
    }
    let wanted: Vec<&str> =
        ids().filter(|id| known.as_ref().is_none_or(|known| known.may_have(id))).collect();
    if wanted.is_empty() {
        return Ok((known, is_read.then(UsedIds::new)));
    }
    let used = ids::look_up(context, room, state, wanted.into_iter()).await?;
    Ok((known, Some(used)))
}

/// Members, senders and their counts of the hour, where they are not known. Returns whether something was read.
async fn load_people(db: &Db, room: &str, records: &[&Record<'_>], entry: &mut RoomEntry) -> Result<bool> {
    let mut members: BTreeSet<&str> = BTreeSet::new();
    let mut senders: BTreeSet<&str> = BTreeSet::new();
    let mut of_hour: BTreeSet<&str> = BTreeSet::new();
    let mut last = entry.state.last_received;
    for record in records {
        match &record.op {
            RoomOp::Send(send) => {
                members.insert(send.user);
                senders.insert(send.user);
                let at = record.position.appended_at.as_micros();
                let at = last.map_or(at, |last| last.max(at));
                last = Some(at);
                // In a later hour than the room's nobody was counted yet.
                if Some(hour_of(at)) == entry.state.hour {
                    of_hour.insert(send.user);
                }
            }
            RoomOp::Change(change) => {
                members.extend(change.by);
                if let RoomChange::AddMember { user, .. }
                | RoomChange::RemoveMember { user, .. }
                | RoomChange::MarkRead { user, .. } = change.what
                {
                    members.insert(user);
                }
            }
        }
    }
    let hour = entry.state.hour.unwrap_or_default();
    members.retain(|user| !entry.members.contains_key(*user));
    senders.retain(|user| !entry.senders.contains_key(*user));
    let has_members = entry.state.members > 0 && !members.is_empty();
    let has_senders = entry.state.senders > entry.senders_known && !senders.is_empty();
    let members_found =
        async { if has_members { read_members(db, room, &members).await } else { Ok(HashMap::new()) } };
    let senders_found =
        async { if has_senders { read_senders(db, room, &senders).await } else { Ok(HashMap::new()) } };
    let (members_found, senders_found) = try_join(members_found, senders_found).await?;
    entry.members.extend(members_found);
    entry.senders_known += saturate::<_, i64>(senders_found.len());
    entry.senders.extend(senders_found);
    // Where there is no member, none needs to be known as such.
    for user in members.into_iter().filter(|_| has_members) {
        entry.members.entry(user.to_owned()).or_default();
    }
    for user in senders {
        entry.senders.entry(user.to_owned()).or_default();
    }
    // Whoever wrote nothing in this hour is not counted in it.
    of_hour.retain(|user| {
        let counts = entry.senders.get(*user).copied().flatten();
        counts.is_some_and(|counts| hour_of(counts.last_at) == hour)
            && !entry.hour_users.contains_key(&(hour, (*user).to_owned()))
    });
    for (user, counts) in read_hour_users(db, (hour, entry.state.part), room, &of_hour).await? {
        entry.hour_users.insert((hour, user), Some(counts));
    }
    Ok(has_members || has_senders || !of_hour.is_empty())
}

async fn read_members(db: &Db, room: &str, users: &BTreeSet<&str>) -> Result<HashMap<String, Option<Mark>>> {
    let users: Vec<&str> = users.iter().copied().collect();
    let reads = users.chunks(NAMES_PER_READ).map(async |some| {
        db.rows::<(String, i64, i64)>("reading members", &db.statements.members_of, (room, some)).await
    });
    let rows = try_join_all(reads).await?.into_iter().flatten();
    Ok(rows.map(|(user, seq, rank)| (user, Some(Mark { seq, rank }))).collect())
}

pub(super) async fn read_senders(
    db: &Db,
    room: &str,
    users: &BTreeSet<&str>,
) -> Result<HashMap<String, Option<Counts>>> {
    let what = "reading senders";
    let users: Vec<&str> = users.iter().copied().collect();
    let reads = users.chunks(NAMES_PER_READ).map(async |some| {
        let statement = &db.statements.senders_of;
        db.rows::<SenderRow>(what, statement, (room, some)).await
    });
    let rows = try_join_all(reads).await?.into_iter().flatten();
    rows.map(|(user, cell, texts, joins, leaves, first_at, last_at)| {
        let row = (cell, texts, joins, leaves, first_at, last_at);
        Ok((user, Some(counts::read_some(what, &row)?)))
    })
    .collect()
}

pub(super) async fn read_hour_users(
    db: &Db,
    (hour, part): (i64, i32),
    room: &str,
    users: &BTreeSet<&str>,
) -> Result<Vec<(String, HourUser)>> {
    let what = "reading an hour";
    let users: Vec<&str> = users.iter().copied().collect();
    let reads = users.chunks(NAMES_PER_READ).map(async |some| {
        let statement = &db.statements.hour_users_of;
        let values = (hour, part, room, some);
        db.rows::<HourSenderRow>(what, statement, values).await
    });
    let rows = try_join_all(reads).await?.into_iter().flatten();
    rows.map(|(user, cell, texts, joins, leaves, first_at, last_at, seq)| {
        let row = (cell, texts, joins, leaves, first_at, last_at);
        let (counts, seq) = counts::read_hour(what, &row, seq)?;
        Ok((user, HourUser { counts, seq }))
    })
    .collect()
}

/// The bucket that is being filled. Returns whether something was read.
async fn load_bucket(db: &Db, room: &str, work: &mut Work<'_>) -> Result<bool> {
    let state = &work.entry.state;
    if state.bucket == 0 {
        return Ok(false);
    }
    let bucket = state.bucket;
    if let Some((_, known)) = work.entry.bucket.filter(|(name, _)| *name == bucket) {
        work.changed_buckets.insert(bucket, known);
        return Ok(false);
    }
    let row = db.row::<(i64, i64, i64)>("reading a bucket", &db.statements.bucket_of, (room, bucket)).await?;
    if let Some((_, kept, first_at)) = row.filter(|(name, ..)| *name == bucket) {
        work.changed_buckets.insert(bucket, Bucket { kept, first_at });
    }
    Ok(true)
}

/// How many kept messages are up to the numbers of new marks. Returns whether something was read.
async fn load_ranks(db: &Db, work: &mut Work<'_>, records: &[&Record<'_>]) -> Result<bool> {
    let mut wanted = BTreeSet::new();
    for record in records {
        let RoomOp::Change(change) = &record.op else { continue };
        let RoomChange::MarkRead { user, seq, .. } = change.what else { continue };
        let Some(Some(mark)) = work.entry.members.get(user) else { continue };
        let read = work.entry.state.kept_until(mark.rank);
        work.ranks.insert(mark.seq, read);
        let seq: i64 = saturate(seq);
        if seq > work.entry.state.removed && seq < work.entry.state.head {
            wanted.insert(seq);
        }
    }
    wanted.retain(|seq| !work.ranks.contains_key(seq));
    for seq in &wanted {
        let kept = kept_until(db, work.room, &work.entry.state, *seq).await?;
        work.ranks.insert(*seq, kept);
    }
    Ok(!wanted.is_empty())
}

/// Kept messages of a room up to a number that is not beyond its head.
async fn kept_until(db: &Db, room: &str, state: &RoomState, seq: i64) -> Result<i64> {
    let what = "counting what is read";
    let limit = i32::MAX;
    let before = (room, seq.saturating_add(1), limit);
    let mut buckets =
        db.rows::<(i64, i64, i64)>(what, &db.statements.buckets_before, before).await?.into_iter();
    let Some((bucket, ..)) = buckets.next() else { return Ok(0) };
    let between = (room, bucket, state.removed, seq);
    let count = db.row::<(i64,)>(what, &db.statements.count_between, between).await?;
    // Those of a deleted room may be listed still.
    let before = buckets.take_while(|(bucket, ..)| *bucket > state.floor);
    Ok(before.map(|(_, kept, _)| kept).sum::<i64>() + count.map_or(0, |(count,)| count))
}
