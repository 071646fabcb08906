//! Applies records of the log: divides a batch by partition, a partition's part by room ([`room`]), and writes each
//! partition's next offset last.
//!
//! Rooms are cached by partition, exactly as of the last record that was applied here. That stays right when another server
//! goes on with the partition: both come to the same states. Only what is read from the store may be of a later record;
//! then the room is read anew, and records that are in it are skipped.

mod cleanup;
mod entry;
mod erase;
mod expire;
mod flush;
mod ids;
mod load;
mod room;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use hubbub_core::invariant::{BrokenInvariant, cast, saturate};
use hubbub_core::log_position::{not_attached, past_the_log};
use hubbub_core::store::ApplyError;
use hubbub_core::{Change, LogPosition, Op, OpBatch, Outcome, Refusal, RoomChange, RoomOp};
use parking_lot::Mutex;

use crate::db::DbError;
use crate::log::{Attachment, earlier};
use crate::store::Context;
use expire::Expiry;
use room::RoomEntry;

pub(crate) use cleanup::remove_leftovers;
pub(crate) use ids::seq_of;

/// Rooms of a partition that are read or written at the same time.
const ROOMS_AT_ONCE: usize = 64;
/// Most operations that a room takes at once; its atomic write grows with them.
const ROOM_OPS_MAX: usize = 2_000;
/// Members, senders and rooms cached for one partition: half of them were used last, the other half before.
const CACHED_MAX: usize = 200_000;

/// Why a record was not applied. It may be applied in part, and must be repeated.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Db(#[from] DbError),
    #[error(transparent)]
    Bug(#[from] BrokenInvariant),
    /// Somebody else is applying the same records, and is ahead.
    #[error("another server goes on with this partition of the log")]
    Overtaken,
}

/// A record of the log.
#[derive(Debug, Clone, Copy)]
struct Record<'a> {
    /// Its place in the batch.
    index: usize,
    position: LogPosition,
    /// The number of the message, if it is one, and the timestamp of what it writes.
    seq: i64,
    op: RoomOp<'a>,
}

impl<'a> Record<'a> {
    fn room(&self) -> &'a str {
        self.op.room().unwrap_or_default()
    }

    /// What has expired, if it is to be removed.
    fn expiry(&self) -> Option<Expiry> {
        let RoomOp::Change(Change { by: None, what }) = self.op else { return None };
        let RoomChange::ExpireMessages { before, retention_s, is_own, .. } = what else { return None };
        // A server whose clock is ahead removes nothing: messages are as old as the log says.
        let by_log = earlier(self.position.appended_at, Duration::from_secs(retention_s));
        Some(Expiry { before: before.min(by_log), own_retention_s: is_own.then(|| saturate(retention_s)) })
    }

    /// The user whose messages are to be erased.
    fn erased_user(&self) -> Option<&'a str> {
        match &self.op {
            RoomOp::Change(Change { what: RoomChange::EraseUser { user }, .. }) => Some(user),
            _ => None,
        }
    }
}

/// A partition of the log, for whoever reads a room.
#[derive(Debug, Clone, Copy)]
struct Part {
    number: i32,
    /// The last record up to which all changes of rooms are confirmed. Later ones, which another server wrote and perhaps did not
    /// end, may be on one replica.
    confirmed: i64,
}

/// What is known of a partition.
#[derive(Default)]
struct Partition {
    /// The offset behind the last applied record; `None` = to be read from the store.
    next: Option<u64>,
    rooms: HashMap<String, RoomEntry>,
    /// Members, senders and rooms among `rooms`.
    cached: usize,
    /// Rooms that were not used since `rooms` was empty.
    unused: HashMap<String, RoomEntry>,
    /// The highest offset that the database had here, and since which attaching of the log.
    seen: (u64, u64),
}

impl Partition {
    fn forget(&mut self) {
        *self = Self { seen: self.seen, ..Self::default() };
    }

    /// Remembers how far the database is. Returns false if it was further before: it lost what it had confirmed.
    fn see(&mut self, attached: u64, next: u64) -> bool {
        let is_behind = self.seen.0 == attached && next < self.seen.1;
        if !is_behind {
            self.seen = (attached, next);
        }
        !is_behind
    }

    fn keep(&mut self, room: &str, entry: RoomEntry) {
        // It would not become unused, and grow for ever.
        if entry.size() > CACHED_MAX / 2 {
            return;
        }
        self.cached += entry.size();
        self.rooms.insert(room.to_owned(), entry);
        if self.cached > CACHED_MAX / 2 {
            self.unused = std::mem::take(&mut self.rooms);
            self.cached = 0;
        }
    }

    fn take(&mut self, room: &str) -> Option<RoomEntry> {
        let Some(entry) = self.rooms.remove(room) else { return self.unused.remove(room) };
        self.cached = self.cached.saturating_sub(entry.size());
        Some(entry)
    }

    fn forget_rooms(&mut self) {
        (self.rooms, self.unused, self.cached) = Default::default();
    }
}

