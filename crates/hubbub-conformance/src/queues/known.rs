//! What the model remembers of messages that have ids of their senders'.

use std::collections::BTreeMap;
use std::ops::Range;

use hubbub_core::queue::{ID_KEPT_MS, QueueSend};
use hubbub_core::{QueueOutcome, Refusal, Timestamp};

use super::model::Msg;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Known {
    /// The message, or its copies.
    ids: Range<u64>,
    content: Content,
    sent_at: Timestamp,
    /// When it, or the last of its copies, went.
    gone_at: Option<i64>,
}

/// Sender, whom it was for, group, text.
type Content = (String, String, Option<String>, String);

fn content(sent: &QueueSend<'_>) -> Content {
    let audience = format!("{:?}", sent.audience);
    (sent.sender.to_owned(), audience, sent.group.map(str::to_owned), sent.text.to_owned())
}

/// Ids by queue and sender's id.
#[derive(Debug, Clone, Default)]
pub(super) struct KnownIds(BTreeMap<(String, String), Known>);

impl KnownIds {
    /// What a message is answered with whose id is known.
    pub(super) fn answer(&self, sent: &QueueSend<'_>) -> Option<Result<QueueOutcome, Refusal>> {
        let known = self.0.get(&(sent.queue.to_owned(), sent.message_id?.to_owned()))?;
        let Range { start: id, end } = known.ids;
        if known.content != content(sent) {
            return Some(Err(Refusal::MessageIdReused { id }));
        }
        let copies = u32::try_from(end - id).unwrap();
        Some(Ok(QueueOutcome::Sent { id, copies, sent_at: known.sent_at, duplicate: true }))
    }

    /// Remembers the id of a new message, if it has one.
    pub(super) fn insert(&mut self, sent: &QueueSend<'_>, ids: Range<u64>, sent_at: Timestamp) {
        if let Some(id) = sent.message_id {
            let known = Known { ids, content: content(sent), sent_at, gone_at: None };
            self.0.insert((sent.queue.to_owned(), id.to_owned()), known);
        }
    }

    /// Forgets those whose time has come.
    pub(super) fn forget(&mut self, now: i64) {
        let kept = i64::try_from(ID_KEPT_MS).unwrap() * 1_000;
        self.0.retain(|_, known| known.gone_at.is_none_or(|gone_at| gone_at + kept > now));
    }

    /// Notes which messages are there no more.
    pub(super) fn note_gone(&mut self, messages: &[Msg], now: i64) {
        for known in self.0.values_mut().filter(|known| known.gone_at.is_none()) {
            if !messages.iter().any(|message| known.ids.contains(&message.id)) {
                known.gone_at = Some(now);
            }
        }
    }

    /// Forgets those of a queue that is deleted.
    pub(super) fn drop_queue(&mut self, queue: &str) {
        self.0.retain(|(of, _), _| of != queue);
    }
}
