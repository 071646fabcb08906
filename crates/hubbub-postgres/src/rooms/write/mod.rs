//! A batch of messages and changes, in one transaction.
//!
//! Names become numbers ([`Numbered`]) → the rooms are locked in the order of their numbers, so that two transactions
//! never wait for each other ([`state`]) → members, and where repeats are expected the ids, are looked up → every
//! operation is decided in its order ([`decide`]), which changes nothing but memory → the differences are written, a
//! statement for each table ([`differences`]). Exclusive operations are done in [`exclusive`].
//!
//! Repeats are rare, so a batch is decided at first as if it had none. Its ids tell: where one is used already, fewer
//! are inserted than were given, the transaction is rolled back and done again, looking first.

mod decide;
mod differences;
mod erase;
mod exclusive;
mod ids;
mod state;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use hubbub_core::{Change, LogPosition, Op, Outcome, RoomChange, RoomOp, RoomTotals, Timestamp};

use super::Rooms;
use super::names::NameRequest;
use crate::apply::PlacedOp;
use crate::db::{DbError, Failure, Result, Tx};
use crate::partitions;
use decide::{WorkingSet, Written};
pub(crate) use ids::seq_of;
use state::Membership;

/// Tries to insert messages, each after a missing partition was made.
const PARTITION_TRIES_MAX: u32 = 3;

/// An operation whose names have numbers. `None` = the name was never seen, and nothing belongs to it.
pub(super) struct Numbered<'a> {
    op: RoomOp<'a>,
    position: Option<LogPosition>,
    room: Option<i32>,
    /// The sender of a message; the subject of a change.
    user: Option<i32>,
    /// The caller of a change.
    by: Option<i32>,
}

impl Numbered<'_> {
    /// When the message is received, if `now` is the store's time.
    fn received_at(&self, now: Timestamp) -> Timestamp {
        self.position.map_or(now, |position| position.appended_at)
    }

    /// The membership of somebody whom the operation names; `None` when the name was never seen.
    fn member(&self, user: &str) -> Option<Membership> {
        let subject = match &self.op {
            RoomOp::Send(send) => send.user,
            RoomOp::Change(change) => user_of(change).0,
        };
        Some((self.room?, if user == subject { self.user? } else { self.by? }))
    }
}

/// By how much a transaction changed the totals.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Totals {
    pub(super) messages: i64,
    pub(super) rooms: i64,
}

impl Totals {
    fn add_to(self, totals: &RoomTotals) {
        totals.add(self.messages, self.rooms);
    }
}

/// What a try of a transaction tells the next one.
#[derive(Default)]
struct RetryHints {
    looks_up_ids: AtomicBool,
    lacks_partition: AtomicBool,
}