/// Applies batches.
#[derive(Default)]
pub(crate) struct Applier {
    partitions: Mutex<HashMap<u32, Arc<tokio::sync::Mutex<Partition>>>>,
}

type Done = Vec<(usize, Outcome)>;

impl Applier {
    /// Applies a batch. Nobody is told of what is applied in part: it is repeated.
    pub(crate) async fn apply(&self, context: &Context, batch: &OpBatch) -> Result<Vec<Outcome>, ApplyError> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        if let Some(reason) = context.status.outdated() {
            return Err(ApplyError::Unavailable { reason });
        }
        let is_attached = context.is_attached.load(Ordering::Acquire);
        let refusal = || if batch.is_from_log() { not_attached() } else { past_the_log() };
        let log = context.log.get().filter(|_| is_attached).ok_or_else(refusal)?;
        let mut partitions: BTreeMap<u32, Vec<Record<'_>>> = BTreeMap::new();
        for (index, op) in batch.iter().enumerate() {
            let op = match op {
                Op::Send(send) => RoomOp::Send(send),
                Op::Change(change) => RoomOp::Change(change),
                Op::Queue(_) | Op::Kv(_) => return Err(crate::refused::no_queues_and_keys()),
            };
            let position = batch.position(index).ok_or_else(past_the_log)?;
            let seq = log.seq(position.offset).map_err(|error| unavailable(&error))?;
            partitions.entry(position.partition).or_default().push(Record { index, position, seq, op });
        }
        let applying =
            partitions.into_iter().map(|(part, records)| self.apply_part(context, log, part, records));
        let done = futures_util::future::join_all(applying).await;
        let mut outcomes = vec![Outcome::Refused(Refusal::Internal); batch.len()];
        for (index, outcome) in done.into_iter().collect::<Result<Vec<Done>, _>>()?.into_iter().flatten() {
            if let Some(place) = outcomes.get_mut(index) {
                *place = outcome;
            }
        }
        Ok(outcomes)
    }

    async fn apply_part(
        &self,
        context: &Context,
        log: &Attachment,
        number: u32,
        records: Vec<Record<'_>>,
    ) -> Result<Done, ApplyError> {
        let part: i32 =
            cast(number, "a partition's number fits in 31 bits").map_err(|bug| unavailable(&bug))?;
        let attached = context.attached.load(Ordering::Acquire);
        let partition = self.partitions.lock().entry(number).or_default().clone();
        let mut partition = partition.lock().await;
        let first = records.first().map_or(0, |record| record.position.offset);
        let next = match partition.next.filter(|_| context.is_zombie.load(Ordering::Relaxed)) {
            Some(next) => next,
            None => log.next_offset(context, part).await.map_err(|error| {
                context.status.report(Some(part), Err(error.to_string()));
                unavailable(&error)
            })?,
        };
        // Whoever reads the log must go back. After the next attaching it is expected where the database is.
        if !partition.see(attached, next) {
            partition.forget();
            context.is_attached.store(false, Ordering::Release);
            let reason = format!(
                "the database lost writes that it had confirmed: partition {part} of the log is at offset {next} again"
            );
            return Err(ApplyError::Unattached { reason });
        }
        // Others went on with the partition, or may have applied what is missing here. What is cached would not be wrong: it
        // would be applied once more what is applied.
        if partition.next != Some(next) || first > next {
            partition.forget();
            partition.next = Some(next);
        }
        let done = partition.apply(context, log, part, records).await;
        let next = partition.next.unwrap_or_default();
        partition.see(attached, next);
        done.map_err(|failure| {
            partition.forget();
            context.status.report(Some(part), Err(failure.to_string()));
            ApplyError::Unconfirmed { reason: failure.to_string() }
        })
    }
}

fn unavailable(error: &impl ToString) -> ApplyError {
    ApplyError::Unavailable { reason: error.to_string() }
}

impl Partition {
    async fn apply(
        &mut self,
        context: &Context,
        log: &Attachment,
        part: i32,
        mut records: Vec<Record<'_>>,
    ) -> Result<Done, Failure> {
        let mut done = Done::with_capacity(records.len());
        pass_over_known(self.next.unwrap_or_default(), &mut records, &mut done);
        let confirmed = log.seq(self.next.unwrap_or_default())?.saturating_sub(1);
        let mut part = Part { number: part, confirmed };
        for run in records.chunk_by(|a, b| a.erased_user().is_none() && b.erased_user().is_none()) {
            match run {
                [record] if let Some(user) = record.erased_user() => {
                    // It reads and changes many rooms, each as it is stored.
                    self.forget_rooms();
                    let messages = erase::erase(context, part, user, record.seq).await?;
                    done.push((record.index, Outcome::Erased { messages, more: false }));
                }
                run => done.extend(self.apply_rooms(context, part, run).await?),
            }
            part.confirmed = run.last().map_or(part.confirmed, |last| last.seq);
        }
        if let Some(last) = records.last() {
            let next = last.position.offset.saturating_add(1);
            log.set_next_offset(&context.db, part.number, next, last.seq).await?;
            self.next = Some(next);
        }
        context.status.report(Some(part.number), Ok(()));
        Ok(done)
    }

