//! What the engine must hold, kept as simply as possible.

use std::collections::{BTreeMap, HashMap};

use hubbub_core::{MessageType, Op, OpBatch, Outcome, Refusal, Send, Timestamp};

/// A message as it was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) room: String,
    pub(crate) user: String,
    pub(crate) id: String,
    pub(crate) username: Option<String>,
    pub(crate) text: String,
    pub(crate) timestamp: i64,
}

impl Sent {
    pub(crate) fn send(&self) -> Send<'_> {
        Send {
            room: &self.room,
            user: &self.user,
            id: &self.id,
            username: self.username.as_deref(),
            text: &self.text,
            kind: MessageType::Text,
            timestamp: Timestamp::from_micros(self.timestamp),
        }
    }
}

pub(crate) fn batch(sent: &[Sent]) -> OpBatch {
    let mut batch = OpBatch::default();
    for message in sent {
        batch.push(&Op::Send(message.send()));
    }
    batch
}

#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub(crate) seq: u64,
    pub(crate) received: i64,
    pub(crate) sent: Sent,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Room {
    /// In order.
    pub(crate) messages: Vec<Stored>,
    pub(crate) head: u64,
    pub(crate) last_received: i64,
}

/// Everything acknowledged, and one batch of which nobody knows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Model {
    pub(crate) rooms: BTreeMap<String, Room>,
    /// Place of each id in its room's messages is found by seq.
    pub(crate) ids: HashMap<(String, String), u64>,
    /// What the batch under way at the crash would have stored, and when it was sent.
    pub(crate) in_doubt: Option<Vec<Sent>>,
}

impl Model {
    pub(crate) fn find(&self, room: &str, id: &str) -> Option<&Stored> {
        let seq = self.ids.get(&(room.to_owned(), id.to_owned()))?;
        let room = self.rooms.get(room)?;
        room.messages.iter().find(|stored| stored.seq == *seq)
    }

    pub(crate) fn store(&mut self, sent: &Sent, seq: u64, received: i64) {
        let room = self.rooms.entry(sent.room.clone()).or_default();
        assert!(seq > room.head, "{}: number {seq} given after {}", sent.room, room.head);
        assert!(received >= room.last_received, "{}: time went back", sent.room);
        (room.head, room.last_received) = (seq, received);
        room.messages.push(Stored { seq, received, sent: sent.clone() });
        self.ids.insert((sent.room.clone(), sent.id.clone()), seq);
    }

    pub(crate) fn forget(&mut self, room: &str, seq: u64) {
        let Some(entry) = self.rooms.get_mut(room) else { return };
        if let Some(place) = entry.messages.iter().position(|stored| stored.seq == seq) {
            let gone = entry.messages.remove(place);
            self.ids.remove(&(room.to_owned(), gone.sent.id));
        }
    }

    /// Checks the outcomes of a batch and takes over what was stored. Messages received before `cutoff` may be gone.
    pub(crate) fn acknowledged(&mut self, batch: &[Sent], outcomes: &[Outcome], cutoff: i64) {
        assert_eq!(batch.len(), outcomes.len());
        for (sent, outcome) in batch.iter().zip(outcomes) {
            let known = self.find(&sent.room, &sent.id).cloned();
            match (outcome, known) {
                (Outcome::Stored(receipt), None) => {
                    self.store(sent, receipt.seq, receipt.received_at.as_micros());
                }
                (Outcome::Stored(receipt), Some(old)) => {
                    assert!(old.received < cutoff, "{old:?} was stored twice");
                    self.forget(&sent.room, old.seq);
                    self.store(sent, receipt.seq, receipt.received_at.as_micros());
                }
                (Outcome::Duplicate(receipt), Some(old)) => {
                    assert!(
                        old.sent.send().same_content(&sent.send()),
                        "{sent:?} is no duplicate of {old:?}"
                    );
                    assert_eq!((receipt.seq, receipt.received_at.as_micros()), (old.seq, old.received));
                }
                (Outcome::Refused(Refusal::IdReused { seq }), Some(old)) => {
                    assert!(!old.sent.send().same_content(&sent.send()));
                    assert_eq!(*seq, old.seq);
                }
                (outcome, known) => panic!("{sent:?} was answered {outcome:?}, known: {known:?}"),
            }
        }
    }
}
