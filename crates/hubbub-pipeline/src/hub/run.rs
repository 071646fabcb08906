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
pub(super) enum Fit {
    /// These are the next ones.
    Next(Run),
    /// They were published.
    Known,
    /// Others are missing before them.
    Hole,
}

impl Published {
    /// Begins behind `seq`, unless it has begun.
    pub(super) fn begin(&mut self, seq: u64) {
        if self.through.is_none() {
            (self.through, self.last) = (Some(seq), seq);
        }
    }

    /// How messages that were committed together go on from what was published.
    pub(super) fn fit(&mut self, run: Run) -> Fit {
        let first = run.ends.first().map_or(0, |(seq, _)| *seq);
        self.begin(first.saturating_sub(1));
        match self.through {
            Some(through) if first > through.saturating_add(1) => Fit::Hole,
            Some(through) => run.beyond(through).map_or(Fit::Known, Fit::Next),
            None => Fit::Next(run),
        }
    }

    /// Takes note of messages that were published.
    pub(super) fn push(&mut self, run: &Run) {
        self.last = run.last_seq();
        self.through = self.through.map(|through| through.max(self.last));
    }
}
