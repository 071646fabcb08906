//! Totals, rooms, users and hours: read off the counts.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Bound;
use std::sync::Arc;

use hubbub_core::stats::{
    Counted, FirstLast, HourStats, HoursPage, HoursQuery, PairStats, Participation, ParticipationPage,
    RoomStats, Totals, TypeCounts, UserStats,
};
use hubbub_core::store::ReadError;
use hubbub_core::{RoomId, Timestamp, UserId};

use super::source::{each_visible, is_hidden};
use super::summary::{
    HourTotal, RoomTotal, Smallest, Summary, Times, UserTotal, add_counts, hour_begin, hour_of,
};
use crate::embedded::engine::Engine;
use crate::embedded::error::MaintainError;
use crate::embedded::rooms::RoomNumber;
use crate::embedded::shared::Shared;

impl Engine {
    /// See [`hubbub_core::StatsStore::totals`].
    pub fn totals(&self) -> Result<Counted<Totals>, ReadError> {
        self.shared.count(totals)
    }

    /// See [`hubbub_core::StatsStore::room_stats`].
    pub fn room_stats(&self, room: &str) -> Result<Counted<Option<RoomStats>>, ReadError> {
        let number = self.shared.rooms.read().number(room);
        self.shared.count(|summary| room_stats(summary.room(number?)?))
    }

    /// See [`hubbub_core::StatsStore::top_rooms`].
    pub fn top_rooms(&self, limit: usize) -> Result<Counted<Vec<RoomStats>>, ReadError> {
        self.shared.count(|summary| {
            let rooms = summary.rooms().map(|(number, room)| (room.messages, &*room.name, number));
            top(rooms, limit).filter_map(|(_, _, room)| room_stats(summary.room(room)?)).collect()
        })
    }

    /// See [`hubbub_core::StatsStore::user_stats`].
    pub fn user_stats(&self, user: &str) -> Result<Counted<Option<UserStats>>, ReadError> {
        self.shared.count(|summary| {
            let user = summary.user(summary.number(user)?)?;
            if user.messages > 0 { user_stats(user) } else { None }
        })
    }

    /// See [`hubbub_core::StatsStore::top_users`].
    pub fn top_users(&self, limit: usize) -> Result<Counted<Vec<UserStats>>, ReadError> {
        self.shared.count(|summary| {
            let users = summary.users().map(|(number, user)| (user.messages, &*user.name, number));
            top(users, limit).filter_map(|(_, _, user)| user_stats(summary.user(user)?)).collect()
        })
    }

    /// See [`hubbub_core::StatsStore::top_pairs`].
    pub fn top_pairs(&self, limit: usize) -> Result<Counted<Vec<PairStats>>, ReadError> {
        self.shared.count(|summary| {
            let pairs = summary.pairs().map(|(room, user, messages)| (messages, &*room.name, &*user.name));
            let pair = |(messages, room, user)| {
                Some(PairStats { room: RoomId::new(room).ok()?, user: UserId::new(user).ok()?, messages })
            };
            top(pairs, limit).filter_map(pair).collect()
        })
    }

    /// See [`hubbub_core::StatsStore::hours`].
    pub fn hours(&self, query: &HoursQuery) -> Result<Counted<HoursPage>, ReadError> {
        let from = query.from.map_or(i64::MIN, |from| hour_of(from.as_micros()));
        // The first hour that begins at `to` or later is not in the window.
        let to = query.to.map_or(i64::MAX, |to| {
            let hour = hour_of(to.as_micros());
            if hour_begin(hour) == to.as_micros() { hour } else { hour + 1 }
        });
        if from >= to {
            return self.shared.count(|_| HoursPage::default());
        }
        self.shared.count(|summary| {
            let window = (Bound::Included(from), Bound::Excluded(to));
            let mut hours = summary.hours.range(window).map(|(hour, total)| hour_stats(*hour, total));
            let page = hours.by_ref().take(query.limit).collect();
            HoursPage { hours: page, more: hours.next().is_some() }
        })
    }

