//! Rules of queues: what an operation is answered with, and what it changes.
//!
//! [`decide`] reads the queues through a [`View`], and returns an outcome and its [`Effects`]. The store applies the
//! effects to its own state and makes them durable: the embedded engine as records of its journal, PostgreSQL as rows.
//!
//! Invariants
//! - A decision changes nothing. One that is refused, or that needs something loaded first, has no effects, so it can
//!   be repeated.
//! - An effect holds every number, id and duration that it is about. Applying it decides nothing.
//! - Effects take no more space in a journal than [`Space`] says.

mod effect;
mod manage;
mod select;
mod send;
mod settle;
mod space;
mod sweep;
mod take;
#[cfg(test)]
mod tests;
mod view;

pub use effect::{Effect, Effects, NewLease, NewMessage, Recipient, Removal};
pub use manage::number_named;
pub use select::{Availability, CandidateIn, Order, Query, Selected, select};
pub use space::Space;
pub use view::{
    Candidate, CandidateOf, ClientRef, Found, Held, Lease, QueueRef, ReadMessages, Remembered, View,
};

use crate::Refusal;
use crate::invariant::BrokenInvariant;
use crate::queue::{QueueOp, QueueOutcome, TakeMode};

/// Why an operation is not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop<N> {
    /// It is refused for good.
    Refused(Refusal),
    /// The store must load something first; then the operation is decided again.
    LoadRequest(N),
}

impl<N> From<Refusal> for Stop<N> {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl<N> From<BrokenInvariant> for Stop<N> {
    fn from(broken: BrokenInvariant) -> Self {
        Self::Refused(broken.into())
    }
}

/// Effects with the numbers and fingerprints of a store.
pub type EffectsOf<'a, V> = Effects<'a, <V as View>::Number, <V as View>::Fingerprint<'a>>;

/// What an operation comes to, without its effects.
type Decided<V> = Result<QueueOutcome, Stop<<V as View>::LoadRequest>>;

/// Decides one operation by what `view` shows. `effects` holds what it changes, in the order to apply.
///
/// The store completes the outcome once the effects are applied: [`QueueOutcome::freed_mut`], and all of
/// [`QueueOutcome::Swept`].
///
/// # Errors
/// The operation is refused, or the store must load something first.
pub fn decide<'a, V: View>(view: &mut V, op: &QueueOp<'a>, effects: &mut EffectsOf<'a, V>) -> Decided<V> {
    let spare = effects.begin();
    let decided = match *op {
        QueueOp::Put { queue, settings } => manage::put(view, queue, settings, effects),
        QueueOp::PutNumbered => manage::put_numbered(view, effects),
        QueueOp::Delete { queue, force } => manage::delete(view, queue, force, effects),
        QueueOp::Register { client } => manage::register(view, client, effects),
        QueueOp::Unregister { client } => manage::unregister(view, client, effects),
        QueueOp::Send(ref send) => send::send(view, send, effects),
        QueueOp::Take(ref take) => take::take(view, take, effects),
        QueueOp::Settle { queue, receipt, how } => settle::settle(view, queue, receipt, how, effects),
        QueueOp::Remove { queue, id } => settle::remove(view, queue, id, effects),
        QueueOp::Redrive { queue, id } => sweep::redrive(view, queue, id, effects),
        QueueOp::Sweep => sweep::sweep(view, effects),
    };
    if decided.is_err() {
        effects.abandon(spare);
    }
    decided
}

/// Whether an operation answers who may take now; otherwise the next sweep tells.
pub fn names_freed(op: &QueueOp<'_>) -> bool {
    match op {
        QueueOp::Settle { .. } | QueueOp::Remove { .. } => true,
        QueueOp::Take(take) => take.how == TakeMode::Away,
        _ => false,
    }
}

/// Milliseconds as microseconds.
const fn micros(ms: u64) -> u64 {
    ms.saturating_mul(1_000)
}
