//! What a socket that follows all rooms of a user knows of these rooms, so that it is notified once of each join.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use hubbub_core::RoomId;
use hubbub_core::store::Membership;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// The socket was notified of a join.
    Notified,
    /// There is nothing to notify of as long as the membership has this version.
    AsOf(Option<u64>),
    /// The user was no member of what has this version when the store was asked first, at `since`. It is asked again at `next`.
    NotYet { version: u64, since: Duration, next: Duration },
}

/// A store may list a room before it shows the member. Pause between two looks at it, at least, and how long it is looked at:
/// longer than another server needs to complete what one that died had begun.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);
const LOOK_TIME: Duration = Duration::from_secs(60);

/// The rooms that one socket knows of.
#[derive(Debug, Default)]
pub(in super::super) struct KnownRooms(HashMap<RoomId, Known>);

impl KnownRooms {
    /// Those that were listed before the socket read the user's rooms.
    pub(in super::super) fn new(listed: Vec<Membership>) -> Self {
        Self(listed.into_iter().map(|listed| (listed.room, Known::AsOf(listed.version))).collect())
    }

    /// The socket is notified of a join.
    pub(in super::super) fn notify(&mut self, room: &RoomId) {
        self.0.insert(room.clone(), Known::Notified);
    }

    /// Forgets rooms that were listed for a member and are no more: what is listed again is another join.
    pub(in super::super) fn keep_listed(&mut self, listed: &[Membership]) {
        let is_left = |known: &Known| *known == Known::AsOf(None);
        if self.0.values().any(is_left) {
            let listed: HashSet<&RoomId> = listed.iter().map(|listed| &listed.room).collect();
            self.0.retain(|room, known| !is_left(known) || listed.contains(room));
        }
    }

    /// Whether the socket is to be notified, if the user is a member.
    pub(in super::super) fn lacks(&mut self, listed: &Membership, now: Duration) -> bool {
        match self.0.get_mut(&listed.room) {
            None => true,
            Some(Known::NotYet { version, next, .. }) => listed.version != Some(*version) || now >= *next,
            Some(Known::AsOf(version)) => *version != listed.version,
            Some(known @ Known::Notified) => {
                // From now on this join can be told from the next one.
                *known = Known::AsOf(listed.version);
                false
            }
        }
    }

    /// The store was asked whether the user is a member of a room. Returns whether the socket is to be notified.
    pub(in super::super) fn settle(&mut self, listed: &Membership, is_member: bool, now: Duration) -> bool {
        if !self.lacks(listed, now) {
            return false;
        }
        let Some(version) = listed.version.filter(|_| !is_member) else {
            // It was listed for a member. If there is none, then the next listing is of another join.
            self.forget(&listed.room);
            if is_member {
                self.0.insert(listed.room.clone(), Known::AsOf(listed.version));
            }
            return is_member;
        };
        let since = match self.0.get(&listed.room) {
            Some(Known::NotYet { version: before, since, .. }) if *before == version => *since,
            _ => now,
        };
        let looked = now.saturating_sub(since);
        let next = now + (looked * 3).max(LOOK_INTERVAL);
        let known = if looked < LOOK_TIME {
            Known::NotYet { version, since, next }
        } else {
            Known::AsOf(Some(version))
        };
        self.0.insert(listed.room.clone(), known);
        false
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

    const NOW: Duration = Duration::from_secs(1_000);

    #[test]
    fn each_join_is_notified_of_once() {
        for version in [None, Some(7)] {
            let (old, new) = (listed("old", version), listed("new", version));
            let mut known = KnownRooms::new(vec![old.clone()]);
            assert!(!known.lacks(&old, NOW) && known.lacks(&new, NOW));
            assert!(
                known.settle(&new, true, NOW) && !known.lacks(&new, NOW) && !known.settle(&new, true, NOW)
            );
            // Somebody told of it before it was listed.
            let told = listed("told", version);
            known.notify(&told.room);
            assert!(!known.lacks(&told, NOW) && !known.lacks(&told, NOW));
            // Removed, and seen to be so: the next listing is of another join.
            known.forget(&old.room);
            assert!(known.lacks(&old, NOW) && known.settle(&old, true, NOW));
        }
    }

    #[test]
    fn a_room_listed_for_others_than_members_is_looked_at_for_a_minute() {
        let mut known = KnownRooms::new(vec![listed("r", Some(1))]);
        assert!(!known.lacks(&listed("r", Some(1)), NOW));
        let (joining, mut looks) = (listed("r", Some(2)), Vec::new());
        for second in 0..1_000 {
            let now = NOW + Duration::from_secs(second);
            if known.lacks(&joining, now) {
                assert!(!known.settle(&joining, false, now) && !known.settle(&joining, false, now));
                looks.push(second);
            }
        }
        assert_eq!(looks, [0, 5, 20, 80], "the member may be shown later");
        assert!(known.lacks(&listed("r", Some(3)), NOW) && known.settle(&listed("r", Some(3)), true, NOW));
        let left = listed("s", None);
        assert!(!known.settle(&left, false, NOW) && known.lacks(&left, NOW), "only members are listed there");
    }

    #[test]
    fn a_room_that_is_listed_no_more_is_forgotten() {
        let (left, stays, told) = (listed("left", None), listed("stays", None), listed("told", None));
        let mut known = KnownRooms::new(vec![left.clone(), stays.clone()]);
        known.notify(&told.room);
        known.keep_listed(std::slice::from_ref(&stays));
        assert!(known.lacks(&left, NOW), "it is another join");
        assert!(!known.lacks(&stays, NOW) && !known.lacks(&told, NOW));
    }
}
