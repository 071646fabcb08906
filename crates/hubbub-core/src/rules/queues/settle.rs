//! Ending and extending leases, removing single messages.

use super::effect::{Effect, Removal};
use super::manage::dead_letter_queue;
use super::view::{Lease, View};
use super::{Decided, EffectsOf, micros};
use crate::Refusal;
use crate::queue::{DeadReason, LeaseReceipt, QueueOutcome, Settle};
use crate::time::Timestamp;

pub(super) fn settle<'a, V: View>(
    view: &V,
    queue: &str,
    receipt: LeaseReceipt,
    how: Settle,
    effects: &mut EffectsOf<'a, V>,
) -> Decided<V> {
    let queue = view.queue(queue)?.ok_or(Refusal::UnknownQueue)?;
    let (number, rules, id, at) = (queue.number, queue.rules, receipt.id, view.now());
    let lease = view.lease(number, id).filter(|lease| lease.receipt == receipt);
    let Lease { deliveries, .. } = lease.ok_or(Refusal::StaleReceipt)?;
    let until = match how {
        Settle::Ack => {
            effects.push(Effect::Gone { at, why: Removal::Acknowledged, ids: vec![id] });
            None
        }
        Settle::Nack { .. } if rules.exhausts(deliveries) => {
            let to = dead_letter_queue(view, &rules.dead_letter_of(queue.name), effects)?;
            effects.push(Effect::Dead { id, to, reason: DeadReason::Rejected });
            None
        }
        Settle::Nack { delay_ms } => {
            let delay = micros(delay_ms.unwrap_or_else(|| rules.backoff(deliveries)));
            effects.push(Effect::Returned { at, id, delay });
            Some(view.delay_end(number, delay))
        }
        Settle::Extend { lease_ms } => {
            let lease = micros(lease_ms.unwrap_or(rules.lease_ms));
            effects.push(Effect::Extended { at, id, lease });
            Some(view.lease_end(number, lease))
        }
    };
    Ok(QueueOutcome::Settled { until: until.map(Timestamp::from_micros), ready: Box::default() })
}

pub(super) fn remove<'a, V: View>(
    view: &V,
    queue: &str,
    id: u64,
    effects: &mut EffectsOf<'a, V>,
) -> Decided<V> {
    let queue = view.queue(queue)?.ok_or(Refusal::UnknownQueue)?;
    if !view.holds(queue.number, id) {
        return Err(Refusal::UnknownMessage.into());
    }
    effects.push(Effect::Gone { at: view.now(), why: Removal::Removed, ids: vec![id] });
    Ok(QueueOutcome::Deleted { messages: 1, ready: Box::default() })
}
