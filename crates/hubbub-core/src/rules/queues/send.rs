//! Sending messages.

use std::ops::ControlFlow;

use super::effect::{Effect, NewMessage, Recipient, Removal};
use super::manage::register_client;
use super::view::{Held, QueueRef, View};
use super::{Decided, EffectsOf, Stop, micros, space};
use crate::Refusal;
use crate::invariant::saturate;
use crate::queue::{Audience, BROADCAST_TTL_MS, Due, QueueOutcome, QueueSend, TAKE_MAX, WhenFull};
use crate::time::Timestamp;

pub(super) fn send<'a, V: View>(
    view: &V,
    send: &QueueSend<'a>,
    effects: &mut EffectsOf<'a, V>,
) -> Decided<V> {
    let queue = view.queue(send.queue)?.ok_or(Refusal::UnknownQueue)?;
    let is_registered = view.client(send.sender).is_some_and(|sender| sender.is_registered);
    let is_admitted = is_registered || (send.registers && view.autoregisters());
    if !is_admitted {
        return Err(Refusal::UnknownClient.into());
    }
    let to = recipient(view, send.audience)?;
    let known_as = view.fingerprint(queue.number, send);
    if let Some(known_as) = &known_as
        && let Some(before) = view.remembered(queue.number, known_as)?
    {
        let (id, copies, sent_at) = (before.id, before.copies, Timestamp::from_micros(before.sent_at));
        let repeat = QueueOutcome::Sent { id, copies, sent_at, duplicate: true };
        return if before.is_same { Ok(repeat) } else { Err(Refusal::MessageIdReused { id }.into()) };
    }
    let copies = if to == Recipient::All { view.receivers_but(send.sender)? } else { 1 };
    let dropped = oldest_to_drop(view, &queue, send, copies, effects)?;
    if to == Recipient::All && !view.has_room_for_broadcast(send, copies)? {
        return Err(Refusal::TooManyBroadcasts.into());
    }
    let id = view.new_ids(copies)?;
    let (sender, _) = register_client(view, send.sender, effects)?;
    let at = view.now();
    if !dropped.is_empty() {
        effects.push(Effect::Gone { at, why: Removal::Dropped, ids: dropped });
    }
    effects.push(Effect::Send(NewMessage {
        id,
        copies,
        queue: queue.number,
        sender,
        to,
        known_as,
        at,
        delay: delay(send.due, at),
        ttl: ttl_ms(send, queue.rules.ttl_ms).map(micros),
        group: send.group,
        text: send.text,
    }));
    Ok(QueueOutcome::Sent { id, copies, sent_at: Timestamp::from_micros(at), duplicate: false })
}

fn recipient<V: View>(view: &V, audience: Audience<'_>) -> Result<Recipient<V::Number>, Refusal> {
    match audience {
        Audience::Anyone => Ok(Recipient::Anyone),
        Audience::One(name) => {
            let client = view.client(name).filter(|client| client.is_registered);
            Ok(Recipient::One(client.ok_or(Refusal::UnknownReceiver)?.number))
        }
        Audience::All => Ok(Recipient::All),
    }
}

fn delay(due: Due, now: i64) -> u64 {
    match due {
        Due::Now => 0,
        Due::In(ms) => micros(ms),
        // What is past is due now.
        Due::At(time) => saturate(time.as_micros().saturating_sub(now)),
    }
}

fn ttl_ms(send: &QueueSend<'_>, of_queue: u64) -> Option<u64> {
    let is_broadcast = send.audience == Audience::All;
    send.ttl_ms.or((of_queue > 0).then_some(of_queue)).or(is_broadcast.then_some(BROADCAST_TTL_MS))
}

/// How many times its `maxBytes` a queue may hold until enough small messages went for large ones.
const BYTES_EXCESS: u64 = 2;

/// Which messages must go for new ones, if the queue is full. Many go bit by bit.
fn oldest_to_drop<V: View>(
    view: &V,
    queue: &QueueRef<'_, V::Number>,
    send: &QueueSend<'_>,
    copies: u32,
    effects: &EffectsOf<'_, V>,
) -> Result<Vec<u64>, Stop<V::LoadRequest>> {
    let rules = queue.rules;
    if rules.messages_max == 0 && rules.bytes_max == 0 {
        return Ok(Vec::new());
    }
    let limit = |max: u64| if max == 0 { u64::MAX } else { max };
    let (messages_max, bytes_max) = (limit(rules.messages_max), limit(rules.bytes_max));
    let new = u64::from(copies);
    let new_bytes = new.saturating_mul(send.text.len() as u64);
    let fits = |held: Held| {
        held.messages.saturating_add(new) <= messages_max && held.bytes.saturating_add(new_bytes) <= bytes_max
    };
    let mut held = view.held(queue.number)?;
    if fits(held) {
        return Ok(Vec::new());
    }
    if rules.when_full == WhenFull::Refuse || !fits(Held::default()) {
        return Err(Refusal::QueueFull.into());
    }
    let most = effects.list_max(TAKE_MAX, space::LISTED_BYTES);
    let (mut dropped, mut is_enough) = (Vec::new(), false);
    view.visit_oldest(queue.number, |id, bytes| {
        dropped.push(id);
        held.messages = held.messages.saturating_sub(1);
        held.bytes = held.bytes.saturating_sub(bytes);
        is_enough = fits(held) || dropped.len() >= most;
        if is_enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    // The rest is on lease. And a queue over its limit gets no more messages than go, and never twice its bytes: large ones may
    // come for small ones, of which not enough can go at once.
    let is_too_much = !fits(held)
        && (new > dropped.len() as u64
            || held.bytes.saturating_add(new_bytes) > bytes_max.saturating_mul(BYTES_EXCESS));
    if is_enough && !is_too_much { Ok(dropped) } else { Err(Refusal::QueueFull.into()) }
}
