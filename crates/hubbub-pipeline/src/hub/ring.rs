//! The most recent messages of a room, encoded, for subscribers that have just caught up.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use super::outbox::Parcel;

/// Most messages a ring keeps, and most bytes, unless a single run has more.
const RING_MESSAGES_MAX: usize = 1_024;
const RING_BYTES_MAX: usize = 1024 * 1024;

/// Consecutive messages of one room, encoded once and shared by everybody who gets them.
#[derive(Debug, Clone)]
pub(super) struct Run {
    pub(super) frames: Bytes,
    /// Seq of each message and where its encoding ends.
    pub(super) ends: Arc<[(u64, usize)]>,
}

impl Run {
    /// A frame that is no message: it counts for none and has no seq.
    pub(super) fn of_notice(frame: Vec<u8>) -> Self {
        Self { frames: Bytes::from(frame), ends: Arc::from([]) }
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

    /// The run, unless it is empty.
    pub(super) fn finish(self) -> Option<Run> {
        (!self.ends.is_empty()).then(|| Run { frames: Bytes::from(self.frames), ends: Arc::from(self.ends) })
    }
}

#[derive(Debug, Default)]
pub(super) struct Ring {
    runs: VecDeque<Run>,
    messages: usize,
    bytes: usize,
    /// Greatest seq that was published since the ring began and is no longer in it.
    dropped_seq: u64,
    /// Where other servers write to the rooms, too: everything up to here was published, or was there before the ring
    /// began. `None` = nothing was published, and nobody joined.
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

impl Ring {
    /// Begins behind `seq`, unless it has begun.
    pub(super) fn begin(&mut self, seq: u64) {
        if self.through.is_none() {
            (self.through, self.dropped_seq) = (Some(seq), seq);
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

    pub(super) fn push(&mut self, run: Run) {
        self.messages += run.ends.len();
        self.bytes += run.frames.len();
        self.through = self.through.map(|through| through.max(run.last_seq()));
        self.runs.push_back(run);
        while self.runs.len() > 1 && (self.messages > RING_MESSAGES_MAX || self.bytes > RING_BYTES_MAX) {
            if let Some(run) = self.runs.pop_front() {
                self.messages -= run.ends.len();
                self.bytes -= run.frames.len();
                self.dropped_seq = run.last_seq();
            }
        }
    }

    /// Forgets what it holds: whoever catches up reads it, or what is left of it, from the store.
    pub(super) fn drop_all(&mut self) {
        let dropped_seq = self.runs.back().map_or(self.dropped_seq, Run::last_seq);
        *self = Self { dropped_seq, through: self.through, ..Self::default() };
    }

    /// The runs that hold something beyond `cursor`, or `None` when some of it was dropped already.
    pub(super) fn after(&self, cursor: u64) -> Option<impl Iterator<Item = &Run>> {
        let start = self.runs.partition_point(|run| run.last_seq() <= cursor);
        (cursor >= self.dropped_seq).then(|| self.runs.range(start..))
    }
}
