//! Removes messages of a room that have outlived its retention: from all counts at once, from the tables by whole buckets.
//!
//! Retention is a record of the log ([`RoomChange::ExpireMessages`](hubbub_core::RoomChange::ExpireMessages)), so a room as of
//! a record still follows from the records alone. What the record removes depends on its own words and on the room before it,
//! on no clock and no setting; so repeats, and a committer that lost its partition, write the same with the same timestamps.
//! It only hides (`removed` moves): what must be read to come to the same result is there until the room says that it is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::{StreamExt, TryStreamExt, stream};
use hubbub_core::invariant::broken;
use hubbub_core::{MessageType, Outcome, Refusal, Timestamp};

use super::load::{read_hour_users, read_senders, read_state};
use super::room::HourUser;
use super::{Failure, Part};
use crate::counts;
use crate::db::{Db, DbError, PAGE_ROWS, Result, Writes};
use crate::read::before_bucket_of;
use crate::state::{self, Counts, RoomState, hour_of, slot_of};
use crate::store::Context;

/// Most messages that one record removes. Servers that work together must agree on it.
const MESSAGES_MAX: i64 = 20_000;
/// Buckets in one read.
const BUCKETS: i32 = 64;
/// Statements at the same time.
const AT_ONCE: usize = 16;
/// What rows of senders are, in the table of rooms.
const SENDERS: i8 = 2;
/// Attempts to read a room that somebody else is changing.
const TRIES: usize = 5;
const WHAT: &str = "removing expired messages";

/// Time, room, number and bucket of a message as a user's list has them, and what erased it. Without a bucket it is what is
/// left of a place that expired.
pub(super) type ListedRow = (i64, String, i64, Option<i64>, Option<i64>);

/// What is to go.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expiry {
    /// Messages received before.
    pub(super) before: Timestamp,
    /// Only if the room's own retention is this one.
    pub(super) own_retention_s: Option<i64>,
}

/// The oldest messages of a room, which are to go.
#[derive(Debug, Default)]
struct Gone {
    messages: i64,
    /// The newest of them.
    last: i64,
    by_user: BTreeMap<String, Counts>,
    by_hour: BTreeMap<i64, BTreeMap<String, Counts>>,
    /// Buckets that lose some: name, messages that stay, time of the first message.
    buckets: Vec<(i64, i64, i64)>,
    /// The oldest message that stays: its time, and its bucket.
    first: Option<(i64, i64)>,
}

/// Removes what has expired, a bounded number.
pub(super) async fn expire(
    context: &Context,
    part: Part,
    room: &str,
    Expiry { before, own_retention_s }: Expiry,
    seq: i64,
) -> std::result::Result<Outcome, Failure> {
    let db = &context.db;
    for _ in 0..TRIES {
        let state = read_state(db, part, room).await?;
        let Some(state) = state.filter(|state| state.present) else {
            return Ok(Outcome::Refused(Refusal::UnknownRoom));
        };
        if state.applied >= seq {
            return Ok(Outcome::Accepted);
        }
        let has_expired = state.first_at.is_some_and(|first| first < before.as_micros());
        if !has_expired || state.retention_s != own_retention_s {
            return Ok(Outcome::Changed { changed: false });
        }
        let gone = collect(db, room, &state, before.as_micros()).await?;
        let counts = Remaining::read(db, part.number, room, &state, &gone, seq).await?;
        // Everything was read as of one record: whoever is ahead may have removed some of it.
        if state::read(db, room).await?.is_none_or(|now| now.applied != state.applied) {
            continue;
        }
        if counts.is_unlisted {
            broken("a sender's messages are listed by user");
        }
        write(context, part.number, room, state, &gone, counts, seq).await?;
        return Ok(Outcome::Changed { changed: true });
    }
    Err(Failure::Overtaken)
}

/// Reads the messages that are to go, and the first one that stays.
async fn collect(db: &Db, room: &str, state: &RoomState, before: i64) -> Result<Gone> {
    let statements = &db.statements;
    let mut gone = Gone::default();
    let mut after = before_bucket_of(db, room, state.removed.saturating_add(1), state.floor).await?;
    loop {
        let buckets =
            db.rows::<(i64, i64, i64)>(WHAT, &statements.buckets_after, (room, after, BUCKETS)).await?;
        let Some((last, ..)) = buckets.last() else { return Ok(gone) };
        after = *last;
        for (bucket, kept, first_at) in buckets.into_iter().filter(|(_, kept, _)| *kept > 0) {
            let before_bucket = gone.messages;
            let values = (room, bucket, state.removed, state.head);
            let mut rows = db
                .stream::<(i64, String, i8, i64)>(WHAT, &statements.message_counts, values, PAGE_ROWS)
                .await?;
            while let Some((seq, user, kind, at)) = rows.try_next().await? {
                if at >= before || gone.messages >= MESSAGES_MAX {
                    gone.first = Some((at, bucket));
                    break;
                }
                gone.add(seq, user, kind, at, room)?;
            }
            let of_bucket = gone.messages - before_bucket;
            if of_bucket > 0 {
                gone.buckets.push((bucket, kept - of_bucket, first_at));
            }
            if gone.first.is_some() {
                return Ok(gone);
            }
        }
    }
}

