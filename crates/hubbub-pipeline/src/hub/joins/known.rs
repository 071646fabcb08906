//! The rooms that a socket knows which follows all rooms of a user, so that it is notified once of each join.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use hubbub_core::RoomId;
use hubbub_core::store::Membership;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// The socket was notified of a join at `at`. No listing that began later has shown it yet.
    Notified { at: Duration },
    /// There is nothing to notify of as long as the membership has this version. The socket was notified at `at`, if it was.
    AsOf { version: Option<u64>, at: Option<Duration> },
    /// It is listed, and the user was seen to be a member at `since`, with this mark. A hint may be under way, with the mark that
    /// the user joined with.
    Listed { since: Duration, mark: u64 },
    /// The user was no member of what has this version when the store was asked first, at `since`. It is asked again at `next`.
    NotYet { version: u64, since: Duration, next: Duration },
}

/// When to query whether the user is a member of a listed room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum NextCheck {
    /// There is nothing to notify of.
    Never,
    /// The room is to be listed again, soon.
    Soon,
    Now,
}

/// Result of a query whether the user is a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum CheckResult {
    Nothing,
    /// The room is to be listed again, soon.
    Soon,
    /// The socket is to be notified, and starts here.
    Notify {
        start: u64,
    },
}

/// A store may list a room before it shows the member. Shortest pause between two checks, and how long it is checked:
/// longer than another server needs to complete what one that died had begun.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
const CHECK_TIME: Duration = Duration::from_secs(60);
/// A room that is listed is told of after this time, unless a hint comes first. Hints need a fraction of it.
pub(super) const HINT_TIME: Duration = Duration::from_secs(1);
/// A hint that comes so soon after the socket was notified is of the same join, unless the user was seen not to be a member.
const HINT_LATE: Duration = Duration::from_secs(5);

/// The rooms that one socket knows of.
#[derive(Debug, Default)]
pub(in super::super) struct KnownRooms(HashMap<RoomId, Known>);

impl KnownRooms {
    /// Those that were listed before the socket read the user's rooms.
    pub(in super::super) fn new(listed: Vec<Membership>) -> Self {
        let as_of = |version| Known::AsOf { version, at: None };
        Self(listed.into_iter().map(|listed| (listed.room, as_of(listed.version))).collect())
    }

