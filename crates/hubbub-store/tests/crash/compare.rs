//! Comparing what an engine holds with what it must hold.

use hubbub_core::store::{Cursor, HistoryQuery, ReadError};
use hubbub_store::embedded::Engine;

use crate::model::{Sent, Stored};
use crate::run::{ROOMS, Run};

impl Run {
    /// Everything acknowledged is there once, in order; nothing else is, except a batch in doubt as a whole.
    pub(crate) fn compare(&mut self, engine: &Engine) {
        let doubt = self.model.in_doubt.take();
        let mut found = 0;
        let mut wanted = doubt.iter().flatten().cloned().collect::<Vec<_>>();
        for name in ROOMS {
            let Some(actual) = self.read_all(engine, name) else {
                assert_eq!(self.model.rooms.get(name).map_or(0, |room| room.head), 0, "{name} is gone");
                continue;
            };
            let mut expected = self.model.rooms.get(name).cloned().unwrap_or_default().messages;
            let mut place = 0;
            for (stored, received, message) in &actual {
                while place < expected.len() && expected[place].seq < *stored {
                    self.must_be_old(name, &expected[place]);
                    self.model.forget(name, expected[place].seq);
                    place += 1;
                }
                if expected.get(place).is_some_and(|known| known.seq == *stored) {
                    let known = &expected[place];
                    assert_eq!((&known.sent, known.received), (message, *received), "{name} {stored}");
                    place += 1;
                    continue;
                }
                let at = wanted.iter().position(|other| other == message);
                let at = at.unwrap_or_else(|| panic!("{name} holds {stored} {message:?}, which nobody sent"));
                wanted.remove(at);
                if let Some(old) = self.model.find(name, &message.id).cloned() {
                    self.must_be_old(name, &old);
                    self.model.forget(name, old.seq);
                }
                self.model.store(message, *stored, *received);
                found += 1;
                expected = self.model.rooms[name].messages.clone();
                place = expected.len();
            }
            for gone in &expected[place..] {
                self.must_be_old(name, gone);
                self.model.forget(name, gone.seq);
            }
        }
        let sent = doubt.map_or(0, |doubt| doubt.len());
        // Of a batch that repeats what may have been dropped, the repeated ones may be known already.
        assert!(
            found == 0 || wanted.is_empty() || self.options.retention.is_some(),
            "{found} of {sent} messages in doubt are there"
        );
        self.compare_infos(engine);
    }

    fn compare_infos(&self, engine: &Engine) {
        let infos = engine.rooms(None, 100);
        assert!(infos.iter().is_sorted_by_key(|info| info.room.clone()));
        for info in infos {
            // Under durability `os` a head may have survived all messages of its room.
            let room = self.model.rooms.get(info.room.as_str()).cloned().unwrap_or_default();
            assert!(info.head >= room.head);
            assert_eq!(info.messages, room.messages.len() as u64, "{info:?}");
            assert_eq!(info.oldest, room.messages.first().map_or(info.head + 1, |first| first.seq));
        }
        assert_eq!(
            engine.figures().messages,
            self.model.rooms.values().map(|room| room.messages.len() as u64).sum::<u64>()
        );
    }

    fn must_be_old(&self, room: &str, gone: &Stored) {
        assert!(gone.received < self.cutoff(), "{room} lost {gone:?}");
    }

    /// A room from end to end, in pages, from either end.
    fn read_all(&self, engine: &Engine, room: &str) -> Option<Vec<(u64, i64, Sent)>> {
        let backward = self.one_in(3);
        let limit = 1 + self.below(40) as usize;
        let mut all = Vec::new();
        let mut cursor = if backward { Cursor::Before(u64::MAX) } else { Cursor::After(0) };
        loop {
            let query = HistoryQuery { cursor, from: None, to: None, limit, bytes_max: 20_000 };
            let page = match engine.history(room, &query) {
                Ok(page) => page,
                Err(ReadError::UnknownRoom) => return None,
                Err(error) => {
                    assert!(self.is_excused(), "{error}");
                    return Some(all);
                }
            };
            let mut part: Vec<_> = page
                .messages
                .iter()
                .map(|message| {
                    let sent = message.sent;
                    (
                        message.seq,
                        message.received_at.as_micros(),
                        Sent {
                            room: sent.room.into(),
                            user: sent.user.into(),
                            id: sent.id.into(),
                            username: sent.username.map(Into::into),
                            text: sent.text.into(),
                            timestamp: sent.timestamp.as_micros(),
                        },
                    )
                })
                .collect();
            assert!(!part.is_empty() || !page.more);
            match (backward, part.first(), part.last()) {
                (true, Some(first), _) => {
                    cursor = Cursor::Before(first.0);
                    part.extend(all);
                    all = part;
                }
                (false, _, Some(last)) => {
                    cursor = Cursor::After(last.0);
                    all.extend(part);
                }
                _ => {}
            }
            if !page.more {
                return Some(all);
            }
        }
    }

    /// Under durability `os` a crash may take the end; what is left must be what was there, and heads stay.
    pub(crate) fn take_over_what_is_left(&mut self, engine: &Engine) {
        let before = std::mem::take(&mut self.model);
        for name in ROOMS {
            let room = before.rooms.get(name).cloned().unwrap_or_default();
            let left = self.read_all(engine, name).unwrap_or_default();
            let doubt = before.in_doubt.iter().flatten();
            for (seq, received, sent) in left {
                let known = room
                    .messages
                    .iter()
                    .any(|old| old.seq == seq && old.sent == sent && old.received == received);
                assert!(
                    known || doubt.clone().any(|doubt| *doubt == sent),
                    "{name} holds {sent:?}, which nobody sent"
                );
                self.model.store(&sent, seq, received);
            }
        }
    }
}
