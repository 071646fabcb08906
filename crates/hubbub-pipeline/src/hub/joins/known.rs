//! What a socket that follows all rooms of a user knows of these rooms, so that it is notified once of each join.

use std::collections::HashMap;

use hubbub_core::RoomId;
use hubbub_core::store::Membership;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// The socket was notified of a join.
    Notified,
    /// There is nothing to notify of as long as the membership has this version.
    AsOf(Option<u64>),
    /// The user was no member yet when the store was asked; it may list a room a moment before it shows the member.
    NotYet(u64),
}

/// The rooms that one socket knows of.
#[derive(Debug, Default)]
pub(in super::super) struct KnownRooms(HashMap<RoomId, Known>);

impl KnownRooms {
    /// Those that were listed before the socket read the user's rooms.
    pub(in super::super) fn new(listed: Vec<Membership>) -> Self {
        Self(listed.into_iter().map(|listed| (listed.room, Known::AsOf(listed.version))).collect())
    }

    /// The socket is notified of a join. Returns false if it was before, and nothing ended that.
    pub(in super::super) fn notify(&mut self, room: &RoomId) -> bool {
        self.0.insert(room.clone(), Known::Notified) != Some(Known::Notified)
    }

    /// Whether the socket is to be notified, if the user is a member.
    pub(in super::super) fn lacks(&mut self, listed: &Membership) -> bool {
        match self.0.get_mut(&listed.room) {
            None | Some(Known::NotYet(_)) => true,
            Some(Known::AsOf(version)) => *version != listed.version,
            Some(known @ Known::Notified) => {
                // From now on this join can be told from the next one.
                *known = Known::AsOf(listed.version);
                false
            }
        }
    }

    /// The store was asked whether the user is a member of a room. Returns whether the socket is to be notified.
    pub(in super::super) fn settle(&mut self, listed: &Membership, is_member: bool) -> bool {
        if !self.lacks(listed) {
            return false;
        }
        let known = match listed.version {
            version if is_member => Known::AsOf(version),
            Some(version) if self.0.get(&listed.room) != Some(&Known::NotYet(version)) => {
                Known::NotYet(version)
            }
            Some(version) => Known::AsOf(Some(version)),
            // It was listed for a member. Once there is one again, it is another one.
            None => {
                self.forget(&listed.room);
                return false;
            }
        };
        self.0.insert(listed.room.clone(), known);
        is_member
    }

    /// The user was seen not to be a member.
    pub(in super::super) fn forget(&mut self, room: &RoomId) {
        self.0.remove(room);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(room: &str, version: Option<u64>) -> Membership {
        Membership { room: RoomId::new(room).unwrap(), version }
    }

    #[test]
    fn each_join_is_notified_of_once() {
        for version in [None, Some(7)] {
            let (old, new) = (listed("old", version), listed("new", version));
            let mut known = KnownRooms::new(vec![old.clone()]);
            assert!(!known.lacks(&old) && known.lacks(&new));
            assert!(known.settle(&new, true) && !known.lacks(&new) && !known.settle(&new, true));
            // Somebody told of it before it was listed.
            let told = listed("told", version);
            assert!(known.notify(&told.room) && !known.notify(&told.room));
            assert!(!known.lacks(&told) && !known.lacks(&told));
            assert!(known.notify(&told.room), "by now that is another join");
            // Removed, and seen to be so: the next listing is of another join.
            known.forget(&old.room);
            assert!(known.lacks(&old) && known.settle(&old, true));
        }
    }

    #[test]
    fn a_room_listed_for_others_than_members_is_looked_at_twice() {
        let mut known = KnownRooms::new(vec![listed("r", Some(1))]);
        assert!(!known.lacks(&listed("r", Some(1))));
        let joining = listed("r", Some(2));
        assert!(known.lacks(&joining) && !known.settle(&joining, false));
        assert!(known.lacks(&joining), "the member may be shown a moment later");
        assert!(!known.settle(&joining, false) && !known.lacks(&joining), "it is no member's");
        assert!(known.lacks(&listed("r", Some(3))) && known.settle(&listed("r", Some(3)), true));
        let left = listed("s", None);
        assert!(!known.settle(&left, false) && known.lacks(&left), "only members are listed there");
    }
}
