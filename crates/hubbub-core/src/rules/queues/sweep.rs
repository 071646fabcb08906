//! Ending what has run out, and bringing dead letters back.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::effect::{Effect, Removal};
use super::manage::dead_letter_queue;
use super::space::{EFFECT_BYTES, LISTED_BYTES, PUT_BYTES};
use super::view::View;
use super::{Decided, EffectsOf, Stop};
use crate::Refusal;
use crate::queue::{DeadReason, QueueOutcome, TAKE_MAX};

/// Messages that one sweep clears away or moves at most.
const SWEPT_MAX: usize = 500;

pub(super) fn sweep<V: View>(view: &mut V, effects: &mut EffectsOf<'_, V>) -> Decided<V> {
    let at = view.now();
    let ids = view.expired(effects.list_max(SWEPT_MAX, LISTED_BYTES));
    let left = SWEPT_MAX.saturating_sub(ids.len());
    if !ids.is_empty() {
        effects.push(Effect::Gone { at, why: Removal::Expired, ids });
    }
    dead_letter(view, left, effects)?;
    Ok(QueueOutcome::Swept { more: false, ready: Box::default() })
}

/// Moves messages that were delivered too often to dead-letter queues.
fn dead_letter<V: View>(
    view: &mut V,
    most: usize,
    effects: &mut EffectsOf<'_, V>,
) -> Result<(), Stop<V::LoadRequest>> {
    let exhausted = view.exhausted(most);
    let view = &*view;
    let mut is_first = true;
    for (id, queue) in exhausted {
        let Some(queue) = view.queue_of(queue) else { continue };
        let name = queue.rules.dead_letter_of(queue.name);
        let is_there = view.queue(&name)?.is_some_and(|queue| queue.is_dead_letter)
            || effects.dead_letter_queue(&name).is_some();
        let needed = if is_there { LISTED_BYTES } else { PUT_BYTES + LISTED_BYTES };
        // The first has its space for sure.
        if !std::mem::take(&mut is_first) {
            if effects.spare() < needed {
                break;
            }
            effects.spend(needed);
        }
        let to = dead_letter_queue(view, &name, effects)?;
        effects.push(Effect::Dead { id, to, reason: DeadReason::LeaseExpired });
    }
    Ok(())
}

pub(super) fn redrive<V: View>(
    view: &V,
    queue: &str,
    id: Option<u64>,
    effects: &mut EffectsOf<'_, V>,
) -> Decided<V> {
    let number = view.queue(queue)?.ok_or(Refusal::UnknownQueue)?.number;
    let most = effects.list_max(TAKE_MAX, LISTED_BYTES + EFFECT_BYTES);
    let mut moved: BTreeMap<V::Number, Vec<u64>> = BTreeMap::new();
    let (mut messages, mut more) = (0, false);
    view.visit_dead_letters(number, id, |id, origin| {
        if messages >= most {
            more = true;
            return ControlFlow::Break(());
        }
        messages += 1;
        moved.entry(origin).or_default().push(id);
        ControlFlow::Continue(())
    })?;
    if let Some(id) = id.filter(|_| messages == 0)
        && !view.holds(number, id)
    {
        return Err(Refusal::UnknownMessage.into());
    }
    effects.spend(messages.saturating_sub(1) * (LISTED_BYTES + EFFECT_BYTES));
    let mut ready: Vec<Arc<str>> = Vec::with_capacity(moved.len());
    for (to, ids) in moved {
        ready.extend(view.queue_of(to).map(|queue| Arc::clone(queue.name)));
        effects.push(Effect::Redriven { to, ids });
    }
    ready.sort_unstable();
    Ok(QueueOutcome::Redriven { messages: messages as u64, more, ready: ready.into_boxed_slice() })
}
