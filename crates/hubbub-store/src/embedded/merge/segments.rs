//! Merging neighbouring segments, which also removes hidden messages from the disk.
//!
//! Merging takes neighbours that are small together and of about one size, so that a message is rewritten a few times at
//! most, and keeps the order of segments. Files are removed only after the manifest stopped naming them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hubbub_core::Message;
use hubbub_core::invariant::saturate;

use super::{replace_neighbours, smallest_neighbours};
use crate::embedded::error::MaintainError;
use crate::embedded::manifest::may_be_named;
use crate::embedded::options::MergeOptions;
use crate::embedded::segment::{Codec, SEGMENTS_DIR, Segment, SegmentWriter, merge, segment_path};
use crate::embedded::shared::Shared;

/// What the work on segments remembers from step to step.
#[derive(Debug, Default)]
pub(crate) struct MergeState {
    /// The number reserved for the segment that is being written, kept until a manifest may name it.
    pub(super) reserved: Option<u64>,
    /// When it is looked for old messages again, or sooner if a room is to keep its messages for another time.
    pub(super) expire_at: Duration,
    pub(super) retention_changes: u64,
    /// What was hidden when it was last looked for segments that hold something of it; `None` = it is to be looked again.
    pub(super) scrubbed: Option<u64>,
    pub(super) scrub_at: Duration,
    /// Numbers of the segments that were found then and are still to be written anew, each once.
    pub(super) to_scrub: Vec<u64>,
}

/// No segment of a merge is larger than so many times the others together: it would be written anew for little.
const LARGEST_TO_OTHERS: u64 = 2;

/// Into so many parts of the retention time messages are grouped, so that they go at most one part too late.
pub(crate) const RETENTION_PARTS: i64 = 8;

impl Shared {
    pub(crate) fn retention_micros(&self) -> Option<i64> {
        self.options.retention.map(|time| saturate(time.as_micros()))
    }

    /// Merges neighbours when there are many segments. Says whether it did.
    pub(crate) fn merge_one(&self) -> Result<bool, MaintainError> {
        let mut merging = self.merging.lock();
        let Some(sources) = self.merge_candidates() else { return Ok(false) };
        self.rewrite(&sources, &mut merging)
    }