impl Gone {
    fn add(&mut self, seq: i64, user: String, kind: i8, at: i64, room: &str) -> Result<()> {
        let damaged = || DbError::new(WHAT, format!("message {seq} of {room} has the type {kind}"));
        let kind = u8::try_from(kind).ok().and_then(MessageType::from_u8).ok_or_else(damaged)?;
        self.messages += 1;
        self.last = seq;
        let of_hour = self.by_hour.entry(hour_of(at)).or_default();
        of_hour.entry(user.clone()).or_insert_with(|| Counts::none(at)).add(kind, at);
        self.by_user.entry(user).or_insert_with(|| Counts::none(at)).add(kind, at);
        Ok(())
    }

    /// The hour of the oldest message that stays; those before it have nothing left.
    fn first_hour(&self) -> Option<i64> {
        self.first.map(|(at, _)| hour_of(at))
    }
}

/// Counts without what is to go. `None` = nothing is left.
#[derive(Debug, Default)]
struct Remaining {
    senders: BTreeMap<String, Option<Counts>>,
    /// Of the hour that keeps some of its messages.
    hour: BTreeMap<String, Option<Counts>>,
    /// Whether a sender's first remaining message was not found: a broken invariant, unless somebody is ahead.
    is_unlisted: bool,
}

impl Remaining {
    async fn read(db: &Db, part: i32, room: &str, state: &RoomState, gone: &Gone, seq: i64) -> Result<Self> {
        let users: BTreeSet<&str> = gone.by_user.keys().map(String::as_str).collect();
        let counted = read_senders(db, room, &users).await?;
        let left = counted.into_iter().filter_map(|(user, counts)| {
            let of_user = gone.by_user.get(&user)?;
            Some((user, counts.filter(|counts| counts.total() > of_user.total())))
        });
        let left: Vec<(String, Option<Counts>)> = left.collect();
        let is_unlisted = AtomicBool::new(false);
        let reading = left.into_iter().map(async |(user, counts)| {
            let of_user = gone.by_user.get(&user).copied();
            let Some((counts, of_user)) = counts.zip(of_user) else { return Ok((user, None)) };
            let first_at = first_message(db, part, room, state, &user, (gone.last, of_user.last_at)).await?;
            is_unlisted.fetch_or(first_at.is_none(), Ordering::Relaxed);
            Ok::<_, DbError>((user, Some(counts.without(&of_user, first_at.unwrap_or(counts.last_at)))))
        });
        let reading: Vec<_> = reading.collect();
        let senders = stream::iter(reading).buffer_unordered(AT_ONCE).try_collect::<BTreeMap<_, _>>().await?;
        let is_unlisted = is_unlisted.load(Ordering::Relaxed);
        let mut remaining = Self { senders, hour: BTreeMap::new(), is_unlisted };
        if let Some((hour, of_hour)) = gone.first_hour().and_then(|hour| gone.by_hour.get_key_value(&hour)) {
            remaining.read_hour(db, (*hour, part), room, of_hour, seq).await?;
        }
        Ok(remaining)
    }

    async fn read_hour(
        &mut self,
        db: &Db,
        (hour, part): (i64, i32),
        room: &str,
        gone: &BTreeMap<String, Counts>,
        seq: i64,
    ) -> Result<()> {
        let users: BTreeSet<&str> = gone.keys().map(String::as_str).collect();
        let mut counted: BTreeMap<String, HourUser> =
            read_hour_users(db, (hour, part), room, &users).await?.into_iter().collect();
        for (user, of_user) in gone {
            let left = match counted.remove(user) {
                // Somebody is ahead.
                Some(stored) if stored.seq > seq => continue,
                // An attempt at this record that was cut.
                Some(stored) if stored.seq == seq => Some(stored.counts),
                Some(stored) if stored.counts.total() > of_user.total() => {
                    let first_at = self.senders.get(user).copied().flatten().map(|left| left.first_at);
                    Some(stored.counts.without(of_user, first_at.unwrap_or(stored.counts.last_at)))
                }
                _ => None,
            };
            self.hour.insert(user.clone(), left);
        }
        Ok(())
    }
}

