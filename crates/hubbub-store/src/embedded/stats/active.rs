//! Who was active in a window: from the counts of hours, and for hours at its edges from the messages' times.

use std::collections::BinaryHeap;
use std::ops::Range;

use hubbub_core::UserId;
use hubbub_core::stats::{ActiveUsers, ActiveUsersQuery, Counted};
use hubbub_core::store::ReadError;
use roaring::RoaringBitmap;

use super::source::{RoomFinder, hidden_changes};
use super::summary::{Summary, hour_begin, hour_of};
use super::{Current, unavailable};
use crate::embedded::error::MaintainError;
use crate::embedded::segment::Segment;
use crate::embedded::shared::Shared;

impl Shared {
    /// See [`hubbub_core::StatsStore::active_users`].
    pub(crate) fn active_users(&self, query: &ActiveUsersQuery) -> Result<Counted<ActiveUsers>, ReadError> {
        let current = self.current().map_err(unavailable)?;
        let from = query.from.map_or(i64::MIN, |from| from.as_micros());
        let to = query.to.map_or(i64::MAX, |to| to.as_micros());
        let active = if from < to {
            current.active(self, from..to).map_err(unavailable)?
        } else {
            RoaringBitmap::new()
        };
        let after = query.after.as_ref().map(UserId::as_str);
        let (users, more) = page(current.summary(), &active, after, query.limit);
        Ok(Counted { value: ActiveUsers { count: active.len(), users, more }, as_of: current.as_of })
    }
}

impl Current<'_> {
    /// The users who sent something in a window.
    fn active(&self, shared: &Shared, window: Range<i64>) -> Result<RoaringBitmap, MaintainError> {
        let summary = self.summary();
        // Numbers come in rising order.
        let mut active: RoaringBitmap = summary
            .users()
            .filter(|(_, user)| window.contains(&user.times.first) || window.contains(&user.times.last))
            .map(|(number, _)| number)
            .collect();
        let mut edges = Vec::new();
        for (hour, total) in summary.hours().range(hour_of(window.start)..=hour_of(window.end)) {
            let (begin, end) = (hour_begin(*hour), hour_begin(hour + 1));
            if window.start <= begin && end <= window.end {
                active |= &total.users;
            } else if begin < window.end && window.start < end {
                edges.push((begin.max(window.start)..end.min(window.end), &total.users));
            }
        }
        for (part, users) in edges {
            let mut open = users - &active;
            self.decide(shared, &mut open, &mut active, &part)?;
        }
        Ok(active)
    }

    /// Moves the users who sent something within `part` from `open` to `active`.
    fn decide(
        &self,
        shared: &Shared,
        open: &mut RoaringBitmap,
        active: &mut RoaringBitmap,
        part: &Range<i64>,
    ) -> Result<(), MaintainError> {
        for tail in &self.state.tails {
            let found: RoaringBitmap = open
                .iter()
                .filter(|user| tail.posts(*user).any(|post| part.contains(&post.received)))
                .collect();
            *open -= &found;
            *active |= found;
        }
        for segment in &self.view.segments {
            let overlaps = segment
                .times()
                .is_some_and(|(first, last)| first.as_micros() < part.end && last.as_micros() >= part.start);
            if overlaps && !open.is_empty() {
                self.decide_by_segment(shared, segment, open, active, part)?;
            }
        }
        Ok(())
    }

    fn decide_by_segment(
        &self,
        shared: &Shared,
        segment: &Segment,
        open: &mut RoaringBitmap,
        active: &mut RoaringBitmap,
        part: &Range<i64>,
    ) -> Result<(), MaintainError> {
        let mut rooms = RoomFinder::new(shared, segment);
        let all_visible = hidden_changes(shared) == 0;
        let mut scan = segment.users();
        while let Some((name, user)) = scan.next()? {
            if user.last < part.start || user.first >= part.end {
                continue;
            }
            let Some(number) = self.summary().number(name).filter(|number| open.contains(*number)) else {
                continue;
            };
            let mut found = all_visible && (part.contains(&user.first) || part.contains(&user.last));
            let mut result = Ok(());
            if !found {
                scan.postings(&user, |posting| {
                    if found || !part.contains(&posting.received) {
                        return;
                    }
                    match rooms.find_visible(posting.ordinal) {
                        Ok(room) => found = room.is_some(),
                        Err(error) => result = Err(error),
                    }
                })?;
            }
            result?;
            if found {
                open.remove(number);
                active.insert(number);
            }
        }
        Ok(())
    }
}

/// The first `limit` names behind `after`, in order, and whether there are more.
fn page(summary: &Summary, users: &RoaringBitmap, after: Option<&str>, limit: usize) -> (Vec<UserId>, bool) {
    let mut first: BinaryHeap<&str> = BinaryHeap::new();
    let mut more = false;
    let names = users.iter().filter_map(|number| summary.user(number)).map(|user| &*user.name);
    for name in names.filter(|name| after.is_none_or(|after| *name > after)) {
        if first.len() < limit {
            first.push(name);
            continue;
        }
        more = true;
        if let Some(mut last) = first.peek_mut()
            && name < *last
        {
            *last = name;
        }
    }
    (first.into_sorted_vec().into_iter().filter_map(|name| UserId::new(name).ok()).collect(), more)
}
