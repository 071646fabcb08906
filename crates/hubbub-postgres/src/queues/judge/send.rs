//! Taking messages in.

use std::collections::BTreeMap;

use hubbub_core::queue::{Audience, BROADCAST_TTL_MS, Due, QueueSend, TAKE_MAX, WhenFull};
use hubbub_core::{QueueOutcome, Refusal, Timestamp};
use sha2::{Digest, Sha256};

use super::{Judged, micros};
use crate::queues::image::{
    ANYBODY, CHUNK, Image, Known, Members, Message, Need, State, Stop, chunk_of, unsigned,
};

/// Bytes of copies that one batch makes at most of messages to everybody: each is held and written with its text.
const COPIED_BYTES_MAX: i64 = 256 << 20;

/// What a copy takes besides its text, in bytes, roughly.
const COPY_BYTES: i64 = 400;

/// Whom a message is for: clients by the chunks of their numbers, then those who have none yet, or one alone.
#[derive(Debug, Default)]
struct Recipients {
    chunks: BTreeMap<i32, Members>,
    new: Vec<i32>,
}

impl Recipients {
    fn count(&self) -> i64 {
        let new = i64::try_from(self.new.len()).unwrap_or(i64::MAX);
        self.chunks.values().map(Members::count).sum::<i64>().saturating_add(new)
    }

    /// In the order of the copies' ids.
    fn numbers(&self) -> Vec<i32> {
        let numbered = self
            .chunks
            .iter()
            .flat_map(|(chunk, members)| members.bits().map(move |bit| chunk * CHUNK + bit));
        numbered.chain(self.new.iter().copied()).collect()
    }
}

impl Image {
    pub(super) fn send(&mut self, send: &QueueSend<'_>) -> Judged {
        let judged = self.send_one(send);
        // One that is to be judged again still needs its id.
        if !matches!(judged, Err(Stop::Need(_))) {
            self.sends_left -= 1;
        }
        judged
    }

    fn send_one(&mut self, send: &QueueSend<'_>) -> Judged {
        let (queue, _) = self.queue_named(send.queue)?;
        let registered = self.registered(send.sender);
        if registered.is_none() && !(send.registers && self.autoregister) {
            return Err(Refusal::UnknownClient.into());
        }
        let receiver = match send.audience {
            Audience::Anyone => Some(ANYBODY),
            Audience::One(name) => Some(self.registered(name).ok_or(Refusal::UnknownReceiver)?),
            Audience::All => None,
        };
        let content = if send.message_id.is_some() { content(send) } else { 0 };
        if let Some(sent) = self.sent_before(queue, send, content)? {
            return Ok(sent);
        }
        let audience = match receiver {
            Some(receiver) => Recipients { new: vec![receiver], ..Recipients::default() },
            None => self.recipients(send.sender)?,
        };
        let count = audience.count();
        // A group orders each copy among others of its receiver, which takes all of them.
        let is_copy = send.audience == Audience::All;
        let is_pending = is_copy && send.group.is_none() && count > i64::from(self.broadcasts.at_once);
        if is_pending {
            self.check_broadcast_fits(count)?;
        }
        let receivers = if is_pending { Vec::new() } else { audience.numbers() };
        let made = if is_copy && !is_pending { count } else { 0 };
        let copied = made.saturating_mul(bytes_of(send).saturating_add(COPY_BYTES));
        if self.copied_bytes.saturating_add(copied) > COPIED_BYTES_MAX {
            return Err(Refusal::TooManyBroadcasts.into());
        }
        let dropped = self.too_many(queue, send, count)?;
        for id in &dropped {
            self.can_leave(*id)?;
        }
        let mut behind = Vec::with_capacity(receivers.len());
        for receiver in &receivers {
            behind.push(self.comes_behind(queue, *receiver, send.group)?);
        }
        if registered.is_none() {
            self.check_client_fits()?;
        }
        // One for nobody has an id too.
        if self.ids.end - self.ids.start < count.max(1) {
            return Err(Need::Ids(count.max(1) + self.sends_left.max(1) - 1).into());
        }
        for id in dropped {
            self.remove(id);
            self.tally(queue, |counts| counts.dropped += 1);
        }
        let sender = registered.unwrap_or_else(|| self.enter_client(send.sender));
        let first = self.ids.start;
        self.ids.start += count.max(1);
        self.copied_bytes += copied;
        self.tally(queue, |counts| counts.sent += count);
        let template = self.template(send, queue, sender, first);
        if is_pending {
            self.add_pending(template, &audience.chunks, &audience.new);
        } else {
            self.add_all(template, receivers, behind);
        }
        let copies = u32::try_from(count).unwrap_or(u32::MAX);
        if let Some(message_id) = send.message_id {
            let known = Known { first, content, sent_at: self.now, copies, is_new: true };
            self.known.insert((queue, message_id.to_owned()), known);
        }
        let sent_at = Timestamp::from_micros(self.now);
        Ok(QueueOutcome::Sent { id: unsigned(first), copies, sent_at, duplicate: false })
    }

