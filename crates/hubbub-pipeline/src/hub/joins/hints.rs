//! Hints that users became members of rooms, until each was looked up in the store.
//!
//! A hint has the mark that the user joined with, which nothing else knows later. So it is kept while the store cannot be
//! asked, for some seconds, and what a comparison finds meanwhile starts at that mark, too.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::future::join_all;
use hubbub_core::store::{Access, RoomStore};
use hubbub_core::{RoomId, UserId};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::super::changes::QUERIES_MAX;
use super::super::sockets::JoinedAt;
use super::super::{Hub, QueryAccess};
use super::{FIRST, LATER};

/// Hints that wait to be looked up.
const HINTS_MAX: usize = 10_000;
/// How often the store is asked again about a hint, and pause before that at first. It doubles each time.
const RETRIES: u32 = 5;
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// A user, and a room that the user may have joined.
type JoinKey = (UserId, RoomId);

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Hint {
    /// The mark that the user joined with, if it is known.
    mark: Option<u64>,
    /// How often the store was asked in vain.
    failed: u32,
}

#[derive(Debug, Default)]
pub(super) struct Hints {
    waiting: Mutex<WaitingHints>,
    pub(super) hinted: Notify,
}

#[derive(Debug, Default)]
struct WaitingHints {
    ready: HashMap<JoinKey, Hint>,
    /// Hints about which the store is to be asked again, and when.
    failed: HashMap<JoinKey, (Hint, Duration)>,
}

impl WaitingHints {
    fn is_full(&self) -> bool {
        self.ready.len() + self.failed.len() >= HINTS_MAX
    }

    /// Returns whether there is room for the hint. A mark that is known stays known.
    fn add(&mut self, key: JoinKey, hint: Hint) -> bool {
        if self.is_full() && !self.ready.contains_key(&key) {
            return false;
        }
        let waiting = self.ready.entry(key).or_default();
        *waiting = Hint { mark: hint.mark.or(waiting.mark), failed: waiting.failed.max(hint.failed) };
        true
    }
}

impl Hints {
    /// Puts back a hint about which the store could not be asked. Returns whether it is asked again.
    fn add_failed(&self, key: JoinKey, Hint { mark, failed }: Hint, now: Duration) -> bool {
        let mut waiting = self.waiting.lock();
        let is_kept = failed < RETRIES && (!waiting.is_full() || waiting.failed.contains_key(&key));
        if is_kept {
            let due = now + RETRY_PAUSE * (1 << failed);
            let mark = mark.or_else(|| waiting.failed.get(&key).and_then(|(hint, _)| hint.mark));
            waiting.failed.insert(key, (Hint { mark, failed: failed + 1 }, due));
        }
        is_kept
    }

    /// Lets hints be looked up again that are due.
    pub(super) fn recall(&self, now: Duration) {
        let mut waiting = self.waiting.lock();
        let due: Vec<_> = waiting.failed.extract_if(|_, (_, due)| *due <= now).collect();
        for (key, (hint, _)) in due {
            waiting.add(key, hint);
            self.hinted.notify_one();
        }
    }

    /// The mark of a hint that waits.
    pub(super) fn mark(&self, user: &UserId, room: &RoomId) -> Option<u64> {
        let waiting = self.waiting.lock();
        if waiting.ready.is_empty() && waiting.failed.is_empty() {
            return None;
        }
        let key = (user.clone(), room.clone());
        let failed = || waiting.failed.get(&key).map(|(hint, _)| hint);
        waiting.ready.get(&key).or_else(failed).and_then(|hint| hint.mark)
    }
}

impl Hub {
    /// Another server says that a user became a member.
    pub(in super::super) fn hint_join(&self, room: &RoomId, user: &str, mark: Option<u64>) {
        if self.behind.get().is_none() || !self.sockets.follow_all(user) {
            return;
        }
        let Ok(user) = UserId::new(user) else { return };
        let hints = &self.joins.hints;
        if hints.waiting.lock().add((user.clone(), room.clone()), Hint { mark, failed: 0 }) {
            hints.hinted.notify_one();
        } else {
            self.miss_join(user, LATER);
        }
    }

    /// Looks up all hints that wait.
    pub(in super::super) async fn look_up_hints(&self, store: &dyn RoomStore) {
        let access = |room, user| store.access(room, user);
        let hints: Vec<_> = self.joins.hints.waiting.lock().ready.drain().collect();
        for hints in hints.chunks(QUERIES_MAX) {
            join_all(hints.iter().map(|(key, hint)| self.look_up_join(key, Some(*hint), &access))).await;
        }
    }

    /// Notifies the sockets that follow all rooms of a user who became a member through this server.
    pub(in super::super) async fn announce_join(&self, room: RoomId, user: UserId, access: &QueryAccess<'_>) {
        self.look_up_join(&(user, room), None, access).await;
    }

    /// Notifies the sockets that follow all rooms of a user, if the user is a member of this one.
    async fn look_up_join(&self, key: &JoinKey, hint: Option<Hint>, access: &QueryAccess<'_>) {
        let (user, room) = key;
        let answer = access(room.clone(), user.clone()).await;
        let now = self.clock.monotonic();
        match answer {
            Ok(Access::Member { read_seq }) => {
                let at = JoinedAt::new(hint.and_then(|hint| hint.mark), read_seq);
                self.sockets.notify_joined(user, room, at, hint.is_some(), now);
            }
            // Removed again meanwhile.
            Ok(_) => {}
            Err(_) => {
                let is_kept = self.behind.get().is_some()
                    && self.joins.hints.add_failed(key.clone(), hint.unwrap_or_default(), now);
                if !is_kept {
                    self.miss_join(user.clone(), FIRST);
                }
            }
        }
    }

    /// A join of this user is not known. What the store lists shows it; who gets no notifications of that reconnects.
    fn miss_join(&self, user: UserId, rank: usize) {
        let is_listing = self.behind.get().is_some();
        self.sockets.cut_unlisted(&user, is_listing);
        if is_listing {
            self.compare_soon([user], rank);
        }
    }
}
