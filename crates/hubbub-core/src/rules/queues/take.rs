//! Taking messages away or on lease.

use super::effect::{Effect, NewLease};
use super::manage::register_client;
use super::view::{Candidate, View};
use super::{Decided, EffectsOf, Stop, micros, space};
use crate::Refusal;
use crate::invariant::broken;
use crate::queue::{Delivery, QueueOutcome, TAKE_MAX, Take, TakeFilter, TakeMode};
use crate::time::Timestamp;

/// Messages that one take meets at most whose payloads cannot be read; each may cost a read of a failing disk. Then it
/// is refused, and the next take goes on behind them.
const UNREADABLE_MAX: usize = 64;

/// Messages that are taken, not on lease yet.
type Taken<V> = Vec<(Candidate<<V as View>::Number, <V as View>::Handle>, Delivery)>;

pub(super) fn take<'a, V: View>(view: &mut V, take: &Take<'a>, effects: &mut EffectsOf<'a, V>) -> Decided<V> {
    let queue = match take.wanted.queue {
        Some(name) => Some(view.queue(name)?.ok_or(Refusal::UnknownQueue)?.number),
        None => None,
    };
    let max = effects.list_max(take.max.min(TAKE_MAX), space::LISTED_BYTES);
    let mut taken = choose(view, &take.wanted, queue, max, take.how == TakeMode::Away)?;
    let leases = match take.how {
        TakeMode::Away => Vec::new(),
        TakeMode::Lease { lease_ms } => lease(view, &mut taken, lease_ms)?,
    };
    if let (Some(receiver), true) = (take.wanted.receiver, take.registers && view.autoregisters()) {
        register_client(view, receiver, effects)?;
    }
    let at = view.now();
    if !leases.is_empty() {
        effects.push(Effect::Leased { at, leases });
    } else if !taken.is_empty() {
        effects.push(Effect::Taken { at, ids: taken.iter().map(|(message, _)| message.id).collect() });
    }
    let messages = taken.into_iter().map(|(_, delivery)| delivery).collect();
    Ok(QueueOutcome::Taken { messages, ready: Box::default() })
}

/// The messages that are taken. Those that cannot be read are in nobody's way.
fn choose<V: View>(
    view: &mut V,
    wanted: &TakeFilter<'_>,
    queue: Option<V::Number>,
    max: usize,
    through_groups: bool,
) -> Result<Taken<V>, Stop<V::LoadRequest>> {
    let mut left = UNREADABLE_MAX;
    loop {
        let chosen = view.select(wanted, queue, max, through_groups)?;
        if chosen.is_empty() {
            return Ok(Vec::new());
        }
        let messages = view.read(chosen, left)?;
        if !messages.read.is_empty() {
            return Ok(messages.read);
        }
        left = left.saturating_sub(messages.unreadable);
        if left == 0 || messages.unreadable == 0 {
            return Err(Refusal::Unreadable.into());
        }
    }
}

/// Leases of messages that are taken now; their deliveries tell of them.
fn lease<V: View>(
    view: &V,
    taken: &mut Taken<V>,
    lease_ms: Option<u64>,
) -> Result<Vec<NewLease>, Stop<V::LoadRequest>> {
    let mut leases = Vec::with_capacity(taken.len());
    for (message, delivery) in taken {
        let queue = view.queue_of(message.queue).ok_or_else(|| broken("a chosen message is in a queue"))?;
        let lease = micros(lease_ms.unwrap_or(queue.rules.lease_ms));
        delivery.deliveries = message.deliveries.saturating_add(1);
        delivery.leased_until = Some(Timestamp::from_micros(view.lease_end(message.queue, lease)));
        delivery.receipt = Some(view.receipt(message, delivery.deliveries)?);
        leases.push(NewLease { id: message.id, delivery: delivery.deliveries, lease });
    }
    Ok(leases)
}