    /// The answer to a send that repeats one.
    fn sent_before(
        &self,
        queue: i32,
        send: &QueueSend<'_>,
        content: i64,
    ) -> Result<Option<QueueOutcome>, Refusal> {
        let Some(message_id) = send.message_id else { return Ok(None) };
        let Some(known) = self.known.get(&(queue, message_id.to_owned())) else { return Ok(None) };
        let id = unsigned(known.first);
        if known.content != content {
            return Err(Refusal::MessageIdReused { id });
        }
        let sent_at = Timestamp::from_micros(known.sent_at);
        Ok(Some(QueueOutcome::Sent { id, copies: known.copies, sent_at, duplicate: true }))
    }

    /// What is the same in all copies of a message; its id is that of the first.
    fn template(&self, send: &QueueSend<'_>, queue: i32, sender: i32, first: i64) -> Message {
        let is_copy = send.audience == Audience::All;
        let settings = self.queues.get(&queue).map(|queue| &queue.settings);
        let ttl_of_queue = settings.map(|settings| settings.ttl_ms).filter(|ttl| *ttl > 0);
        let ttl_ms = send.ttl_ms.or(ttl_of_queue).or(is_copy.then_some(BROADCAST_TTL_MS));
        let lasts = match send.due {
            Due::Now => 0,
            Due::In(ms) => micros(ms),
            Due::At(time) => time.as_micros().saturating_sub(self.now),
        };
        let due_at = (lasts > 0).then(|| self.end_of(queue, lasts.min(micros(u64::MAX))));
        Message {
            id: first,
            queue,
            sender,
            receiver: ANYBODY,
            state: if due_at.is_some() { State::Delayed } else { State::Ready },
            behind: false,
            is_copy,
            deliveries: 0,
            earlier_deliveries: 0,
            sent_at: self.now,
            due_at,
            begun_at: due_at.map(|_| self.now),
            expires_at: ttl_ms.map(|ttl| self.end_of(queue, micros(ttl))),
            known_as: send.message_id.map(|_| first),
            group: send.group.map(Into::into),
            bytes: bytes_of(send),
            text: Some(send.text.to_owned()),
            copy_of: None,
            dead: None,
            stored_in: None,
            is_changed: false,
            is_gone: false,
        }
    }

    /// Adds a message for each receiver.
    fn add_all(&mut self, mut template: Message, receivers: Vec<i32>, behind: Vec<bool>) {
        let (text, first) = (template.text.take(), template.id);
        let mut texts = std::iter::repeat_n(text, receivers.len());
        for ((receiver, behind), id) in receivers.into_iter().zip(behind).zip(first..) {
            let text = texts.next().flatten();
            let mut message = Message { id, receiver, text, ..template.clone() };
            // Dropping the oldest may have let it pass.
            let group = message.group.as_deref();
            message.behind = behind && self.comes_behind(message.queue, receiver, group).unwrap_or(true);
            self.add(message);
        }
    }

    /// Whom a message to everybody is for.
    fn recipients(&self, sender: &str) -> Result<Recipients, Need> {
        let mut chunks = self.registered.clone().ok_or(Need::Registered)?;
        let mut new = Vec::new();
        for (name, client) in &self.clients {
            let is_meant = client.is_registered && &**name != sender;
            if client.no > ANYBODY {
                let (chunk, bit) = chunk_of(client.no);
                chunks.entry(chunk).or_default().set(bit, is_meant);
            } else if is_meant {
                new.push(client.no);
            }
        }
        // New ones in the order in which they registered.
        new.sort_unstable_by_key(|no| -no);
        Ok(Recipients { chunks, new })
    }