    /// Puts one segment with what is not hidden into the place of neighbours. Says whether it did.
    pub(super) fn rewrite(
        &self,
        sources: &[Segment],
        merging: &mut MergeState,
    ) -> Result<bool, MaintainError> {
        self.dirs.check(&["", SEGMENTS_DIR])?;
        let number = *merging.reserved.get_or_insert_with(|| self.reserve_segment());
        let path = segment_path(number);
        let writer = SegmentWriter::create(Arc::clone(&self.disk), number, Codec::Zstd, self.hasher);
        let hidden = self.rooms.read().hidden();
        let is_visible = |message: &Message<'_>| {
            hidden.is_empty() || hidden.get(message.sent.room).is_none_or(|hidden| !hidden.hides(message.seq))
        };
        let merged = self.write_merged(
            &path,
            writer,
            |writer| merge(sources, writer, |message| !self.wakeup.is_stopped() && is_visible(message)),
            || Segment::open(&*self.disk, number, Arc::clone(&self.cache)),
        )?;
        let Some(merged) = merged else { return Ok(false) };
        let replaced = self.replace(sources, merged);
        if may_be_named(&replaced) {
            merging.reserved = None;
        } else {
            // Its space may be what is missing; the next attempt writes it anew.
            let _ = self.disk.remove(&path);
        }
        replaced.map(|()| true)
    }

    /// The neighbours to merge next, if there are too many segments.
    fn merge_candidates(&self) -> Option<Vec<Segment>> {
        let view = self.view();
        let part = self.retention_micros().map(|retention| retention / RETENTION_PARTS);
        let free = self.bytes_for_merges();
        let may_merge = |group: &[Segment]| {
            group.iter().map(Segment::bytes).sum::<u64>() <= free
                && !group.iter().any(|segment| self.is_damaged(segment))
                && part.is_none_or(|part| age_span(group) <= part)
        };
        let (_, group) = next_group(&view.segments, self.options.merge, Segment::bytes, may_merge)?;
        Some(group.to_vec())
    }

    /// Whether a read of a segment has failed. Rewriting it would fail again each time, and give nothing back.
    pub(super) fn is_damaged(&self, segment: &Segment) -> bool {
        self.status.damage.has(&segment_path(segment.number()))
    }

    /// Puts `by` in the place of neighbours, in the manifest, in the view, then on the disk.
    pub(super) fn replace(&self, old: &[Segment], by: Option<Segment>) -> Result<(), MaintainError> {
        let gone: Vec<u64> = old.iter().map(Segment::number).collect();
        let by_number = by.as_ref().map(Segment::number);
        let now = self.clock.proven().as_micros();
        self.change_manifest(|manifest| {
            replace_neighbours(&mut manifest.segments, |number| *number, &gone, by_number);
            let there_by = there_by(old, &manifest.there_by, now);
            manifest.there_by.retain(|number, _| !gone.contains(number));
            if let (Some(by), Some(time)) = (by_number, there_by) {
                manifest.there_by.insert(by, time);
            }
        })?;
        let mut counted = self.stats.exchange();
        counted.replaced(&gone, by_number);
        self.change_view(|view| replace_neighbours(&mut view.segments, Segment::number, &gone, by));
        drop(counted);
        self.remove_files(gone.into_iter().map(segment_path))
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

/// Whether another merge can make it larger.
fn can_grow(bytes: u64, bytes_max: u64) -> bool {
    bytes <= bytes_max / 2
}

/// The neighbours to merge next for which `may_merge` holds, and the place of the first one, if there are too many files.
fn next_group<T>(
    files: &[T],
    options: MergeOptions,
    bytes: impl Fn(&T) -> u64,
    may_merge: impl Fn(&[T]) -> bool,
) -> Option<(usize, &[T])> {
    let growing = files.iter().filter(|file| can_grow(bytes(file), options.bytes_max));
    if growing.count() <= options.segments_max {
        return None;
    }
    let may_merge = |group: &[T], sum: u64| {
        let largest = group.iter().map(&bytes).max().unwrap_or(0);
        let is_balanced = largest <= LARGEST_TO_OTHERS.saturating_mul(sum.saturating_sub(largest));
        is_balanced && sum <= options.bytes_max && may_merge(group)
    };
    smallest_neighbours(files, 2..=options.fan_in, &bytes, may_merge)
}

fn age_span(group: &[Segment]) -> i64 {
    let times = group.iter().filter_map(Segment::times);
    let (first, last) = times.fold((i64::MAX, i64::MIN), |(first, last), times| {
        (first.min(times.0.as_micros()), last.max(times.1.as_micros()))
    });
    last.saturating_sub(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of segments as they are sealed, until many times more are there than a merge may take together.
    #[test]
    fn a_message_is_rewritten_a_few_times() {
        let options = MergeOptions::default();
        let (mut files, mut all, mut rewritten) = (Vec::new(), 0, 0);
        for number in 0..2_000_u64 {
            let sealed = (20 + number * 7 % 41) << 20;
            files.push(sealed);
            all += sealed;
            while let Some((place, group)) = next_group(&files, options, |bytes| *bytes, |_| true) {
                let (count, sum) = (group.len(), group.iter().sum::<u64>());
                files.splice(place..place + count, [sum]);
                rewritten += sum;
            }
            let growing = files.iter().filter(|bytes| can_grow(**bytes, options.bytes_max)).count();
            assert!(growing <= options.segments_max + 8, "{files:?}");
        }
        assert_eq!(files.iter().sum::<u64>(), all);
        assert!(rewritten < 7 * all / 2, "{rewritten} of {all}");
        assert!(files.len() as u64 <= 2 * all / options.bytes_max + 40, "{} files", files.len());
    }
}
