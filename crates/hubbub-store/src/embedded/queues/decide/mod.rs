//! Decides operations, each against the state as the one before it left it, and applies what they come to at once.
//!
//! The rules are [`hubbub_core::rules::queues`]; [`view`] shows them the state. Effects become records of the journal.

mod view;

use std::sync::Arc;

use hubbub_core::invariant::{BrokenInvariant, cast};
pub(crate) use hubbub_core::queue::PAYLOADS_MAX;
use hubbub_core::rules::queues::{self as rules, Effects, Stop};
use hubbub_core::{Outcome, QueueOp, QueueOutcome};

use super::entry::{Entry, NOWHERE};
use super::source::{Medium, split_payload};
use super::time::Now;
use super::{Queues, WakeTarget};
use crate::embedded::damage::Damage;
use crate::embedded::record::{Effect, Fingerprint, QueueRecord, write_queue};
use crate::embedded::tail::Tail;
use view::BatchView;

/// Effects that become records.
pub(super) type QueueEffects<'a> = Effects<'a, u32, Fingerprint>;

/// The batch that operations are decided for.
pub(crate) struct QueueBatch<'a> {
    pub(crate) block: &'a mut Vec<u8>,
    /// Records in the block.
    pub(crate) records: &'a mut u32,
    /// The slot, and where the block will stand in it.
    pub(crate) tail: &'a Arc<Tail>,
    pub(crate) position: u64,
    /// Bytes that records may take besides what [`rules::Space`] says each operation needs.
    pub(crate) spare: usize,
    /// Bytes of the longest list for which an operation was refused; see [`Effects::missing`].
    pub(crate) missing: usize,
    /// Bytes of payloads that may still be held: [`PAYLOADS_MAX`] at the beginning.
    pub(crate) payloads: u64,
    /// How often takes may still look on behind expired messages: [`ROUNDS_MAX`](super::ROUNDS_MAX) at the beginning.
    pub(crate) rounds: usize,
    pub(crate) autoregister: bool,
    /// Where unreadable payloads are noted.
    pub(crate) damage: &'a Damage,
}

impl Queues {
    /// Decides one operation of a batch and applies what it comes to.
    pub(super) fn decide<'op>(
        &mut self,
        op: &QueueOp<'op>,
        effects: &mut QueueEffects<'op>,
        batch: &mut QueueBatch<'_>,
        now: Now,
    ) -> Outcome {
        if matches!(op, QueueOp::Sweep) {
            self.make_some(self.limits.broadcasts.per_sweep.max(1));
        }
        let decided = rules::decide(&mut BatchView { queues: self, batch, now }, op, effects);
        let outcome = match decided {
            Ok(outcome) => outcome,
            Err(Stop::Refused(refusal)) => return Outcome::Refused(refusal),
            Err(Stop::LoadRequest(never)) => match never {},
        };
        self.make_copies_beside(op);
        for effect in effects.drain() {
            if let Err(broken) = self.log(&effect, wake_target(op, &effect), batch, now) {
                return Outcome::Refused(broken.into());
            }
        }
        Outcome::Queue(self.completed(outcome, now))
    }

    /// Makes all copies for the receiver of the message that an operation names: the next of its group may be one.
    fn make_copies_beside(&mut self, op: &QueueOp<'_>) {
        let id = match *op {
            QueueOp::Settle { receipt, .. } => receipt.id,
            QueueOp::Remove { id, .. } => id,
            _ => return,
        };
        if !self.pending.is_empty()
            && let Some(entry) = self.entry_of(id)
        {
            self.make_copies_for(entry.receiver);
        }
    }

    /// Writes a record and applies it.
    fn log(
        &mut self,
        record: &QueueRecord<'_>,
        wake_target: WakeTarget,
        batch: &mut QueueBatch<'_>,
        now: Now,
    ) -> Result<(), BrokenInvariant> {
        let before = batch.block.len();
        let behind = write_queue(record, batch.block);
        let mut place = (NOWHERE, 0);
        if behind > 0 {
            let offset = batch.position + batch.block.len().saturating_sub(behind) as u64;
            let offset = cast(offset, "a slot is smaller than 4 GiB");
            place = (self.sources.of_tail(batch.tail), offset.inspect_err(|_| batch.block.truncate(before))?);
        }
        *batch.records += 1;
        self.wake_target = wake_target;
        self.apply(record, place, now);
        self.wake_target = WakeTarget::default();
        Ok(())
    }

    /// The outcome with what only the applied effects tell.
    fn completed(&mut self, mut outcome: QueueOutcome, now: Now) -> QueueOutcome {
        if let Some(freed) = outcome.freed_mut() {
            *freed = self.take_freed();
        }
        match outcome {
            QueueOutcome::Swept { .. } => {
                let mut woken = std::mem::take(&mut self.woken);
                // What came free may have been taken since.
                woken.retain(|queue| self.has_ready(*queue));
                let named =
                    woken.iter().filter_map(|number| Some(Arc::clone(&self.queues.get(number)?.name)));
                let more = self.due_at().is_some_and(|due| due <= now.at);
                QueueOutcome::Swept { more, ready: named.collect() }
            }
            outcome => outcome,
        }
    }

    fn has_ready(&self, queue: u32) -> bool {
        self.ready.range((queue, 0, 0)..=(queue, u32::MAX, u64::MAX)).next().is_some()
    }

    /// Group and payload of a message, which may stand in the block that is not written yet.
    fn text(&self, entry: &Entry, batch: &QueueBatch<'_>) -> Option<(Option<Arc<str>>, String)> {
        let medium = &self.sources.get(entry.source)?.medium;
        let offset = u64::from(entry.offset);
        let bytes = match medium {
            Medium::Slot(tail) if tail.journal == batch.tail.journal && offset >= batch.position => {
                let begin = usize::try_from(offset - batch.position).ok()?;
                let end = begin + usize::try_from(entry.stored_bytes()).ok()?;
                batch.block.get(begin..end)?.to_vec()
            }
            medium => entry.bytes_in(medium).map_err(|error| batch.damage.note(&error)).ok()?,
        };
        split_payload(entry, bytes)
    }
}

/// Who is told that messages may be taken once an effect is applied.
fn wake_target(op: &QueueOp<'_>, effect: &QueueRecord<'_>) -> WakeTarget {
    match effect {
        Effect::Send(_) | Effect::Delete { .. } | Effect::Client { registered: true, .. } => {
            WakeTarget::Nobody
        }
        _ if rules::names_freed(op) => WakeTarget::Outcome,
        _ => WakeTarget::Sweep,
    }
}
