//! Statistics by the simplest means: going through all messages for every question.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use hubbub_core::stats::{
    ActiveUsers, ActiveUsersQuery, FirstLast, HourStats, HoursPage, HoursQuery, PairStats, Participation,
    ParticipationPage, RoomStats, Totals, TypeCounts, UserHistoryQuery, UserStats, hour_of,
};
use hubbub_core::{RoomId, Timestamp, UserId};

use super::model::{KeptMessage, Model};

/// All messages of a model.
pub struct Recount<'a>(Vec<&'a KeptMessage>);

/// Messages grouped by something.
type Groups<'a, K> = BTreeMap<K, Vec<&'a KeptMessage>>;

impl<'a> Recount<'a> {
    /// Of everything the model holds.
    pub fn of(model: &'a Model) -> Self {
        Self(model.rooms.values().flatten().collect())
    }

    /// The names of all users.
    pub fn user_names(&self) -> BTreeSet<&'a str> {
        self.0.iter().map(|kept| kept.post.user.as_str()).collect()
    }

    fn by<K: Ord>(&self, key: impl Fn(&'a KeptMessage) -> K) -> Groups<'a, K> {
        let mut groups = Groups::new();
        for kept in &self.0 {
            groups.entry(key(kept)).or_default().push(*kept);
        }
        groups
    }

    /// Everything together.
    pub fn totals(&self) -> Totals {
        Totals {
            messages: types(&self.0),
            users: users(&self.0),
            rooms: rooms(&self.0),
            received: (!self.0.is_empty()).then(|| first_last(&self.0)),
        }
    }

    /// All rooms, the busiest first.
    pub fn rooms(&self) -> Vec<RoomStats> {
        let groups = self.by(|kept| kept.post.room.as_str());
        let mut all: Vec<RoomStats> = groups
            .iter()
            .map(|(room, kept)| RoomStats {
                room: RoomId::new(room).unwrap(),
                messages: kept.len() as u64,
                users: users(kept),
                received: first_last(kept),
            })
            .collect();
        all.sort_by_key(|room| Reverse(room.messages));
        all
    }

    /// All users, the busiest first.
    pub fn users(&self) -> Vec<UserStats> {
        let groups = self.by(|kept| kept.post.user.as_str());
        let mut all: Vec<UserStats> = groups
            .iter()
            .map(|(user, kept)| UserStats {
                user: UserId::new(user).unwrap(),
                messages: kept.len() as u64,
                rooms: rooms(kept),
                received: first_last(kept),
            })
            .collect();
        all.sort_by_key(|user| Reverse(user.messages));
        all
    }

    /// All pairs of a room and a user who wrote there, the busiest first.
    pub fn pairs(&self) -> Vec<PairStats> {
        let groups = self.by(|kept| (kept.post.room.as_str(), kept.post.user.as_str()));
        let mut all: Vec<PairStats> = groups
            .iter()
            .map(|((room, user), kept)| PairStats {
                room: RoomId::new(room).unwrap(),
                user: UserId::new(user).unwrap(),
                messages: kept.len() as u64,
            })
            .collect();
        all.sort_by_key(|pair| Reverse(pair.messages));
        all
    }

    /// A page of hours.
    pub fn hours(&self, query: &HoursQuery) -> HoursPage {
        let inside = |hour: &Timestamp| {
            query.from.is_none_or(|from| *hour >= hour_of(from)) && query.to.is_none_or(|to| *hour < to)
        };
        let groups = self.by(|kept| hour_of(kept.received_at));
        let mut hours: Vec<HourStats> = groups
            .iter()
            .filter(|(hour, _)| inside(hour))
            .map(|(hour, kept)| HourStats {
                hour: *hour,
                messages: types(kept),
                users: users(kept),
                rooms: rooms(kept),
            })
            .collect();
        let more = hours.len() > query.limit;
        hours.truncate(query.limit);
        HoursPage { hours, more }
    }

    /// Who sent something in a window.
    pub fn active_users(&self, query: &ActiveUsersQuery) -> ActiveUsers {
        let inside = |kept: &&&KeptMessage| {
            query.from.is_none_or(|from| kept.received_at >= from)
                && query.to.is_none_or(|to| kept.received_at < to)
        };
        let active: BTreeSet<&str> =
            self.0.iter().filter(inside).map(|kept| kept.post.user.as_str()).collect();
        let behind = |name: &&&str| query.after.as_ref().is_none_or(|after| **name > after.as_str());
        let mut users: Vec<UserId> =
            active.iter().filter(behind).map(|name| UserId::new(name).unwrap()).collect();
        let more = users.len() > query.limit;
        users.truncate(query.limit);
        ActiveUsers { count: active.len() as u64, users, more }
    }

    /// A page of the rooms in which a user wrote.
    pub fn participation(&self, user: &str, after: Option<&str>, limit: usize) -> ParticipationPage {
        let of_user = Self(self.0.iter().copied().filter(|kept| kept.post.user == user).collect());
        let groups = of_user.by(|kept| kept.post.room.as_str());
        let mut rooms: Vec<Participation> = groups
            .iter()
            .filter(|(room, _)| after.is_none_or(|after| **room > after))
            .map(|(room, kept)| Participation {
                room: RoomId::new(room).unwrap(),
                messages: kept.len() as u64,
                received: first_last(kept),
            })
            .collect();
        let more = rooms.len() > limit;
        rooms.truncate(limit);
        ParticipationPage { rooms, more }
    }

    /// Everything of a user that the window holds, as if it had no limits, oldest first.
    pub fn user_window(&self, user: &str, query: &UserHistoryQuery) -> Vec<&'a KeptMessage> {
        let key = |kept: &KeptMessage| (kept.received_at, kept.post.room.clone(), kept.seq);
        let before =
            query.before.as_ref().map(|place| (place.received_at, place.room.to_string(), place.seq));
        let inside = |kept: &&KeptMessage| {
            kept.post.user == user
                && before.as_ref().is_none_or(|before| key(kept) < *before)
                && query.from.is_none_or(|from| kept.received_at >= from)
                && query.to.is_none_or(|to| kept.received_at < to)
        };
        let mut window: Vec<&KeptMessage> = self.0.iter().copied().filter(inside).collect();
        window.sort_by_key(|kept| key(kept));
        window
    }
}

fn types(kept: &[&KeptMessage]) -> TypeCounts {
    let mut types = TypeCounts::default();
    kept.iter().for_each(|kept| types.add(kept.post.kind));
    types
}

fn users(kept: &[&KeptMessage]) -> u64 {
    kept.iter().map(|kept| &kept.post.user).collect::<BTreeSet<_>>().len() as u64
}

fn rooms(kept: &[&KeptMessage]) -> u64 {
    kept.iter().map(|kept| &kept.post.room).collect::<BTreeSet<_>>().len() as u64
}

fn first_last(kept: &[&KeptMessage]) -> FirstLast {
    let times = || kept.iter().map(|kept| kept.received_at);
    FirstLast { first: times().min().unwrap(), last: times().max().unwrap() }
}
