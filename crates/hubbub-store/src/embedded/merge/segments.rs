//! Fewer and fewer segments: neighbours are merged, and what is hidden stays behind.
//!
//! Merging takes the neighbours that are smallest together, so that a message is rewritten a few times at most, and
//! keeps the order of segments. Files are removed only after the manifest stopped naming them.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use hubbub_core::Message;

use crate::embedded::error::{DoingOn, MaintainError};
use crate::embedded::manifest::may_be_named;
use crate::embedded::segment::{Codec, MergeError, Segment, SegmentWriter, merge, segment_path};
use crate::embedded::shared::Shared;

/// What the work on segments remembers from step to step.
#[derive(Debug, Default)]
pub(crate) struct Compacting {
    /// The number reserved for the segment that is being written, kept until a manifest may name it.
    pub(super) reserved: Option<u64>,
    /// When to look again for what is too old.
    pub(super) expire_at: Duration,
    /// What was hidden when segments were last found to hold nothing hidden; `None` = never looked.
    pub(super) scrubbed: Option<u64>,
    /// When to look again for what is hidden.
    pub(super) scrub_at: Duration,
}

/// Into so many parts of the retention time messages are grouped, so that they go at most one part too late.
pub(crate) const RETENTION_PARTS: i64 = 8;

impl Shared {
    /// The retention time in microseconds.
    pub(crate) fn retention_micros(&self) -> Option<i64> {
        self.options.retention.map(|time| i64::try_from(time.as_micros()).unwrap_or(i64::MAX))
    }

    /// Merges neighbours when there are many segments. Says whether it did.
    pub(crate) fn merge_one(&self) -> Result<bool, MaintainError> {
        let mut compacting = self.compacting.lock();
        let Some(sources) = self.merge_candidates() else { return Ok(false) };
        self.rewrite(&sources, &mut compacting)
    }

    /// Puts one segment with what is not hidden into the place of neighbours. Says whether it did.
    pub(super) fn rewrite(
        &self,
        sources: &[Segment],
        compacting: &mut Compacting,
    ) -> Result<bool, MaintainError> {
        let number = *compacting.reserved.get_or_insert_with(|| self.reserve_segment());
        let path = segment_path(number);
        let disk = Arc::clone(&self.disk);
        let mut writer =
            SegmentWriter::create(disk, number, Codec::Zstd, self.hasher).doing("making", &path)?;
        let hidden = self.rooms.read().hidden();
        let is_kept = |message: &Message<'_>| {
            hidden.is_empty() || hidden.get(message.sent.room).is_none_or(|hidden| !hidden.hides(message.seq))
        };
        // When the store closes, nothing more is kept, and what was written is of no use.
        let merged = merge(sources, &mut writer, |message| !self.bell.is_stopped() && is_kept(message));
        if self.bell.is_stopped() {
            writer.discard().doing("removing", &path)?;
            return Ok(false);
        }
        if let Err(error) = merged {
            // Only to give the space back at once; the next attempt writes the same file.
            let _ = writer.discard();
            return Err(match error {
                MergeError::Read(error) => error.into(),
                MergeError::Write(source) => MaintainError::Io { attempted: "writing", path, source },
            });
        }
        if writer.messages() == 0 {
            writer.discard().doing("removing", &path)?;
            self.replace(sources, None)?;
            return Ok(true);
        }
        writer.finish().doing("finishing", &path)?;
        let merged = Segment::open(&*self.disk, number, Arc::clone(&self.cache))?;
        let replaced = self.replace(sources, Some(merged));
        if may_be_named(&replaced) {
            compacting.reserved = None;
        }
        replaced.map(|()| true)
    }

    /// The neighbours that are smallest together, if there are too many segments.
    fn merge_candidates(&self) -> Option<Vec<Segment>> {
        let merging = self.options.merge;
        let view = self.view();
        if view.segments.len() <= merging.segments_max || merging.fan_in < 2 {
            return None;
        }
        let part = self.retention_micros().map(|retention| retention / RETENTION_PARTS);
        let bytes = |group: &&[Segment]| group.iter().map(Segment::bytes).sum::<u64>();
        let group = view
            .segments
            .windows(merging.fan_in)
            .filter(|group| {
                !group.iter().any(|segment| self.is_damaged(segment))
                    && bytes(group) <= merging.bytes_max
                    && part.is_none_or(|part| age_span(group) <= part)
            })
            .min_by_key(bytes)?;
        Some(group.to_vec())
    }

    /// Whether a read of a segment has failed. Rewriting it would fail again each time, and give nothing back.
    pub(super) fn is_damaged(&self, segment: &Segment) -> bool {
        self.status.damage.has(&segment_path(segment.number()))
    }

    /// Puts `by` in the place of neighbours, in the manifest, in the view, then on the disk.
    pub(super) fn replace(&self, old: &[Segment], by: Option<Segment>) -> Result<(), MaintainError> {
        let gone: HashSet<u64> = old.iter().map(Segment::number).collect();
        let first = old.first().map(Segment::number);
        let now = self.clock.proven().as_micros();
        self.change_manifest(|manifest| {
            let place = manifest.segments.iter().position(|number| Some(*number) == first);
            if let (Some(by), Some(place)) = (&by, place) {
                manifest.segments.insert(place, by.number());
            }
            manifest.segments.retain(|number| !gone.contains(number));
            let there_by = there_by(old, &manifest.there_by, now);
            manifest.there_by.retain(|number, _| !gone.contains(number));
            if let (Some(by), Some(time)) = (&by, there_by) {
                manifest.there_by.insert(by.number(), time);
            }
        })?;
        let numbers: Vec<u64> = gone.iter().copied().collect();
        let mut counted = self.stats.exchange();
        counted.replaced(&numbers, by.as_ref().map(Segment::number));
        self.change_view(|view| {
            let place = view.segments.iter().position(|segment| Some(segment.number()) == first);
            if let (Some(by), Some(place)) = (by, place) {
                view.segments.insert(place, by);
            }
            view.segments.retain(|segment| !gone.contains(&segment.number()));
        });
        drop(counted);
        for number in gone {
            let path = segment_path(number);
            self.disk.remove(&path).doing("removing", &path)?;
        }
        Ok(())
    }
}

/// By when all messages of these segments were there, where that is noted of any of them: the latest of what is noted, and
/// for the others their newest message, or now where that one lies ahead.
fn there_by(sources: &[Segment], noted: &BTreeMap<u64, i64>, now: i64) -> Option<i64> {
    let last = |segment: &Segment| segment.times().map_or(i64::MIN, |(_, last)| last.as_micros());
    let by = |segment: &Segment| noted.get(&segment.number()).copied().unwrap_or(last(segment).min(now));
    let is_noted = sources.iter().any(|segment| noted.contains_key(&segment.number()));
    sources.iter().map(by).max().filter(|_| is_noted)
}

/// Time between the oldest and the newest message of a group.
fn age_span(group: &[Segment]) -> i64 {
    let times = group.iter().filter_map(Segment::times);
    let (first, last) = times.fold((i64::MAX, i64::MIN), |(first, last), times| {
        (first.min(times.0.as_micros()), last.max(times.1.as_micros()))
    });
    last.saturating_sub(first)
}
