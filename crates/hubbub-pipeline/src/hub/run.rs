//! Messages of a room, encoded once, and how far a room was published.

use std::sync::Arc;

use bytes::Bytes;

use super::memory::LiveMemory;
use super::outbox::Parcel;

/// Consecutive messages of one room, encoded once and shared by everybody who gets them.
#[derive(Debug, Clone)]
pub(super) struct Run {
    pub(super) frames: Bytes,
    /// Seq of each message and where its encoding ends.
    pub(super) ends: Arc<[(u64, usize)]>,
}

impl Run {
    /// A frame that is no message: it counts for none and has no seq.
    pub(super) fn of_notice(frame: Vec<u8>, memory: &Arc<LiveMemory>) -> Self {
        Self { frames: memory.frames(frame), ends: Arc::from([]) }
    }

    /// Seq of its last message.
    pub(super) fn last_seq(&self) -> u64 {
        self.ends.last().map_or(0, |(seq, _)| *seq)
    }

    /// What of it lies beyond `cursor`, if anything does.
    pub(super) fn beyond(self, cursor: u64) -> Option<Self> {
        let known = self.ends.partition_point(|(seq, _)| *seq <= cursor);
        let Some((_, start)) = known.checked_sub(1).and_then(|last| self.ends.get(last)).copied() else {
            return Some(self);
        };
        let ends: Arc<[_]> = self.ends.iter().skip(known).map(|(seq, end)| (*seq, end - start)).collect();
        (!ends.is_empty()).then(|| Self { frames: self.frames.slice(start..), ends })
    }

    /// What of it goes on from `cursor` without a number missing, and whether more of it lies behind a missing one.
    fn unbroken_from(self, cursor: u64) -> (Option<Self>, bool) {
        let expected = cursor.saturating_add(1)..;
        let count = self.ends.iter().zip(expected).take_while(|((seq, _), next)| seq == next).count();
        if count == self.ends.len() {
            return (Some(self), false);
        }
        let ends: Arc<[_]> = self.ends.iter().take(count).copied().collect();
        let next =
            ends.last().map(|(_, end)| *end).map(|end| Self { frames: self.frames.slice(..end), ends });
        (next, true)
    }

    /// The messages beyond `cursor`.
    pub(super) fn parcel_after(&self, cursor: u64) -> Parcel {
        Parcel::new(self.clone(), self.ends.partition_point(|(seq, _)| *seq <= cursor))
    }
}

/// Collects a [`Run`].
#[derive(Debug, Default)]
pub(super) struct RunBuilder {
    frames: Vec<u8>,
    ends: Vec<(u64, usize)>,
}

impl RunBuilder {
    /// Adds the message that `encode` appends.
    pub(super) fn push(&mut self, seq: u64, encode: impl FnOnce(&mut Vec<u8>)) {
        encode(&mut self.frames);
        self.ends.push((seq, self.frames.len()));
    }

    /// The run, unless it is empty. It is charged to `memory` until nobody has it any more.
    pub(super) fn finish(self, memory: &Arc<LiveMemory>) -> Option<Run> {
        if self.ends.is_empty() {
            return None;
        }
        let ends: Arc<[_]> = Arc::from(self.ends);
        Some(Run { frames: memory.frames_with(self.frames, size_of_val(&*ends)), ends })
    }
}

/// How far a room was published.
#[derive(Debug, Default)]
pub(super) struct Published {
    /// Greatest seq of a message that was published since the room is followed.
    pub(super) last: u64,
    /// Where other servers write to the rooms, too: everything up to here was published, or was there before the room
    /// was followed. `None` = nothing was published, and nobody joined.
    pub(super) through: Option<u64>,
}

/// How messages go on from what was published before.
#[derive(Debug)]
pub(super) struct Fit {
    /// Those that are the next ones, without a number missing before or between them.
    pub(super) next: Option<Run>,
    /// Whether others are missing before the rest.
    pub(super) has_hole: bool,
}

impl Published {
    /// Begins behind `seq`, unless it has begun.
    pub(super) fn begin(&mut self, seq: u64) {
        if self.through.is_none() {
            (self.through, self.last) = (Some(seq), seq);
        }
    }

    /// How messages of one batch go on from what was published. Where the store divided the batch, others may have
    /// committed in between.
    pub(super) fn fit(&mut self, run: Run) -> Fit {
        let first = run.ends.first().map_or(0, |(seq, _)| *seq);
        self.begin(first.saturating_sub(1));
        let through = self.through.unwrap_or(0);
        let (next, has_hole) = run.beyond(through).map_or((None, false), |run| run.unbroken_from(through));
        Fit { next, has_hole }
    }

    /// Takes note of messages that were published.
    pub(super) fn push(&mut self, run: &Run) {
        self.last = run.last_seq();
        self.through = self.through.map(|through| through.max(self.last));
    }
}