    /// Applies records of rooms, each room's in order.
    async fn apply_rooms(
        &mut self,
        context: &Context,
        part: Part,
        run: &[Record<'_>],
    ) -> Result<Done, Failure> {
        let mut by_room: HashMap<&str, Vec<&Record<'_>>> = HashMap::new();
        for record in run {
            by_room.entry(record.room()).or_default().push(record);
        }
        let mut rooms: Vec<_> = by_room.iter().map(|(room, records)| (*room, divided(records))).collect();
        let mut done = Done::new();
        // Usually once.
        while !rooms.is_empty() {
            rooms.retain_mut(|(_, parts)| !parts.is_empty());
            let (mut parts, mut expiries) = (Vec::new(), Vec::new());
            for (room, of_room) in &mut rooms {
                let Some(records) = of_room.pop_front() else { continue };
                // What is known of a room ends when messages expire.
                let entry = self.take(room);
                match expiry_of(records) {
                    Some((expiry, record)) => expiries.push((*room, expiry, record)),
                    None => parts.push((*room, records, entry)),
                }
            }
            let expiring = expiries.into_iter().map(async |(room, expiry, record)| {
                let outcome = expire::expire(context, part, room, expiry, record.seq).await?;
                Ok::<_, Failure>((record.index, outcome))
            });
            let expired: Vec<_> =
                stream::iter(expiring).buffer_unordered(ROOMS_AT_ONCE).try_collect().await?;
            done.extend(expired);
            self.apply_parts(context, part, parts, &mut done).await?;
        }
        Ok(done)
    }

    /// Applies a part of the records of each of some rooms, all at the same time: decides, writes what is invisible, and then
    /// the rooms.
    async fn apply_parts<'a>(
        &mut self,
        context: &Context,
        part: Part,
        parts: Vec<(&'a str, &[&Record<'a>], Option<RoomEntry>)>,
        done: &mut Done,
    ) -> Result<(), Failure> {
        let deciding =
            parts.into_iter().map(|(room, records, entry)| room::decide(context, part, room, records, entry));
        let deciding: Vec<_> = deciding.collect();
        let mut works = Vec::with_capacity(deciding.len());
        let mut decided = stream::iter(deciding).buffer_unordered(ROOMS_AT_ONCE);
        while let Some((work, outcomes)) = decided.try_next().await? {
            works.push(work);
            done.extend(outcomes);
        }
        flush::flush(context, part.number, &works).await?;
        for work in works {
            let room = work.room;
            self.keep(room, work.finish(context));
        }
        Ok(())
    }
}

/// Takes out what was applied before, or stands before it in the batch: a server that lost the partition and has it again may
/// submit its records twice. What is left has ascending offsets.
fn pass_over_known(mut wanted: u64, records: &mut Vec<Record<'_>>, done: &mut Done) {
    records.retain(|record| {
        let is_new = record.position.offset >= wanted;
        if is_new {
            wanted = record.position.offset.saturating_add(1);
        } else {
            done.push((record.index, Outcome::Accepted));
        }
        is_new
    });
}

/// The expiry that a part consists of, if it is one.
fn expiry_of<'r, 'a>(records: &'r [&'r Record<'a>]) -> Option<(Expiry, &'r Record<'a>)> {
    match records {
        [record] => Some((record.expiry()?, record)),
        _ => None,
    }
}

/// Parts that are written at once: removals write what nothing else may be written with.
fn divided<'r, 'a>(records: &'r [&'r Record<'a>]) -> VecDeque<&'r [&'r Record<'a>]> {
    let is_removal = |record: &Record<'_>| {
        let what = if let RoomOp::Change(change) = &record.op { Some(change.what) } else { None };
        matches!(what, Some(RoomChange::DeleteRoom { .. } | RoomChange::ExpireMessages { .. }))
    };
    let runs = records.chunk_by(move |a, b| !is_removal(a) && !is_removal(b));
    runs.flat_map(|run| run.chunks(ROOM_OPS_MAX)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::RoomState;

    #[test]
    fn rooms_that_are_used_stay_cached_and_memory_is_bounded() {
        let mut partition = Partition::default();
        let entry = |senders: usize| {
            let mut entry = RoomEntry::empty(RoomState::unknown(0));
            entry.senders = (0..senders).map(|n| (n.to_string(), None)).collect();
            entry
        };
        partition.keep("busy", entry(1_000));
        for n in 0..400 {
            assert!(partition.take("busy").is_some(), "after {n} rooms");
            partition.keep("busy", entry(1_000));
            partition.keep(&format!("room {n}"), entry(1_000));
            let sizes = partition.rooms.values().chain(partition.unused.values()).map(RoomEntry::size);
            assert!(sizes.sum::<usize>() <= CACHED_MAX + 2_000);
        }
        assert!(partition.take("room 399").is_some() && partition.take("room 1").is_none());
        partition.keep("huge", entry(CACHED_MAX));
        assert!(partition.take("huge").is_none());
    }
}