/// When the user's first message in the room behind the number `last` was received, which was received at `at` or later. It
/// may be listed among the user's first ones of the room, or in its span of time.
async fn first_message(
    db: &Db,
    part: i32,
    room: &str,
    state: &RoomState,
    user: &str,
    (last, at): (i64, i64),
) -> Result<Option<i64>> {
    let statements = &db.statements;
    let is_it = |(_, of, seq, bucket, erased): &ListedRow| {
        of == room && *seq > last && *seq <= state.head && bucket.is_some() && erased.is_none()
    };
    let mut firsts =
        db.stream::<ListedRow>(WHAT, &statements.user_firsts_from, (user, at), PAGE_ROWS).await?;
    let mut first = None;
    while let Some(row) = firsts.try_next().await? {
        if is_it(&row) {
            first = Some(row.0);
            break;
        }
    }
    let slots =
        db.stream::<(i64, i32)>(WHAT, &statements.user_slots_from, (user, slot_of(at)), PAGE_ROWS).await?;
    let mut slots = slots.try_filter_map(|(slot, of)| std::future::ready(Ok((of == part).then_some(slot))));
    while let Some(slot) = slots.try_next().await? {
        let values = (user, slot, at);
        let mut rows =
            db.stream::<ListedRow>(WHAT, &statements.user_messages_from, values, PAGE_ROWS).await?;
        while let Some(row) = rows.try_next().await? {
            if first.is_some_and(|first| first <= row.0) {
                return Ok(first);
            }
            if is_it(&row) {
                return Ok(Some(row.0));
            }
        }
    }
    Ok(first)
}

/// Writes what is invisible until the room changes, and then the room.
async fn write(
    context: &Context,
    part: i32,
    room: &str,
    mut state: RoomState,
    gone: &Gone,
    counts: Remaining,
    seq: i64,
) -> std::result::Result<(), Failure> {
    let (db, statements) = (&context.db, &context.db.statements);
    write_hours(db, part, room, gone, &counts, seq).await?;
    let removed = if gone.first.is_some() { gone.last } else { state.head };
    // Buckets before that of the first message that stays have none.
    let through = gone.first.map_or(state.head, |(_, bucket)| bucket.saturating_sub(1));
    let has_leftovers = gone.buckets.first().is_some_and(|(bucket, ..)| *bucket <= through);
    if has_leftovers {
        db.write(WHAT, &statements.set_deleted_room, (part, room, through, seq)).await?;
    }
    let mut rows = Writes::default();
    for (bucket, kept, first_at) in &gone.buckets {
        rows.add(&statements.set_bucket, (room, *bucket, *kept, *first_at, seq), 100);
    }
    if gone.first.is_none() {
        // All at once: reads of the room would have to pass a mark for each. It also covers those of earlier ones.
        rows.add(&statements.remove_kind, (seq, room, SENDERS), 60);
        state.senders = 0;
    }
    for (user, counts) in counts.senders.iter().filter(|_| gone.first.is_some()) {
        let Some(counts) = counts else {
            rows.add(&statements.remove_sender, (seq, room, user.as_str()), 80);
            state.senders -= 1;
            continue;
        };
        rows.add(&statements.set_sender, (room, user.as_str(), counts::cell(counts), seq), 60);
    }
    match gone.first_hour() {
        Some(hour) => rows.add(&statements.remove_room_hours, (seq, room, hour), 60),
        None => {
            rows.add(&statements.remove_room_hours, (seq, room, i64::MAX), 60);
            state.close_bucket();
            state.last_at = None;
        }
    }
    state.first_at = gone.first.map(|(at, _)| at);
    state.removed = state.removed.max(removed);
    state.kept -= gone.messages;
    state.expired += gone.messages;
    state.changes += 1;
    state.applied = seq;
    rows.add(&statements.set_room, (seq, &state, room), 300);
    context.commit(WHAT, part, rows).await?;
    context.totals.add(-gone.messages, 0);
    if has_leftovers {
        context.cleanup.notify_one();
    }
    Ok(())
}

/// Counts by hours: hours without messages lose the room with one statement each.
async fn write_hours(
    db: &Db,
    part: i32,
    room: &str,
    gone: &Gone,
    counts: &Remaining,
    seq: i64,
) -> Result<()> {
    let statements = &db.statements;
    let first_hour = gone.first_hour();
    let over = gone.by_hour.keys().copied().filter(|hour| Some(*hour) != first_hour);
    let remove = |hour| db.write(WHAT, &statements.remove_hour_room, (seq, hour, part, room));
    let removing: Vec<_> = over.map(remove).collect();
    stream::iter(removing).buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
    let Some(hour) = first_hour else { return Ok(()) };
    let mut rows = Writes::default();
    for (user, counts) in &counts.hour {
        let user = user.as_str();
        let Some(counts) = counts else {
            rows.add(&statements.remove_hour_user, (seq, hour, part, room, user), 80);
            continue;
        };
        let cell = counts::hour_cell(counts, seq);
        rows.add(&statements.set_hour_user, (hour, part, room, user, cell, seq), 60);
    }
    db.write_all(WHAT, rows).await
}