    /// The socket read these rooms, in which the user is a member.
    pub(in super::super) fn read<'a>(&mut self, rooms: impl IntoIterator<Item = &'a RoomId>, now: Duration) {
        for room in rooms {
            match self.0.get_mut(room) {
                Some(Known::AsOf { at, .. }) => *at = Some(now),
                _ => drop(self.0.insert(room.clone(), Known::Notified { at: now })),
            }
        }
    }

    /// The socket is notified of a join. Returns where it starts: the mark may have moved since the user was seen there.
    pub(in super::super) fn notify(&mut self, room: &RoomId, mark: u64, now: Duration) -> u64 {
        match self.0.insert(room.clone(), Known::Notified { at: now }) {
            Some(Known::Listed { mark: before, .. }) => before.min(mark),
            _ => mark,
        }
    }

    /// Whether the socket was notified of the join that a hint is about.
    pub(in super::super) fn has_heard(&self, room: &RoomId, now: Duration) -> bool {
        match self.0.get(room) {
            Some(Known::Notified { at } | Known::AsOf { at: Some(at), .. }) => {
                now.saturating_sub(*at) < HINT_LATE
            }
            _ => false,
        }
    }

    /// Forgets rooms that were listed for a member and are no more: what is listed again is another join.
    pub(in super::super) fn keep_listed(&mut self, listed: &HashSet<&RoomId>) {
        let is_left =
            |known: &Known| matches!(known, Known::AsOf { version: None, .. } | Known::Listed { .. });
        self.0.retain(|room, known| !is_left(known) || listed.contains(room));
    }

    /// What to do about a room in a listing that began `now`.
    pub(in super::super) fn next_check(&mut self, listed: &Membership, now: Duration) -> NextCheck {
        let when = |is_now| if is_now { NextCheck::Now } else { NextCheck::Never };
        match self.0.get(&listed.room).copied() {
            None => NextCheck::Now,
            Some(Known::NotYet { version, next, .. }) => when(listed.version != Some(version) || now >= next),
            Some(Known::Listed { since, .. }) if now.saturating_sub(since) < HINT_TIME => NextCheck::Soon,
            Some(Known::Listed { .. }) => NextCheck::Now,
            Some(Known::AsOf { version, .. }) => when(version != listed.version),
            Some(Known::Notified { at }) if now > at => {
                // From now on this join can be told from the next one.
                self.0.insert(listed.room.clone(), Known::AsOf { version: listed.version, at: Some(at) });
                NextCheck::Never
            }
            // The listing may be of the time before the join.
            Some(Known::Notified { .. }) => NextCheck::Never,
        }
    }

    /// The store has answered for a room in a listing that began `now`: the user is a member with this `mark`, or none.
    pub(in super::super) fn complete_check(
        &mut self,
        listed: &Membership,
        mark: Option<u64>,
        now: Duration,
    ) -> CheckResult {
        if self.next_check(listed, now) != NextCheck::Now {
            return CheckResult::Nothing;
        }
        let known = self.0.get(&listed.room).copied();
        if let Some(mark) = mark {
            let (known, result) = match known {
                Some(Known::Listed { mark: before, .. }) => {
                    let start = before.min(mark);
                    (Known::AsOf { version: listed.version, at: Some(now) }, CheckResult::Notify { start })
                }
                _ => (Known::Listed { since: now, mark }, CheckResult::Soon),
            };
            self.0.insert(listed.room.clone(), known);
            return result;
        }
        let Some(version) = listed.version else {
            // It was listed for a member. If there is none, then the next listing is of another join.
            self.forget(listed.room.as_str());
            return CheckResult::Nothing;
        };
        let since = match known {
            Some(Known::NotYet { version: before, since, .. }) if before == version => since,
            _ => now,
        };
        let looked = now.saturating_sub(since);
        let next = now + (looked * 3).max(CHECK_INTERVAL);
        let known = if looked < CHECK_TIME {
            Known::NotYet { version, since, next }
        } else {
            Known::AsOf { version: Some(version), at: None }
        };
        self.0.insert(listed.room.clone(), known);
        CheckResult::Nothing
    }

    /// The user was seen not to be a member.
    pub(in super::super) fn forget(&mut self, room: &str) {
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
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn each_join_is_notified_of_once() {
        for version in [None, Some(7)] {
            let (old, new) = (listed("old", version), listed("new", version));
            let mut known = KnownRooms::new(vec![old.clone()]);
            assert_eq!(
                (known.next_check(&old, NOW), known.next_check(&new, NOW)),
                (NextCheck::Never, NextCheck::Now)
            );
            // A hint may be under way.
            assert_eq!(known.complete_check(&new, Some(7), NOW), CheckResult::Soon);
            assert_eq!(
                (known.next_check(&new, NOW), known.complete_check(&new, Some(7), NOW)),
                (NextCheck::Soon, CheckResult::Nothing)
            );
            let later = NOW + HINT_TIME;
            assert!(!known.has_heard(&new.room, later));
            assert_eq!(
                (known.next_check(&new, later), known.complete_check(&new, Some(9), later)),
                (NextCheck::Now, CheckResult::Notify { start: 7 })
            );
            assert_eq!(
                (known.next_check(&new, later), known.complete_check(&new, Some(9), later)),
                (NextCheck::Never, CheckResult::Nothing)
            );
            // Removed, and seen to be so: the next listing is of another join.
            known.forget(old.room.as_str());
            assert_eq!(
                (known.next_check(&old, NOW), known.complete_check(&old, Some(7), NOW)),
                (NextCheck::Now, CheckResult::Soon)
            );
        }
    }

    /// Where rooms are listed for others than members, a listing from before may have another version.
    #[test]
    fn only_a_listing_that_began_after_the_hint_shows_its_join() {
        let mut known = KnownRooms::default();
        let (before, told) = (listed("told", Some(1)), listed("told", Some(2)));
        assert_eq!(known.notify(&told.room, 7, NOW), 7);
        for listed in [&before, &before, &told] {
            assert_eq!(known.next_check(listed, NOW - SECOND), NextCheck::Never);
        }
        for _ in 0..2 {
            assert_eq!(known.next_check(&told, NOW + SECOND), NextCheck::Never);
        }
        assert_eq!(
            known.next_check(&listed("told", Some(3)), NOW + SECOND),
            NextCheck::Now,
            "it is another join"
        );
    }

    #[test]
    fn a_late_hint_is_of_a_join_that_was_told_just_before() {
        let (page, new) = (listed("page", Some(7)), listed("new", None));
        let mut known = KnownRooms::new(vec![page.clone()]);
        assert!(!known.has_heard(&page.room, NOW), "it is not certain that the user is a member");
        known.read([&page.room, &new.room], NOW);
        for room in [&page.room, &new.room] {
            assert!(known.has_heard(room, NOW + SECOND) && !known.has_heard(room, NOW + HINT_LATE));
        }
        assert_eq!(known.next_check(&new, NOW + SECOND), NextCheck::Never);
        assert!(known.has_heard(&new.room, NOW + SECOND));
        known.forget(new.room.as_str());
        assert!(!known.has_heard(&new.room, NOW + SECOND), "removed meanwhile");
    }

    #[test]
    fn a_room_listed_for_others_than_members_is_looked_at_for_a_minute() {
        let mut known = KnownRooms::new(vec![listed("r", Some(1))]);
        assert_eq!(known.next_check(&listed("r", Some(1)), NOW), NextCheck::Never);
        let (joining, mut looks) = (listed("r", Some(2)), Vec::new());
        for second in 0..1_000 {
            let now = NOW + SECOND * second;
            if known.next_check(&joining, now) == NextCheck::Now {
                for _ in 0..2 {
                    assert_eq!(known.complete_check(&joining, None, now), CheckResult::Nothing);
                }
                looks.push(second);
            }
        }
        assert_eq!(looks, [0, 5, 20, 80], "the member may be shown later");
        assert_eq!(known.complete_check(&listed("r", Some(3)), Some(7), NOW), CheckResult::Soon);
        assert_eq!(
            known.complete_check(&listed("r", Some(3)), Some(7), NOW + SECOND),
            CheckResult::Notify { start: 7 }
        );
        let left = listed("s", None);
        assert_eq!(known.complete_check(&left, None, NOW), CheckResult::Nothing);
        assert_eq!(known.next_check(&left, NOW), NextCheck::Now, "only members are listed there");
    }

    #[test]
    fn a_room_that_is_listed_no_more_is_forgotten() {
        let (left, stays, told) = (listed("left", None), listed("stays", None), listed("told", None));
        let (short, mut known) = (listed("short", None), KnownRooms::new(vec![left.clone(), stays.clone()]));
        assert_eq!(known.notify(&told.room, 7, NOW), 7);
        assert_eq!(known.complete_check(&short, Some(7), NOW), CheckResult::Soon);
        known.keep_listed(&HashSet::from([&stays.room]));
        assert_eq!(known.next_check(&left, NOW), NextCheck::Now, "it is another join");
        assert_eq!(known.complete_check(&short, Some(7), NOW + SECOND), CheckResult::Soon, "and this one");
        for room in [&stays, &told] {
            assert_eq!(known.next_check(room, NOW), NextCheck::Never);
        }
    }
}
