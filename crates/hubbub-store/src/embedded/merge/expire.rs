//! Retention: drops segments that are too old as a whole, and hides older messages in the others until a rewrite.
//!
//! What is too old is found by the clock and the settings of the moment, then written into the journal, and only then hidden
//! ([`Writer::hide`](crate::embedded::writer::Writer::hide)): its ids may be used anew from then on, so no later start, whatever its
//! clock and settings say, may show it again.
//!
//! What is hidden is out of sight at once. When it is gone from the disk, [`scrub`](super::scrub) says.

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

/// A room with a retention of its own.
pub(crate) struct Own {
    room: RoomNumber,
    /// What it says now. With [`Self::kept`], which came of it: by the time that something is found, it may say something else.
    retention_s: u64,
    /// The same in microseconds.
    kept: i64,
}

/// The shortest retention there is, in microseconds, and the rooms that have one of their own.
pub(crate) type Retentions = (Option<i64>, Vec<Own>);

/// How often old messages are looked for where this is the shortest retention, in microseconds; `None` = there is none.
fn look_interval(shortest: Option<i64>) -> Duration {
    let part = |shortest: i64| Duration::from_micros(saturate(shortest / RETENTION_PARTS));
    shortest.map_or(LOOK_MAX, |shortest| part(shortest).clamp(LOOK_MIN, LOOK_MAX))
}

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
        let changes = self.rooms.read().retention_changes;
        let has_changed = std::mem::replace(&mut merging.retention_changes, changes) != changes;
        let is_due = monotonic >= merging.expire_at;
        if !is_due && !has_changed {
            return Ok(false);
        }
        let retentions = self.retentions();
        let next = monotonic.saturating_add(look_interval(retentions.0));
        if !is_due {
            merging.expire_at = merging.expire_at.min(next);
            return Ok(false);
        }
        merging.expire_at = next;
        let old = self.hide_expired(retentions, hide)?;
        if old.is_empty() {
            return Ok(false);
        }
        self.dirs.check(&[""])?;
        self.replace(&old, None)?;
        Ok(true)
    }

    /// Hides what is too old, and says which segments hold nothing else.
    pub(crate) fn hide_expired(
        &self,
        retentions: Retentions,
        hide: impl Hide,
    ) -> Result<Vec<Segment>, MaintainError> {
        let (expired, old) = self.find_expired(retentions)?;
        let are_hidden = expired.is_empty()
            || hide(&expired).unwrap_or_else(|error| {
                tracing::debug!("hiding what is too old failed: {error}");
                false
            });
        Ok(if are_hidden { old } else { Vec::new() })
    }

    /// What is too old, and which segments hold nothing else.
    pub(super) fn find_expired(
        &self,
        (shortest, own): Retentions,
    ) -> Result<(Vec<Expired>, Vec<Segment>), MaintainError> {
        let Some(shortest) = shortest else { return Ok((Vec::new(), Vec::new())) };
        // What is dropped is gone for good.
        let now = self.clock.proven().as_micros();
        let mut expired = BTreeMap::new();
        for Own { room, retention_s, kept } in own {
            match self.newest_before(room, now.saturating_sub(kept)) {
                Ok(through) => {
                    expired.extend(through.map(|through| (room, Expired { room, through, retention_s })));
                }
                // Other rooms shall not keep their messages because this one cannot be read.
                Err(error) => self.status.damage.note(&error),
            }
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
        Ok((expired.into_values().collect(), old))
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
    pub(crate) fn retentions(&self) -> Retentions {
        let rooms = self.rooms.read();
        let own = |(number, room): (RoomNumber, &Room)| {
            let retention_s = Some(room.retention_s).filter(|seconds| *seconds > 0)?;
            Some(Own { room: number, retention_s, kept: self.kept_micros(room)? })
        };
        let own: Vec<Own> = (0..).zip(rooms.all()).filter_map(own).collect();
        let shortest = own.iter().map(|own| own.kept).chain(self.retention_micros()).min();
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

    /// The newest message that a room received before `cutoff` and that is not hidden yet.
    fn newest_before(&self, room: RoomNumber, cutoff: i64) -> Result<Option<u64>, MaintainError> {
        let Some((name, hidden)) = self.rooms.read().get(room).map(|room| (room.name.clone(), room.hidden()))
        else {
            return Ok(None);
        };
        let to = Some(Timestamp::from_micros(cutoff));
        let cursor = Cursor::Before(u64::MAX);
        let query = HistoryQuery { cursor, from: None, to, limit: 1, bytes_max: usize::MAX };
        let mut run = MessageRun::default();
        self.view().read((&name, room), &query, &hidden, &mut run)?;
        Ok(run.get(0).map(|newest| newest.seq))
    }
}
