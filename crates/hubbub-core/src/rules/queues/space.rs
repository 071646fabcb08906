//! How much space effects take where they are encoded one after another, as in a journal.

use super::effect::Effect;
use crate::queue::{Audience, QueueOp, Settle, TAKE_MAX};

/// More than the parts of an effect take that are neither names nor payloads nor lists.
pub(super) const EFFECT_BYTES: usize = 160;

/// More than the effect takes that makes a queue.
pub(super) const PUT_BYTES: usize = 320;

/// Bytes that one message takes at most in a list of an effect, or one moved message by itself.
pub(super) const LISTED_BYTES: usize = 26;

/// Bytes that the effects of an operation take at most, besides its names and payloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// What the operation cannot do without.
    pub needed: usize,
    /// What it can use besides.
    pub useful: usize,
}

impl Space {
    /// That of an operation.
    pub fn of(op: &QueueOp<'_>) -> Self {
        let (needed, useful) = match op {
            QueueOp::Put { .. } => (2 * PUT_BYTES, 0),
            QueueOp::PutNumbered => (PUT_BYTES, 0),
            QueueOp::Delete { .. } | QueueOp::Register { .. } => (EFFECT_BYTES, 0),
            QueueOp::Unregister { .. } => (EFFECT_BYTES, TAKE_MAX * LISTED_BYTES),
            // As many may have to go as copies come, and the queue is full if they cannot be listed.
            QueueOp::Send(send) if send.audience == Audience::All => {
                (2 * EFFECT_BYTES, TAKE_MAX * LISTED_BYTES)
            }
            QueueOp::Send(_) | QueueOp::Remove { .. } => (2 * EFFECT_BYTES, 0),
            QueueOp::Take(take) => (2 * EFFECT_BYTES, take.max.min(TAKE_MAX) * LISTED_BYTES),
            QueueOp::Settle { how: Settle::Nack { .. }, .. } => (EFFECT_BYTES + PUT_BYTES, 0),
            QueueOp::Settle { .. } => (EFFECT_BYTES, 0),
            QueueOp::Redrive { .. } => (EFFECT_BYTES, TAKE_MAX * LISTED_BYTES),
            QueueOp::Sweep => (EFFECT_BYTES + PUT_BYTES, 2 * TAKE_MAX * LISTED_BYTES),
        };
        Self { needed, useful }
    }
}

/// What the list of an effect takes of the space that is spare. The first message of most lists has its space for sure.
pub(super) fn of_list<N, F>(effect: &Effect<'_, N, F>) -> usize {
    match effect {
        Effect::Taken { ids, .. } | Effect::Gone { ids, .. } => behind_first(ids.len()),
        Effect::Leased { leases, .. } => behind_first(leases.len()),
        Effect::Client { kept, .. } => of_ids(kept),
        _ => 0,
    }
}

fn behind_first(messages: usize) -> usize {
    messages.saturating_sub(1) * LISTED_BYTES
}

/// Bytes of ids in increasing order, each written as its distance from the one before, 7 bits a byte, with a sign.
pub(super) fn of_ids(ids: &[u64]) -> usize {
    let before = std::iter::once(0).chain(ids.iter().copied());
    let bits = ids.iter().zip(before).map(|(id, before)| u64::BITS + 1 - id.abs_diff(before).leading_zeros());
    bits.map(|bits| bits.div_ceil(7) as usize).sum()
}
