//! Retention: drops segments that are too old as a whole, and hides older messages in the others until a rewrite.
//!
//! What is too old is found by the clock and the settings of the moment, then written into the journal, and only then hidden
//! ([`Writer::hide`](crate::embedded::writer::Writer::hide)): its ids may be used anew from then on, so no later start, whatever its
//! clock and settings say, may show it again.
//!
//! What is hidden, here or because somebody deleted or erased it, is out of sight at once and is gone from the
//! segments after [`EngineOptions::scrub_interval`](super::EngineOptions::scrub_interval) and the time a rewrite takes.

use std::collections::BTreeMap;
use std::time::Duration;

use hubbub_core::invariant::saturate;
use hubbub_core::store::{ApplyError, Cursor, HistoryQuery};
use hubbub_core::{MessageRun, Timestamp};

use crate::embedded::error::MaintainError;
use crate::embedded::merge::segments::RETENTION_PARTS;
use crate::embedded::rooms::{Expired, Room, RoomNumber};
use crate::embedded::segment::Segment;
use crate::embedded::shared::Shared;
use crate::embedded::view::View;

/// How often at most, and at least, old messages are looked for.
const LOOK_MIN: Duration = Duration::from_millis(100);
const LOOK_MAX: Duration = Duration::from_secs(10);

/// Hides messages once that is durable, and says whether all of them.
pub(crate) trait Hide: FnOnce(&[Expired]) -> Result<bool, ApplyError> {}

impl<F: FnOnce(&[Expired]) -> Result<bool, ApplyError>> Hide for F {}

impl Shared {
    /// How long messages of a room are kept, in microseconds; `None` = for ever.
    fn kept_micros(&self, room: &Room) -> Option<i64> {
        if room.retention_s == 0 {
            return self.retention_micros();
        }
        Some(saturate::<_, i64>(room.retention_s).saturating_mul(1_000_000))
    }

    /// Hides what is too old and drops segments that hold nothing else. Says whether it dropped any. What cannot be hidden now
    /// is tried again with the next look; the store's health says why.
    pub(crate) fn expire(&self, hide: impl Hide) -> Result<bool, MaintainError> {
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
        let old = self.hide_expired(hide)?;
        if old.is_empty() {
            return Ok(false);
        }
        self.replace(&old, None)?;
        Ok(true)
    }

    /// Hides what is too old, and says which segments hold nothing else.
    pub(crate) fn hide_expired(&self, hide: impl Hide) -> Result<Vec<Segment>, MaintainError> {
        // What is dropped is gone for good.
        let now = self.clock.proven().as_micros();
        let (shortest, own) = self.retentions();
        let Some(shortest) = shortest else { return Ok(Vec::new()) };
        let mut expired = BTreeMap::new();
        for (number, kept) in own {
            let found = self.newest_before(number, now.saturating_sub(kept))?;
            expired.extend(found.map(|found| (number, found)));
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
            .filter(|segment| self.is_old(segment, bound(segment), now, &mut expired))
            .cloned()
            .collect();
        let expired: Vec<Expired> = expired.into_values().collect();
        let are_hidden = expired.is_empty()
            || hide(&expired).unwrap_or_else(|error| {
                tracing::debug!("hiding what is too old failed: {error}");
                false
            });
        Ok(if are_hidden { old } else { Vec::new() })
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

    /// Notes what a segment has of rooms of which all is too old. Says whether nothing else is in it.
    fn is_old(
        &self,
        segment: &Segment,
        there_by: i64,
        now: i64,
        expired: &mut BTreeMap<RoomNumber, Expired>,
    ) -> bool {
        let rooms = self.rooms.read();
        let mut all = true;
        for (name, span) in segment.rooms() {
            let Some(number) = rooms.number(name) else { continue };
            let Some(room) = rooms.get(number) else { continue };
            let newest = span.last_received.min(there_by);
            let is_old = |kept: i64| newest < now.saturating_sub(kept);
            let through = expired.get(&number).map_or(0, |found| found.through).max(room.low_watermark);
            if span.last_seq <= through {
                continue;
            }
            if self.kept_micros(room).is_some_and(is_old) {
                let (through, retention_s) = (span.last_seq, room.retention_s);
                expired.insert(number, Expired { room: number, through, retention_s });
            } else {
                all = false;
            }
        }
        all
    }

    /// What a room received before `cutoff`, if there is something that is not hidden yet.
    fn newest_before(&self, room: RoomNumber, cutoff: i64) -> Result<Option<Expired>, MaintainError> {
        let found =
            self.rooms.read().get(room).map(|room| (room.name.clone(), room.hidden(), room.retention_s));
        let Some((name, hidden, retention_s)) = found else { return Ok(None) };
        let to = Some(Timestamp::from_micros(cutoff));
        let cursor = Cursor::Before(u64::MAX);
        let query = HistoryQuery { cursor, from: None, to, limit: 1, bytes_max: usize::MAX };
        let mut run = MessageRun::default();
        self.view().read((&name, room), &query, &hidden, &mut run)?;
        Ok(run.get(0).map(|newest| Expired { room, through: newest.seq, retention_s }))
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
