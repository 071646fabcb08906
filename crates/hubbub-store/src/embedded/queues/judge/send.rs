//! Taking messages in.

use hubbub_core::queue::{Audience, BROADCAST_TTL_MS, Due, QueueSend, TAKE_MAX};
use hubbub_core::{QueueOutcome, Refusal, Timestamp};

use super::{Judged, Judging, LISTED_BYTES};
use crate::embedded::queues::entry::State;
use crate::embedded::queues::table::Queue;
use crate::embedded::queues::time::micros;
use crate::embedded::queues::{Queues, SettledId, Telling, WhenFull};
use crate::embedded::record::{Queued, Sent, To, Why};

impl Queues {
    pub(super) fn send(&mut self, send: &QueueSend<'_>, judging: &mut Judging<'_>) -> Judged {
        let queue = self.queue_named(send.queue).ok_or(Refusal::UnknownQueue)?;
        let number = queue.number;
        let ttl_of_queue = Some(queue.settings.ttl_ms).filter(|ttl| *ttl > 0);
        let registered = self.registered(send.sender);
        if registered.is_none() && !(send.registers && judging.autoregister) {
            return Err(Refusal::UnknownClient);
        }
        let to = match send.audience {
            Audience::Anyone => To::Anyone,
            Audience::One(name) => To::One(self.registered(name).ok_or(Refusal::UnknownReceiver)?),
            Audience::All => To::All,
        };
        let known_as = send.message_id.map(|id| {
            let known_as = self.hash(&[&number.to_le_bytes(), id.as_bytes()]);
            (known_as, self.content(send))
        });
        if let Some((known_as, content)) = known_as
            && let Some(known) = self.find_sent(known_as, judging.now).map_err(|error| {
                judging.damage.note(&error);
                Refusal::Unreadable
            })?
        {
            let SettledId { id, copies, .. } = known;
            if known.content != content {
                return Err(Refusal::MessageIdReused { id });
            }
            let sent_at = Timestamp::from_micros(known.sent_at);
            return Ok(QueueOutcome::Sent { id, copies, sent_at, duplicate: true });
        }
        let sender =
            registered.or_else(|| self.client_number(send.sender)).unwrap_or_else(|| self.next_client());
        let copies = match to {
            To::All => u32::try_from(self.registered_but(sender).len()).unwrap_or(u32::MAX),
            To::Anyone | To::One(_) => 1,
        };
        let dropped = self.too_many(queue, send, copies, judging)?;
        if to == To::All && !self.has_room_for_broadcast(copies) {
            return Err(Refusal::TooManyBroadcasts);
        }
        if registered.is_none() {
            self.check_client_fits()?;
        }
        if registered.is_none() {
            self.enter_client(send.sender, judging);
        }
        let now = judging.now;
        if !dropped.is_empty() {
            judging.spare = judging.spare.saturating_sub(dropped.len() * LISTED_BYTES);
            let gone = Queued::Gone { at: now.wall, why: Why::Dropped, ids: dropped };
            self.log(&gone, Telling::Sweep, judging);
        }
        let ttl_ms = send.ttl_ms.or(ttl_of_queue).or((to == To::All).then_some(BROADCAST_TTL_MS));
        let id = self.next_id;
        let sent = Sent {
            id,
            copies,
            queue: number,
            sender,
            to,
            known_as,
            at: now.wall,
            delay: match send.due {
                Due::Now => 0,
                Due::In(ms) => micros(ms),
                Due::At(time) => u64::try_from(time.as_micros().saturating_sub(now.wall)).unwrap_or(0),
            },
            ttl: ttl_ms.map(micros),
            group: send.group,
            text: send.text,
        };
        self.log(&Queued::Send(sent), Telling::Nobody, judging);
        let sent_at = Timestamp::from_micros(now.wall);
        Ok(QueueOutcome::Sent { id, copies, sent_at, duplicate: false })
    }

    /// A hash of all that makes two messages the same.
    #[allow(clippy::cast_possible_truncation, reason = "a part of the hash is meant")]
    fn content(&self, send: &QueueSend<'_>) -> u32 {
        let (audience, receiver): (&[u8], &str) = match send.audience {
            Audience::Anyone => (b"anyone", ""),
            Audience::One(receiver) => (b"one", receiver),
            Audience::All => (b"all", ""),
        };
        let group = send.group.unwrap_or_default();
        let parts = [send.sender, receiver, group, send.text].map(str::as_bytes);
        let [sender, receiver, group, text] = parts;
        self.hash(&[audience, sender, receiver, group, text])[0] as u32
    }

    /// Which messages must go for new ones, if the queue is full. Many go bit by bit.
    fn too_many(
        &self,
        queue: &Queue,
        send: &QueueSend<'_>,
        copies: u32,
        judging: &Judging<'_>,
    ) -> Result<Vec<u64>, Refusal> {
        let (settings, counts) = (&queue.settings, &queue.counts);
        let limit = |max: u64| if max == 0 { u64::MAX } else { max };
        let (messages_max, bytes_max) = (limit(settings.messages_max), limit(settings.bytes_max));
        let new = u64::from(copies);
        let new_bytes = new.saturating_mul(send.text.len() as u64);
        let fits = |messages: u64, bytes: u64| {
            messages.saturating_add(new) <= messages_max && bytes.saturating_add(new_bytes) <= bytes_max
        };
        let (mut messages, mut bytes) = (counts.messages(), counts.bytes);
        let mut dropped = Vec::new();
        if fits(messages, bytes) {
            return Ok(dropped);
        }
        if settings.when_full == WhenFull::Refuse || !fits(0, 0) {
            return Err(Refusal::QueueFull);
        }
        let most = TAKE_MAX.min(1 + judging.spare / LISTED_BYTES);
        for id in &queue.all {
            let Some(entry) = self.entry_of(id) else { continue };
            if entry.state != State::Leased {
                dropped.push(id);
                messages = messages.saturating_sub(1);
                bytes = bytes.saturating_sub(entry.text_bytes());
            }
            if fits(messages, bytes) || dropped.len() >= most {
                return Ok(dropped);
            }
        }
        // The rest is on lease.
        Err(Refusal::QueueFull)
    }
}
