//! Whose subscriptions they are, and what the caller may follow.

use hubbub_core::{RoomId, UserId};

use super::Subscriptions;
use crate::auth::Right;
use crate::auth::caller::{Caller, Need};

impl Subscriptions {
    /// From now on with this caller's rights; the caller's name stays the same. Gives the rooms whose subscriptions end
    /// with it.
    pub(in crate::ws) fn set_caller(&mut self, caller: &Caller) -> Vec<RoomId> {
        self.caller = Some(caller.clone());
        let lost = |room: &RoomId| !caller.is_allowed(Need::Room(Right::Read, room.as_str()));
        let ended: Vec<RoomId> = self.rooms.keys().filter(|room| lost(room)).cloned().collect();
        for room in &ended {
            self.remove(room);
        }
        ended
    }

    /// Delivers nothing any more, whatever waits.
    pub(in crate::ws) fn stop(&mut self) {
        self.is_stopped = true;
        self.catching_up.clear();
        self.rooms.clear();
    }

    pub(in crate::ws) fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    pub(super) fn user(&self) -> Option<&UserId> {
        self.caller.as_ref()?.user.as_ref()
    }

    pub(super) fn may_read(&self, room: &RoomId) -> bool {
        let need = Need::Room(Right::Read, room.as_str());
        self.caller.as_ref().is_some_and(|caller| caller.is_allowed(need))
    }
}
