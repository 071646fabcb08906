//! Retention: drops segments that are too old as a whole, and hides older messages in the others until a rewrite.
//!
//! What is hidden, here or because somebody deleted or erased it, is out of sight at once and is gone from the
//! segments after [`EngineOptions::scrub_interval`](super::EngineOptions::scrub_interval) and the time a rewrite takes.

use std::collections::BTreeMap;
use std::time::Duration;

use hubbub_core::invariant::saturate;
use hubbub_core::store::{Cursor, HistoryQuery};
use hubbub_core::{MessageRun, Timestamp};

use crate::embedded::error::MaintainError;
use crate::embedded::merge::segments::RETENTION_PARTS;
use crate::embedded::rooms::{Room, RoomNumber};
use crate::embedded::segment::Segment;
use crate::embedded::shared::Shared;
use crate::embedded::view::View;

/// How often at most, and at least, old messages are looked for.
const LOOK_MIN: Duration = Duration::from_millis(100);
const LOOK_MAX: Duration = Duration::from_secs(10);

impl Shared {
    /// How long messages of a room are kept, in microseconds; `None` = for ever.
    fn kept_micros(&self, room: &Room) -> Option<i64> {
        if room.retention_s == 0 {
            return self.retention_micros();
        }
        Some(saturate::<_, i64>(room.retention_s).saturating_mul(1_000_000))
    }

    /// Hides what is too old and drops segments that hold nothing else. Says whether it dropped any.
    pub(crate) fn expire(&self) -> Result<bool, MaintainError> {
        let mut merging = self.merging.lock();
        let monotonic = self.clock.monotonic();
        if monotonic < merging.expire_at {
            return Ok(false);
        }
        let Some(shortest) = self.retentions().0 else {
            merging.expire_at = monotonic.saturating_add(LOOK_MAX);
            return Ok(false);
        };
        let look = Duration::from_micros(saturate(shortest / RETENTION_PARTS));
        merging.expire_at = monotonic.saturating_add(look.clamp(LOOK_MIN, LOOK_MAX));
        let old = self.hide_expired()?;
        if old.is_empty() {
            return Ok(false);
        }
        self.replace(&old, None)?;
        Ok(true)
    }

    /// Hides what is too old, and says which segments hold nothing else.
    pub(crate) fn hide_expired(&self) -> Result<Vec<Segment>, MaintainError> {
        // What is dropped is gone for good.
        let now = self.clock.proven().as_micros();
        let (shortest, own) = self.retentions();
        let Some(shortest) = shortest else { return Ok(Vec::new()) };
        for (number, kept) in own {
            self.trim(number, now.saturating_sub(kept))?;
        }
        // Of most segments one look tells that nothing in them is old.
        let view = self.view();
        let there_by = self.there_by(&view, now)?;
        let bound = |segment: &Segment| there_by.get(&segment.number()).copied().unwrap_or(i64::MAX);
        let newest = |segment: &Segment| {
            segment.times().map_or(i64::MIN, |(_, last)| last.as_micros()).min(bound(segment))
        };
        let old = view
            .segments
            .iter()
            .filter(|segment| newest(segment) < now.saturating_sub(shortest))
            .filter(|segment| self.hide_old(segment, bound(segment), now));
        Ok(old.cloned().collect())
    }

    /// For segments with messages whose times have not come yet, when they were first seen here; those messages are no
    /// younger. A room keeps such times for as long as the clock needs to catch up with them, which may be years.
    fn there_by(&self, view: &View, now: i64) -> Result<BTreeMap<u64, i64>, MaintainError> {
        let known = self.catalog.lock().there_by.clone();
        let is_ahead = |segment: &&Segment| segment.times().is_some_and(|(_, last)| last.as_micros() > now);
        let ahead = view.segments.iter().filter(is_ahead).map(Segment::number);
        // A time that has not come either was noted by a clock that was wrong.
        let wrong = |number: &u64| known.get(number).is_none_or(|time| *time > now);
        let new: Vec<u64> = ahead.filter(wrong).collect();
        if new.is_empty() {
            return Ok(known);
        }
        self.change_manifest(|manifest| manifest.there_by.extend(new.iter().map(|number| (*number, now))))?;
        Ok(self.catalog.lock().there_by.clone())
    }

    /// The shortest retention there is, and the rooms that have one of their own.
    fn retentions(&self) -> (Option<i64>, Vec<(RoomNumber, i64)>) {
        let rooms = self.rooms.read();
        let own = (0..).zip(rooms.all()).filter(|(_, room)| room.retention_s > 0);
        let own: Vec<_> = own.filter_map(|(number, room)| Some((number, self.kept_micros(room)?))).collect();
        let shortest = own.iter().map(|(_, kept)| *kept).chain(self.retention_micros()).min();
        (shortest, own)
    }

    /// Hides what a segment has of rooms of which all is too old. Says whether nothing else is in it.
    fn hide_old(&self, segment: &Segment, there_by: i64, now: i64) -> bool {
        let mut rooms = self.rooms.write();
        let mut all = true;
        for (name, span) in segment.rooms() {
            let Some(number) = rooms.number(name) else { continue };
            let Some(room) = rooms.get(number) else { continue };
            let newest = span.last_received.min(there_by);
            let is_old = |kept: i64| newest < now.saturating_sub(kept);
            if span.last_seq <= room.low_watermark {
                continue;
            }
            if self.kept_micros(room).is_some_and(is_old) {
                rooms.raise_low_watermark(number, span.last_seq);
            } else {
                all = false;
            }
        }
        all
    }

    /// Hides what a room received before `cutoff`.
    fn trim(&self, number: RoomNumber, cutoff: i64) -> Result<(), MaintainError> {
        let Some((name, hidden)) =
            self.rooms.read().get(number).map(|room| (room.name.clone(), room.hidden()))
        else {
            return Ok(());
        };
        let to = Some(Timestamp::from_micros(cutoff));
        let cursor = Cursor::Before(u64::MAX);
        let query = HistoryQuery { cursor, from: None, to, limit: 1, bytes_max: usize::MAX };
        let mut run = MessageRun::default();
        self.view().read((&name, number), &query, &hidden, &mut run)?;
        if let Some(newest) = run.get(0) {
            self.rooms.write().raise_low_watermark(number, newest.seq);
        }
        Ok(())
    }

    /// Rewrites a segment that holds something hidden. Says whether there was one to look at now.
    pub(crate) fn scrub_one(&self) -> Result<bool, MaintainError> {
        let mut merging = self.merging.lock();
        let hidings = self.rooms.read().hidings;
        let now = self.clock.monotonic();
        if merging.scrubbed == Some(hidings) || now < merging.scrub_at {
            return Ok(false);
        }
        let view = self.view();
        if let Some(segment) =
            view.segments.iter().find(|segment| self.holds_hidden(segment) && !self.is_damaged(segment))
        {
            return self.rewrite(std::slice::from_ref(segment), &mut merging);
        }
        merging.scrubbed = Some(hidings);
        merging.scrub_at = now.saturating_add(self.options.scrub_interval);
        Ok(false)
    }

    fn holds_hidden(&self, segment: &Segment) -> bool {
        let rooms = self.rooms.read();
        segment.rooms().any(|(name, span)| {
            let room = rooms.number(name).and_then(|number| rooms.get(number));
            // A room's numbers are dense but for what is hidden.
            room.is_some_and(|room| {
                u64::from(span.count) > room.hidden().visible(span.first_seq, span.last_seq)
            })
        })
    }
}