    fn check_broadcast_fits(&self, copies: i64) -> Result<(), Refusal> {
        let new = self.pending.values().filter(|pending| pending.is_new);
        let (messages, unmade) =
            new.fold(self.pending_before, |(messages, unmade), one| (messages + 1, unmade + one.unmade));
        let limits = &self.broadcasts;
        let fits = messages < limits.messages_max && unmade.saturating_add(copies) <= limits.copies_max;
        if fits || messages == 0 { Ok(()) } else { Err(Refusal::TooManyBroadcasts) }
    }

    /// Whether a new message finds others of its group before it.
    fn comes_behind(&self, queue: i32, receiver: i32, group: Option<&str>) -> Result<bool, Need> {
        let Some(group) = group else { return Ok(false) };
        // For someone who is new there is nothing in the database.
        let key = crate::queues::image::GroupKey { queue, receiver, group: group.into() };
        if receiver < ANYBODY {
            return Ok(self.groups.get(&key).is_some_and(|group| !group.alive.is_empty()));
        }
        self.group_has_any(&key)
    }

    /// Which messages must go for new ones, if the queue is full. Many go bit by bit.
    fn too_many(&self, queue: i32, send: &QueueSend<'_>, new: i64) -> Result<Vec<i64>, Stop> {
        let Some(settings) = self.queues.get(&queue).map(|queue| &queue.settings) else {
            return Ok(Vec::new());
        };
        if settings.messages_max == 0 && settings.bytes_max == 0 {
            return Ok(Vec::new());
        }
        let limit = |max: u64| if max == 0 { i64::MAX } else { i64::try_from(max).unwrap_or(i64::MAX) };
        let (messages_max, bytes_max) = (limit(settings.messages_max), limit(settings.bytes_max));
        let text_bytes = i64::try_from(send.text.len()).unwrap_or(i64::MAX);
        let new_bytes = new.saturating_mul(text_bytes);
        let fits = |messages: i64, bytes: i64| {
            messages.saturating_add(new) <= messages_max && bytes.saturating_add(new_bytes) <= bytes_max
        };
        let (mut messages, mut bytes) = self.held(queue)?;
        let mut dropped = Vec::new();
        if fits(messages, bytes) {
            return Ok(dropped);
        }
        if settings.when_full == WhenFull::Refuse || !fits(0, 0) {
            return Err(Refusal::QueueFull.into());
        }
        let frontier = self.oldest.get(&queue).ok_or(Need::Oldest(queue))?;
        let held = self.messages.values().filter(|message| message.queue == queue && !message.is_gone);
        let mut oldest: Vec<&Message> = held.filter(|message| message.state != State::Leased).collect();
        oldest.sort_unstable_by_key(|message| message.id);
        for message in oldest {
            if !frontier.is_complete && message.id > frontier.to {
                return Err(Need::Oldest(queue).into());
            }
            dropped.push(message.id);
            messages -= 1;
            bytes -= message.bytes;
            if fits(messages, bytes) || dropped.len() >= TAKE_MAX {
                return Ok(dropped);
            }
        }
        if !frontier.is_complete {
            return Err(Need::Oldest(queue).into());
        }
        // The rest is on lease.
        Err(Refusal::QueueFull.into())
    }
}

/// Bytes of a message's text.
fn bytes_of(send: &QueueSend<'_>) -> i64 {
    i64::try_from(send.text.len()).unwrap_or(i64::MAX)
}

/// A hash of all that makes two messages the same.
fn content(send: &QueueSend<'_>) -> i64 {
    let (audience, receiver) = match send.audience {
        Audience::Anyone => ("anyone", ""),
        Audience::One(receiver) => ("one", receiver),
        Audience::All => ("all", ""),
    };
    let mut hasher = Sha256::new();
    for part in [audience, send.sender, receiver, send.group.unwrap_or_default(), send.text] {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    let hash = hasher.finalize();
    hash.first_chunk().copied().map_or(0, i64::from_le_bytes)
}