    /// See [`hubbub_core::StatsStore::participation`].
    pub fn participation(
        &self,
        user: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Counted<ParticipationPage>, ReadError> {
        let as_of = self.shared.clock.now();
        let found = self.shared.participated(user).map_err(|error| self.shared.unreadable(error))?;
        let mut named = {
            let rooms = self.shared.rooms.read();
            let named = found.into_iter().filter_map(|(room, (messages, times))| {
                let name = Arc::clone(&rooms.get(room)?.name);
                after.is_none_or(|after| *name > *after).then_some((name, messages, times))
            });
            named.collect::<Vec<_>>()
        };
        named.sort_unstable_by(|(one, ..), (other, ..)| one.cmp(other));
        let more = named.len() > limit;
        let page = named.into_iter().take(limit).filter_map(|(name, messages, times)| {
            Some(Participation { room: RoomId::new(&name).ok()?, messages, received: first_last(times) })
        });
        Ok(Counted { value: ParticipationPage { rooms: page.collect(), more }, as_of })
    }
}

impl Shared {
    fn count<T>(&self, answer: impl FnOnce(&Summary) -> T) -> Result<Counted<T>, ReadError> {
        let current = self.current().map_err(|error| self.unreadable(error))?;
        Ok(Counted { value: answer(current.summary()), as_of: current.as_of })
    }

    /// Messages and times of a user per room, from postings and tails.
    pub(super) fn participated(
        &self,
        user: &str,
    ) -> Result<HashMap<RoomNumber, (u64, Times)>, MaintainError> {
        let mut found: HashMap<RoomNumber, (u64, Times)> = HashMap::new();
        let mut add = |room, received| {
            let (messages, times) = found.entry(room).or_insert((0, Times::of(received)));
            *messages += 1;
            times.take_in(Times::of(received));
        };
        let view = {
            let current = self.current()?;
            if let Some(number) = current.summary().number(user) {
                for post in current.state.tails.iter().flat_map(|part| part.posts(number)) {
                    if !is_hidden(self, post.room, post.seq) {
                        add(post.room, post.received);
                    }
                }
            }
            current.view
        };
        for segment in &view.segments {
            if let Some(part) = segment.user(user)? {
                each_visible(self, segment, &part, |room, posting| {
                    add(room.number, posting.received);
                    Ok(true)
                })?;
            }
        }
        Ok(found)
    }
}

pub(super) fn totals(summary: &Summary) -> Totals {
    let mut messages = TypeCounts::default();
    for hour in summary.hours.values() {
        add_counts(&mut messages, hour.messages);
    }
    let times = summary.rooms().map(|(_, room)| room.times).reduce(|mut all, times| {
        all.take_in(times);
        all
    });
    Totals {
        messages,
        users: summary.users().count() as u64,
        rooms: summary.rooms().count() as u64,
        received: times.map(first_last),
    }
}

pub(super) fn room_stats(room: &RoomTotal) -> Option<RoomStats> {
    let (messages, users) = (room.messages, room.users.len() as u64);
    Some(RoomStats { room: RoomId::new(&room.name).ok()?, messages, users, received: first_last(room.times) })
}

pub(super) fn user_stats(user: &UserTotal) -> Option<UserStats> {
    let UserTotal { name, messages, rooms, times } = user;
    let user = UserId::new(name).ok()?;
    Some(UserStats { user, messages: *messages, rooms: *rooms, received: first_last(*times) })
}

pub(super) fn hour_stats(hour: i64, total: &HourTotal) -> HourStats {
    HourStats {
        hour: Timestamp::from_micros(hour_begin(hour)),
        messages: total.messages,
        users: total.users.len(),
        rooms: total.rooms.len(),
    }
}

fn first_last(times: Times) -> FirstLast {
    FirstLast { first: Timestamp::from_micros(times.first), last: Timestamp::from_micros(times.last) }
}

/// Those with the `limit` greatest counts, greatest first, equal ones by name.
fn top<N: Ord, T: Ord>(
    all: impl Iterator<Item = (u64, N, T)>,
    limit: usize,
) -> impl Iterator<Item = (u64, N, T)> {
    let mut best = Smallest::new(limit);
    all.for_each(|(count, name, thing)| best.add((Reverse(count), name, thing)));
    best.into_sorted().into_iter().map(|(Reverse(count), name, thing)| (count, name, thing))
}
