//! Whose subscriptions they are, and what the caller may follow.

use hubbub_core::{RoomId, UserId};

use super::Subscriptions;
use crate::auth::Right;
use crate::auth::caller::{Caller, Requirement};

impl Subscriptions {
    /// From now on with this caller's rights; the caller's name stays the same. Gives the rooms whose subscriptions end
    /// with it. Who follows all rooms gets those that were left out for lack of rights, if other rights allow it.
    pub(in crate::ws) fn set_caller(&mut self, caller: &Caller) -> Vec<RoomId> {
        let before = self.caller.replace(caller.clone());
        let lost = |room: &RoomId| !caller.is_allowed(Requirement::Room(Right::Read, room.as_str()));
        let ended: Vec<RoomId> = self.rooms.keys().filter(|room| lost(room)).cloned().collect();
        for room in &ended {
            self.remove(room);
        }
        if let Some(all) = &mut self.all {
            let has_other_rights =
                before.is_none_or(|before| before.access().grants != caller.access().grants);
            if has_other_rights && all.has_left_out {
                all.read_again();
            }
            all.has_left_out |= !ended.is_empty();
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
        let requirement = Requirement::Room(Right::Read, room.as_str());
        self.caller.as_ref().is_some_and(|caller| caller.is_allowed(requirement))
    }
}