/// Applies operations in order, in one transaction.
pub(crate) async fn apply(rooms: &Rooms, ops: &[PlacedOp<'_>]) -> Result<Vec<Outcome>, Failure> {
    rooms.context.log.admit(ops.first().and_then(|op| op.position))?;
    if let [PlacedOp { op: RoomOp::Change(change), position }] = ops
        && Op::Change(*change).is_exclusive()
    {
        return Ok(vec![exclusive::apply(rooms, change, *position).await?]);
    }
    let ops = number(rooms, ops).await?;
    let hashes: Vec<_> = ops.iter().map(|numbered| ids::hash_of(&numbered.op)).collect();
    // Those between the first and the last are made when a message finds none.
    for numbered in ops.first().into_iter().chain(ops.last().filter(|last| last.position.is_some())) {
        let time = numbered.received_at(rooms.context.clock.now());
        partitions::ensure(&rooms.context, time).await.map_err(|fault| fault.before_commit())?;
    }
    let hints = RetryHints::default();
    hints.looks_up_ids.store(rooms.expects_repeats.load(Ordering::Relaxed), Ordering::Relaxed);
    let mut tries = 0;
    loop {
        tries += 1;
        let work = async |tx: &Tx<'_>| try_once(rooms, &ops, &hashes, &hints, tx).await;
        let done = rooms.context.db.transact("storing messages", work).await;
        if done.is_err()
            && tries < PARTITION_TRIES_MAX
            && hints.lacks_partition.swap(false, Ordering::Relaxed)
        {
            make_partitions(rooms, &ops).await?;
            continue;
        }
        let (outcomes, written) = done?;
        if hints.looks_up_ids.load(Ordering::Relaxed) {
            let repeats = outcomes.iter().any(|outcome| matches!(outcome, Outcome::Duplicate(_)));
            rooms.expects_repeats.store(repeats, Ordering::Relaxed);
        }
        written.totals.add_to(&rooms.totals);
        rooms.context.notifications.notify_changed(written.rooms.iter().map(|(no, _)| *no));
        if let Some(recent) = &rooms.recent {
            recent.stored(written.messages());
        }
        return Ok(outcomes);
    }
}

async fn try_once<'a>(
    rooms: &Rooms,
    ops: &[Numbered<'a>],
    hashes: &[uuid::Uuid],
    hints: &RetryHints,
    tx: &Tx<'_>,
) -> Result<(Vec<Outcome>, Written<'a>)> {
    let positions = || ops.iter().filter_map(|numbered| numbered.position);
    let mut state = state::lock(tx, positions(), ops.iter().filter_map(|numbered| numbered.room)).await?;
    let looks_up_ids = hints.looks_up_ids.load(Ordering::Relaxed);
    let members = state::read_members(tx, &state, ops);
    let used_ids = async {
        if looks_up_ids { ids::look_up(tx, ops, hashes).await } else { Ok(ids::UsedIds::default()) }
    };
    let (members, used_ids) = tokio::try_join!(biased; members, used_ids)?;
    state.members = members;
    let mut set =
        WorkingSet::new(rooms.context.clock.now(), rooms.context.options.autocreate, state, used_ids);
    let mut outcomes = set.decide(ops, hashes);
    let (written, fence) = set.into_written();
    let wanted = written.stored.len();
    let writing = differences::write(tx, &written, looks_up_ids);
    let (done, advanced) = tokio::join!(biased; writing, fence.advance(tx, positions()));
    if let Err(fault) = &done {
        hints.lacks_partition.store(differences::lacks_partition(fault), Ordering::Relaxed);
    }
    let (inserted, unread) = done?;
    advanced?;
    if inserted != wanted as u64 {
        if looks_up_ids {
            let found = format!("{inserted} of {wanted} new ids could be inserted");
            return Err(DbError::UnexpectedRow { what: "inserting ids", found });
        }
        hints.looks_up_ids.store(true, Ordering::Relaxed);
        return Err(DbError::Again { what: "inserting ids" });
    }
    for (place, erased) in unread {
        if let Some(Outcome::Read(mark)) = outcomes.get_mut(place) {
            mark.unread = mark.unread.saturating_sub(erased);
        }
    }
    Ok((outcomes, written))
}

/// Gives names their numbers. Senders and new members get one if they have none; rooms do where a message may make one.
async fn number<'a>(rooms: &Rooms, ops: &[PlacedOp<'a>]) -> Result<Vec<Numbered<'a>>, Failure> {
    let db = &rooms.context.db;
    let autocreate = rooms.context.options.autocreate;
    let rooms_wanted: Vec<NameRequest<'_>> = ops
        .iter()
        .map(|placed| match placed.op {
            RoomOp::Send(send) => (send.room, autocreate),
            RoomOp::Change(change) => (change.room().unwrap_or_default(), false),
        })
        .collect();
    let users_wanted: Vec<NameRequest<'_>> = ops
        .iter()
        .flat_map(|placed| match &placed.op {
            RoomOp::Send(send) => [(send.user, true), ("", false)],
            RoomOp::Change(change) => [user_of(change), (change.by.unwrap_or_default(), false)],
        })
        .collect();
    let rooms_found = rooms.room_names.numbers(db, &rooms_wanted).await?;
    let users_found = rooms.user_names.numbers(db, &users_wanted).await?;
    let users =
        users_found.chunks(2).map(|pair| (pair.first().copied().flatten(), pair.get(1).copied().flatten()));
    let numbered = ops.iter().zip(rooms_found).zip(users);
    let numbered = numbered.map(|((placed, room), (user, by))| {
        let PlacedOp { op, position } = *placed;
        Numbered { op, position, room, user, by }
    });
    Ok(numbered.collect())
}

fn user_of<'a>(change: &Change<'a>) -> NameRequest<'a> {
    match change.what {
        RoomChange::AddMember { user, .. } => (user, true),
        RoomChange::RemoveMember { user, .. }
        | RoomChange::MarkRead { user, .. }
        | RoomChange::EraseUser { user } => (user, false),
        RoomChange::PutRoom { .. } | RoomChange::DeleteRoom { .. } | RoomChange::ExpireMessages { .. } => {
            ("", false)
        }
    }
}

/// Makes the partitions that the messages of a batch may need: for their own times, and for rooms whose last message is
/// later.
async fn make_partitions(rooms: &Rooms, ops: &[Numbered<'_>]) -> Result<(), Failure> {
    let context = &rooms.context;
    let numbers: Vec<i32> = ops.iter().filter_map(|numbered| numbered.room).collect();
    let now = context.clock.now();
    let mut times: BTreeSet<Timestamp> = ops.iter().map(|numbered| numbered.received_at(now)).collect();
    let first = times.first().copied().unwrap_or(now);
    let work = async |tx: &Tx<'_>| state::last_times(tx, &numbers, first).await;
    times.extend(context.db.transact("looking for the times of rooms", work).await?);
    tracing::warn!(from = %first, "a partition for messages was missing");
    partitions::create_all(context, &times).await.map_err(|fault| fault.before_commit())?;
    Ok(())
}
