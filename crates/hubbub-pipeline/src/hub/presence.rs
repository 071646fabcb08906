//! Tells the subscribers of a room who came and who left.
//!
//! In a room with few subscribers each change is told at once. In a larger one the changes of [`COLLECTED`] are told together:
//! otherwise a crowd that comes or goes at once would cost as many deliveries as its size multiplied by itself, all of them under
//! the lock of the room. A user who left and came back meanwhile is no news, unless somebody asked who is present.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use hubbub_core::{RoomId, UserId};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::channel::Channel;
use super::outbox::Outbox;
use super::{Hub, Notice};

/// Subscribers up to which a room is told of each change at once.
pub(super) const AT_ONCE_MAX: usize = 100;
/// How long changes in larger rooms are collected.
const COLLECTED: Duration = Duration::from_millis(100);
/// Changes of a room that are collected at most: told together they must not fill the outbox of somebody who reads.
const COLLECTED_MAX: usize = 500;

/// Changes in a room that its subscribers were not told of.
#[derive(Default)]
pub(super) struct UntoldPresence {
    changes: HashMap<UserId, UntoldChange>,
    /// Whether the room is in the list of those that are to be told.
    is_listed: bool,
}

struct UntoldChange {
    /// As the subscribers know it.
    was_present: bool,
    /// Whether somebody asked who is present meanwhile, and may know it otherwise: then the subscribers are told in any case.
    is_seen: bool,
    /// The subscriber here that caused the last change, and is told nothing of it.
    cause: Option<Arc<Outbox>>,
}

/// The rooms whose subscribers are to be told of changes.
#[derive(Default)]
pub(super) struct RoomsToTell {
    rooms: Mutex<Vec<RoomId>>,
    added: Notify,
}

impl Channel {
    /// Whether the user is present on any server.
    pub(super) fn is_present(&self, user: &UserId) -> bool {
        self.present.contains_key(user) || self.remote.has(user)
    }

    /// Makes a change to who is present, of which the subscribers are to be told ([`Channel::tell_presence`]) if it makes a
    /// difference; returns whether it does. `cause` is the subscriber here that caused it, if it is one.
    pub(super) fn change_presence(
        &mut self,
        user: &UserId,
        cause: Option<&Arc<Outbox>>,
        change: impl FnOnce(&mut Self),
    ) -> bool {
        let was_present = self.is_present(user);
        change(self);
        if self.is_present(user) == was_present {
            return false;
        }
        let first = || UntoldChange { was_present, is_seen: false, cause: None };
        self.untold.changes.entry(user.clone()).or_insert_with(first).cause = cause.cloned();
        true
    }

    /// The users that are present, for somebody who asks.
    pub(super) fn show_present(&mut self) -> Vec<UserId> {
        self.untold.changes.values_mut().for_each(|untold| untold.is_seen = true);
        let here = self.present.keys().filter(|user| !self.is_to_be_checked(user));
        here.chain(self.remote.users()).cloned().collect()
    }

    /// Counts a subscription of `user` that became live or ended. All but `outbox` are told of the user's first and last one, at
    /// once or soon.
    pub(super) fn count_presence(
        &mut self,
        hub: &Hub,
        room: &str,
        user: &Option<UserId>,
        outbox: &Arc<Outbox>,
        is_online: bool,
    ) {
        let Some(user) = user else { return };
        let mut count = 0;
        self.change_presence(user, Some(outbox), |channel| {
            let before = channel.present.get(user).copied().unwrap_or(0);
            count = if is_online { before + 1 } else { before.saturating_sub(1) };
            match count {
                0 => channel.present.remove(user),
                _ => channel.present.insert(user.clone(), count),
            };
        });
        if count != usize::from(is_online) {
            return;
        }
        let id = RoomId::new(room);
        if let (Some(relay), Ok(room)) = (hub.relay.get(), &id) {
            relay.set_present(room, user, is_online);
        }
        match id {
            Ok(room) if self.subscribers.len() > AT_ONCE_MAX && self.untold.changes.len() < COLLECTED_MAX => {
                if !std::mem::replace(&mut self.untold.is_listed, true) {
                    hub.rooms_to_tell.add(room);
                }
            }
            _ => self.tell_presence(hub, room),
        }
    }

    /// Tells the subscribers of all changes they were not told of. Each gets one delivery, or two around its own change.
    pub(super) fn tell_presence(&mut self, hub: &Hub, room: &str) {
        let mut frames = Vec::new();
        let mut own: HashMap<*const Outbox, Range<usize>> = HashMap::new();
        // The outboxes live until the frames are sent: no other one can have the address of one of them.
        let changes = std::mem::take(&mut self.untold.changes);
        for (user, UntoldChange { was_present, is_seen, cause }) in &changes {
            let is_online = self.is_present(user);
            if is_online != *was_present || *is_seen {
                let start = frames.len();
                (hub.encoder.notice)(&Notice::Presence { room, user: user.as_str(), is_online }, &mut frames);
                own.extend(cause.iter().map(|outbox| (Arc::as_ptr(outbox), start..frames.len())));
            }
        }
        if !frames.is_empty() {
            let lacking = self.send_frames(hub, frames, &own);
            self.record_missed_notices(lacking);
        }
    }
}

impl RoomsToTell {
    fn add(&self, room: RoomId) {
        self.rooms.lock().push(room);
        self.added.notify_one();
    }
}

impl Hub {
    /// Tells the subscribers of large rooms of the changes that were collected.
    pub(super) async fn tell_rooms(&self) {
        let rooms = std::mem::take(&mut *self.rooms_to_tell.rooms.lock());
        for room in rooms {
            self.with_channel(room.as_str(), |channel| {
                channel.untold.is_listed = false;
                channel.tell_presence(self, room.as_str());
            });
            self.memory.enforce_bound();
            // Each may take as long as a message to as many subscribers.
            tokio::task::yield_now().await;
        }
    }
}

/// Tells the subscribers of large rooms who came and who left, until the task is aborted.
pub(crate) async fn tell_presence(hub: Arc<Hub>) {
    loop {
        hub.rooms_to_tell.added.notified().await;
        tokio::time::sleep(COLLECTED).await;
        hub.tell_rooms().await;
    }
}
