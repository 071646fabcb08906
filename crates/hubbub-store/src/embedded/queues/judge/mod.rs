//! Judging operations: each against the state as the one before it left it, and entered at once.
//!
//! Nothing here fails. An operation that cannot be done is refused before it changes anything.

mod manage;
mod send;
mod settle;
mod sweep;
mod take;

use std::sync::Arc;

use hubbub_core::queue::{Settle, TAKE_MAX};
use hubbub_core::{Outcome, QueueOp, QueueOutcome, Refusal};

use super::entry::{Entry, NOWHERE};
use super::source::{CRC_BYTES, Medium, split_text};
use super::time::Now;
use super::{Queues, Telling};
use crate::embedded::damage::Damage;
use crate::embedded::record::Queued;
use crate::embedded::tail::Tail;

/// More than the parts of a record take that are neither names nor texts nor lists.
const RECORD_BYTES: usize = 160;

/// More than the record takes that makes a queue.
const PUT_BYTES: usize = 320;

/// Bytes that one message takes at most in a list of a record.
const LISTED_BYTES: usize = 26;

/// Bytes of texts that the takes of one batch hold at most in memory; behind it, each gets one message.
const TEXTS_MAX: usize = 64 << 20;

/// Bytes that the records of an operation take at most besides its names and texts: as little as it can do with, and as
/// much as it can use.
pub(crate) fn bytes_max(op: &QueueOp<'_>) -> (usize, usize) {
    match op {
        QueueOp::Put { .. } => (2 * PUT_BYTES, 0),
        QueueOp::PutNumbered => (PUT_BYTES, 0),
        QueueOp::Delete { .. } | QueueOp::Register { .. } => (RECORD_BYTES, 0),
        QueueOp::Unregister { .. } => (RECORD_BYTES, TAKE_MAX * LISTED_BYTES),
        QueueOp::Send(_) | QueueOp::Remove { .. } => (2 * RECORD_BYTES, 0),
        QueueOp::Take(take) => (2 * RECORD_BYTES, take.max.min(TAKE_MAX) * LISTED_BYTES),
        QueueOp::Settle { how: Settle::Nack { .. }, .. } => (RECORD_BYTES + PUT_BYTES, 0),
        QueueOp::Settle { .. } => (RECORD_BYTES, 0),
        QueueOp::Redrive { .. } => (RECORD_BYTES, TAKE_MAX * LISTED_BYTES),
        QueueOp::Sweep => (RECORD_BYTES + PUT_BYTES, 2 * TAKE_MAX * LISTED_BYTES),
    }
}

/// The batch that operations are judged for.
pub(crate) struct Judging<'a> {
    block: &'a mut Vec<u8>,
    records: &'a mut u32,
    tail: &'a Arc<Tail>,
    /// Where the block will stand in the slot.
    position: u64,
    /// Bytes that records may take besides what [`bytes_max`] says each operation needs.
    spare: usize,
    /// Bytes of texts that may still be held.
    texts: usize,
    autoregister: bool,
    /// Where unreadable texts are noted.
    damage: &'a Damage,
    now: Now,
}

impl<'a> Judging<'a> {
    /// For a block that will stand at `position` of a slot.
    pub(crate) fn new(
        block: &'a mut Vec<u8>,
        records: &'a mut u32,
        (tail, position): (&'a Arc<Tail>, u64),
        spare: usize,
        autoregister: bool,
        damage: &'a Damage,
    ) -> Self {
        let now = Now::default();
        Self { block, records, tail, position, spare, texts: TEXTS_MAX, autoregister, damage, now }
    }

    /// Records in the block.
    pub(super) fn records(&self) -> u32 {
        *self.records
    }

    /// How many of `wanted` messages a list may have, at least one; the space for them is used up then.
    fn listed(&mut self, wanted: usize) -> usize {
        let count = wanted.min(1 + self.spare / LISTED_BYTES);
        self.spare = self.spare.saturating_sub(count.saturating_sub(1) * LISTED_BYTES);
        count
    }
}

impl Queues {
    /// Judges one operation of a batch and enters what it comes to.
    pub(super) fn judge(&mut self, op: &QueueOp<'_>, judging: &mut Judging<'_>, now: Now) -> Outcome {
        judging.now = now;
        let judged = match *op {
            QueueOp::Put { queue, settings } => Ok(self.put(queue, settings, judging)),
            QueueOp::PutNumbered => Ok(self.put_numbered(judging)),
            QueueOp::Delete { queue, force } => self.delete(queue, force, judging),
            QueueOp::Register { client } => self.register(client, judging),
            QueueOp::Unregister { client } => Ok(self.unregister(client, judging)),
            QueueOp::Send(ref send) => self.send(send, judging),
            QueueOp::Take(ref take) => self.take(take, judging),
            QueueOp::Settle { queue, receipt, how } => self.settle(queue, receipt, how, judging),
            QueueOp::Remove { queue, id } => self.remove_one(queue, id, judging),
            QueueOp::Redrive { queue, id } => self.redrive(queue, id, judging),
            QueueOp::Sweep => Ok(self.sweep(judging)),
        };
        match judged {
            Ok(outcome) => Outcome::Queue(outcome),
            Err(refusal) => Outcome::Refused(refusal),
        }
    }

    /// Writes a record and enters it.
    fn log(&mut self, queued: &Queued<'_>, telling: Telling, judging: &mut Judging<'_>) {
        let behind = queued.write(judging.block);
        *judging.records += 1;
        let mut place = (NOWHERE, 0);
        if behind > 0 {
            let offset = judging.position + judging.block.len().saturating_sub(behind) as u64;
            // Slots are smaller than 4 GiB.
            place = (self.sources.of_tail(judging.tail), u32::try_from(offset).unwrap_or(u32::MAX));
        }
        self.telling = telling;
        self.enter(queued, place, judging.now);
        self.telling = Telling::default();
    }

    /// Group and text of a message, which may stand in the block that is not written yet.
    fn text(&self, entry: &Entry, judging: &Judging<'_>) -> Option<(Option<Arc<str>>, String)> {
        let medium = &self.sources.get(entry.source)?.medium;
        let offset = u64::from(entry.offset);
        let bytes = match medium {
            Medium::Slot(tail) if tail.journal == judging.tail.journal && offset >= judging.position => {
                let begin = usize::try_from(offset - judging.position).ok()?;
                let end = begin + usize::try_from(u64::from(entry.bytes) + u64::from(CRC_BYTES)).ok()?;
                judging.block.get(begin..end)?.to_vec()
            }
            medium => entry.bytes_in(medium).map_err(|error| judging.damage.note(&error)).ok()?,
        };
        split_text(entry, bytes)
    }

    /// The number of a queue.
    fn number_of(&self, queue: &str) -> Result<u32, Refusal> {
        self.queue_numbers.get(queue).copied().ok_or(Refusal::UnknownQueue)
    }
}

/// What a queue operation is answered with.
type Judged = Result<QueueOutcome, Refusal>;
