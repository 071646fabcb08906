//! Encoded messages of a room, shared by all subscribers, and how far a room was published.

use std::sync::Arc;

use bytes::Bytes;

use super::memory::LiveMemory;
use super::outbox::EncodedChunk;

/// Consecutive messages of one room, encoded once and shared by all subscribers.
#[derive(Debug, Clone)]
pub(super) struct EncodedRun {
    pub(super) frames: Bytes,
    /// Seq of each message and the end of its frame.
    pub(super) ends: Arc<[(u64, usize)]>,
}

impl EncodedRun {
    /// The frame of a notice, which counts as no message and has no seq.
    pub(super) fn of_notice(frame: Vec<u8>, memory: &Arc<LiveMemory>) -> Self {
        Self { frames: memory.frames(frame), ends: Arc::from([]) }
    }

    /// Seq of its last message.
    pub(super) fn last_seq(&self) -> u64 {
        self.ends.last().map_or(0, |(seq, _)| *seq)
    }

    /// The part beyond `cursor`, if any.
    pub(super) fn beyond(self, cursor: u64) -> Option<Self> {
        let known = self.ends.partition_point(|(seq, _)| *seq <= cursor);
        let Some((_, start)) = known.checked_sub(1).and_then(|last| self.ends.get(last)).copied() else {
            return Some(self);
        };
        let ends: Arc<[_]> = self.ends.iter().skip(known).map(|(seq, end)| (*seq, end - start)).collect();
        (!ends.is_empty()).then(|| Self { frames: self.frames.slice(start..), ends })
    }

    /// The part that continues from `cursor` without a gap, and whether the rest lies behind a gap.
    fn contiguous_from(self, cursor: u64) -> (Option<Self>, bool) {
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

    /// A reference to the messages beyond `cursor`.
    pub(super) fn chunk_after(&self, cursor: u64) -> EncodedChunk {
        EncodedChunk::new(self.clone(), self.ends.partition_point(|(seq, _)| *seq <= cursor))
    }
}

/// Collects an [`EncodedRun`].
#[derive(Debug, Default)]
pub(super) struct EncodedRunBuilder {
    frames: Vec<u8>,
    ends: Vec<(u64, usize)>,
}

impl EncodedRunBuilder {
    /// Adds the message that `encode` writes.
    pub(super) fn push(&mut self, seq: u64, encode: impl FnOnce(&mut Vec<u8>)) {
        encode(&mut self.frames);
        self.ends.push((seq, self.frames.len()));
    }

    /// The run, unless it is empty. It is charged to `memory` until its last reference is dropped.
    pub(super) fn finish(self, memory: &Arc<LiveMemory>) -> Option<EncodedRun> {
        if self.ends.is_empty() {
            return None;
        }
        let ends: Arc<[_]> = Arc::from(self.ends);
        Some(EncodedRun { frames: memory.frames_with(self.frames, size_of_val(&*ends)), ends })
    }
}

/// How far a room was published.
#[derive(Debug, Default)]
pub(super) struct PublishProgress {
    /// Seq of the last published message since the room is followed.
    pub(super) last: u64,
    /// Used where other servers write to the rooms: everything up to here was published, or existed before the room was
    /// followed. `None` = nothing was published, and nobody joined.
    pub(super) through: Option<u64>,
}

impl PublishProgress {
    /// Starts behind `seq`, unless it has started.
    pub(super) fn begin(&mut self, seq: u64) {
        if self.through.is_none() {
            (self.through, self.last) = (Some(seq), seq);
        }
    }

    /// The part of a batch that continues what was published, and whether the rest lies behind a gap: the store may have
    /// divided the batch, and other servers may have committed in between.
    pub(super) fn advance_with(&mut self, run: EncodedRun) -> (Option<EncodedRun>, bool) {
        let first = run.ends.first().map_or(0, |(seq, _)| *seq);
        self.begin(first.saturating_sub(1));
        let through = self.through.unwrap_or(0);
        run.beyond(through).map_or((None, false), |run| run.contiguous_from(through))
    }

    /// Records that the run was published.
    pub(super) fn advance(&mut self, run: &EncodedRun) {
        self.last = run.last_seq();
        self.through = self.through.map(|through| through.max(self.last));
    }
}
