//! Making and deleting queues, registering clients.

use std::sync::Arc;

use super::effect::Effect;
use super::view::View;
use super::{Decided, EffectsOf, Stop, space};
use crate::Refusal;
use crate::queue::{QueueOutcome, QueueSettings};
use crate::queue_rules::QueueRules;

/// Longer names are no numbers here: those are chosen by people or counted, and there must be a next one.
const DIGITS_MAX: usize = 18;

/// The number that a queue's name is, written the usual way.
pub fn number_named(name: &str) -> Option<u64> {
    let is_usual =
        name.len() <= DIGITS_MAX && !name.starts_with('0') && name.bytes().all(|byte| byte.is_ascii_digit());
    if is_usual { name.parse().ok() } else { None }
}

pub(super) fn put<'a, V: View>(
    view: &V,
    name: &str,
    settings: &QueueSettings,
    effects: &mut EffectsOf<'a, V>,
) -> Decided<V> {
    let found = view.queue(name)?;
    let before = found.map(|queue| queue.rules.clone()).unwrap_or_default();
    let settings = before.changed(settings);
    let limits_deliveries = settings.deliveries_max > 0;
    let dead_letter = limits_deliveries.then(|| settings.dead_letter_of(name));
    // A queue may be its own dead-letter queue.
    let is_own = dead_letter.as_deref() == Some(name);
    let (queue, created) = match found {
        Some(queue) => {
            let number = queue.number;
            if queue.is_new || settings != before || (is_own && !queue.is_dead_letter) {
                let name = Arc::clone(queue.name);
                effects.push(Effect::Put { number, name, is_dead_letter: is_own, settings });
            }
            (Arc::clone(queue.name), queue.is_new)
        }
        None => {
            let (number, name) = (view.new_queue(name, effects.made())?, Arc::<str>::from(name));
            let put = Effect::Put { number, name: Arc::clone(&name), is_dead_letter: is_own, settings };
            effects.push_made(put);
            (name, true)
        }
    };
    if let Some(dead_letter) = dead_letter.filter(|_| !is_own) {
        dead_letter_queue(view, &dead_letter, effects)?;
    }
    Ok(QueueOutcome::Queue { queue, created })
}

/// The number of a queue for dead letters, which is made if there is none.
pub(super) fn dead_letter_queue<V: View>(
    view: &V,
    name: &Arc<str>,
    effects: &mut EffectsOf<'_, V>,
) -> Result<V::Number, Stop<V::LoadRequest>> {
    let found = view.queue(name)?;
    if let Some(queue) = found.filter(|queue| queue.is_dead_letter) {
        return Ok(queue.number);
    }
    if let Some(number) = effects.dead_letter_queue(name) {
        return Ok(number);
    }
    let name = Arc::clone(name);
    match found {
        Some(queue) => {
            let (number, settings) = (queue.number, queue.rules.clone());
            effects.push(Effect::Put { number, name, is_dead_letter: true, settings });
            Ok(number)
        }
        None => {
            let number = view.new_queue(&name, effects.made())?;
            let settings = QueueRules::default();
            effects.push_made(Effect::Put { number, name, is_dead_letter: true, settings });
            Ok(number)
        }
    }
}

pub(super) fn put_numbered<V: View>(view: &V, effects: &mut EffectsOf<'_, V>) -> Decided<V> {
    let name = view.highest_named()?.saturating_add(1).to_string();
    // Behind the highest number there is, a name is none, and would be given again and again.
    if number_named(&name).is_none() {
        return Err(Refusal::NoQueueNumber.into());
    }
    match put(view, &name, &QueueSettings::default(), effects)? {
        QueueOutcome::Queue { created: false, .. } => Err(Refusal::NoQueueNumber.into()),
        made => Ok(made),
    }
}

pub(super) fn delete<V: View>(
    view: &V,
    name: &str,
    force: bool,
    effects: &mut EffectsOf<'_, V>,
) -> Decided<V> {
    let number = view.queue(name)?.ok_or(Refusal::UnknownQueue)?.number;
    let messages = view.held(number)?.messages;
    if messages > 0 && !force {
        return Err(Refusal::QueueNotEmpty { messages }.into());
    }
    effects.push(Effect::Delete { number });
    Ok(QueueOutcome::Deleted { messages, ready: Box::default() })
}

pub(super) fn register<'a, V: View>(view: &V, name: &'a str, effects: &mut EffectsOf<'a, V>) -> Decided<V> {
    let (_, changed) = register_client(view, name, effects)?;
    Ok(QueueOutcome::Client { changed })
}

/// The number of a client, who is registered if that is not so yet; says whether.
pub(super) fn register_client<'a, V: View>(
    view: &V,
    name: &'a str,
    effects: &mut EffectsOf<'a, V>,
) -> Result<(V::Number, bool), Stop<V::LoadRequest>> {
    let client = view.client(name);
    if let Some(client) = client.filter(|client| client.is_registered) {
        return Ok((client.number, false));
    }
    if !view.has_room_for_client()? {
        return Err(Refusal::TooManyClients.into());
    }
    let number = client.map_or_else(|| view.new_client(), |client| Ok(client.number))?;
    effects.push(Effect::Client { number, name, registered: true, kept: Vec::new() });
    Ok((number, true))
}

/// A client goes with its copies, except those on lease: whoever holds one may still acknowledge it. If the journal
/// has no space to list these now, the operation is refused rather than any of them dropped; the store finds the space
/// that is [`Effects::missing`] for the retry.
///
/// [`Effects::missing`]: super::Effects::missing
pub(super) fn unregister<'a, V: View>(
    view: &mut V,
    name: &'a str,
    effects: &mut EffectsOf<'a, V>,
) -> Decided<V> {
    let Some(client) = view.client(name) else { return Ok(QueueOutcome::Client { changed: false }) };
    let (number, changed) = (client.number, client.is_registered);
    let copies = view.copies_for(number)?;
    let is_kept = |(id, is_leased): &(u64, bool)| is_leased.then_some(*id);
    let kept: Vec<u64> = copies.iter().filter_map(is_kept).collect();
    if changed || kept.len() < copies.len() {
        if !effects.fits(space::of_ids(&kept)) {
            return Err(Refusal::TooManyBroadcasts.into());
        }
        effects.push(Effect::Client { number, name, registered: false, kept });
    }
    Ok(QueueOutcome::Client { changed })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_usual_way_of_writing_makes_a_number() {
        for (name, number) in [("7", Some(7)), ("999999999999999999", Some(999_999_999_999_999_999))] {
            assert_eq!(number_named(name), number);
        }
        for name in ["", "0", "07", "+7", "7a", "9999999999999999999"] {
            assert_eq!(number_named(name), None, "{name}");
        }
    }
}
