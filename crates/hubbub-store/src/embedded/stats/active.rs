//! Who was active in a window: from the counts of hours, and for hours at its edges from the messages' times.

use std::ops::Range;

use hubbub_core::UserId;
use hubbub_core::stats::{ActiveUsers, ActiveUsersQuery, Counted};
use hubbub_core::store::ReadError;
use roaring::RoaringBitmap;

use super::Current;
use super::source::{RoomFinder, hidden_changes};
use super::summary::{Smallest, Summary, hour_begin, hour_of};
use crate::embedded::engine::Engine;
use crate::embedded::error::MaintainError;
use crate::embedded::file::FileError;
use crate::embedded::segment::{Posting, Segment, UserPart};
use crate::embedded::shared::Shared;

/// Users of a segment that are read in the time that finding one takes.
const SCANNED_PER_LOOKUP: u64 = 32;

/// The messages of a user, one after another.
type Postings<'p> = dyn FnMut() -> Result<Option<Posting>, FileError> + 'p;

impl Engine {
    /// See [`hubbub_core::StatsStore::active_users`].
    pub fn active_users(&self, query: &ActiveUsersQuery) -> Result<Counted<ActiveUsers>, ReadError> {
        let current = self.shared.current().map_err(|error| self.shared.unreadable(error))?;
        let from = query.from.map_or(i64::MIN, |from| from.as_micros());
        let to = query.to.map_or(i64::MAX, |to| to.as_micros());
        let active = if from < to {
            current.active(&self.shared, from..to).map_err(|error| self.shared.unreadable(error))?
        } else {
            RoaringBitmap::new()
        };
        let after = query.after.as_ref().map(UserId::as_str);
        let (users, more) = page(current.summary(), &active, after, query.limit);
        Ok(Counted { value: ActiveUsers { count: active.len(), users, more }, as_of: current.as_of })
    }
}

impl Current<'_> {
    fn active(&self, shared: &Shared, window: Range<i64>) -> Result<RoaringBitmap, MaintainError> {
        let summary = self.summary();
        // Numbers come in rising order.
        let mut active: RoaringBitmap = summary
            .users()
            .filter(|(_, user)| window.contains(&user.times.first) || window.contains(&user.times.last))
            .map(|(number, _)| number)
            .collect();
        let mut edges = Vec::new();
        for (hour, total) in summary.hours.range(hour_of(window.start)..=hour_of(window.end)) {
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
        let mut segments: Vec<&Segment> =
            self.view.segments.iter().filter(|segment| overlap(segment, part) > 0).collect();
        // Those that lie in the part as a whole leave least to look for in the others.
        segments.sort_by_key(|segment| std::cmp::Reverse(overlap(segment, part)));
        for segment in segments {
            if open.is_empty() {
                break;
            }
            self.decide_by_segment(shared, segment, open, active, part)?;
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
        let mut found = RoaringBitmap::new();
        let mut rooms = RoomFinder::new(shared, segment);
        let mut find = |number, user: &UserPart, postings: &mut Postings<'_>| -> Result<(), MaintainError> {
            let mut wrote = at_a_glance(shared, user, part);
            while wrote.is_none()
                && let Some(posting) = postings()?
            {
                let proves = part.contains(&posting.received);
                wrote = (proves && rooms.find_visible(posting.ordinal)?.is_some()).then_some(true);
            }
            if wrote == Some(true) {
                found.insert(number);
            }
            Ok(())
        };
        if open.len() < segment.user_count() / SCANNED_PER_LOOKUP {
            for number in open.iter() {
                let Some(name) = self.summary().user(number).map(|user| &*user.name) else { continue };
                let Some(user) = segment.user(name)? else { continue };
                let mut postings = segment.postings(&user);
                find(number, &user, &mut || postings.next())?;
            }
        } else {
            let mut scan = segment.users();
            while let Some((name, user)) = scan.next()? {
                let number = self.summary().number(name).filter(|number| open.contains(*number));
                let Some(number) = number else { continue };
                let mut decoder = scan.begin_postings(&user);
                find(number, &user, &mut || scan.next_posting(&mut decoder))?;
            }
        }
        *open -= &found;
        *active |= found;
        Ok(())
    }
}

/// How well a segment's time fits a window: the share of it inside, in thousandths; 0 when nothing is.
fn overlap(segment: &Segment, part: &Range<i64>) -> i64 {
    let Some((first, last)) = segment.times() else { return 0 };
    let (first, end) = (first.as_micros(), last.as_micros().saturating_add(1));
    let inside = end.min(part.end).saturating_sub(first.max(part.start));
    if inside <= 0 { 0 } else { (inside.saturating_mul(1_000) / (end - first).max(1)).max(1) }
}

/// Whether a user has a message in a segment that was received within `part` and may be seen, as far as the times of the
/// first and the last one tell.
fn at_a_glance(shared: &Shared, user: &UserPart, part: &Range<i64>) -> Option<bool> {
    if user.last < part.start || user.first >= part.end {
        return Some(false);
    }
    let touches = part.contains(&user.first) || part.contains(&user.last);
    (touches && hidden_changes(shared) == 0).then_some(true)
}

/// The first `limit` names behind `after`, in order, and whether there are more.
fn page(summary: &Summary, users: &RoaringBitmap, after: Option<&str>, limit: usize) -> (Vec<UserId>, bool) {
    let mut first = Smallest::new(limit);
    let names = users.iter().filter_map(|number| summary.user(number)).map(|user| &*user.name);
    names.filter(|name| after.is_none_or(|after| *name > after)).for_each(|name| first.add(name));
    let more = first.more;
    (first.into_sorted().into_iter().filter_map(|name| UserId::new(name).ok()).collect(), more)
}
