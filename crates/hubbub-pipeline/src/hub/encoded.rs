//! Encoded messages of a room, shared by all subscribers, and how far a room was published.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::memory::LiveMemory;
use crate::timeline::Deliveries;

/// Encoded messages of one room: a view of consecutive messages that were encoded once, for all subscribers.
#[derive(Debug, Clone)]
pub struct EncodedChunk {
    frames: Bytes,
    shared: Arc<SharedByAll>,
    /// The messages of this chunk, as indexes of `ends`.
    range: Range<usize>,
    /// Whether its delivery counts: not where the subscriber has some of the messages already.
    is_counted: bool,
}

#[derive(Debug, Default)]
struct SharedByAll {
    /// Seq of each encoded message and the end of its frame.
    ends: Box<[(u64, usize)]>,
    /// Who gets them, where that is recorded.
    deliveries: Option<Arc<Deliveries>>,
}

impl EncodedChunk {
    /// The frame of a notice, which counts as no message and has no seq.
    pub(super) fn of_notice(frame: Vec<u8>, memory: &Arc<LiveMemory>) -> Self {
        Self { frames: memory.frames(frame), shared: Arc::default(), range: 0..0, is_counted: false }
    }

    /// Some of the bytes of notices.
    pub(super) fn part_of_notices(&self, bytes: Range<usize>) -> Self {
        Self { frames: self.frames.slice(bytes), ..self.clone() }
    }

    /// The frames, concatenated.
    pub fn frames(&self) -> Bytes {
        self.frames.slice(self.start()..self.end())
    }

    /// Number of messages.
    pub fn messages(&self) -> usize {
        self.range.len()
    }

    /// Seq and frame of each message.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let mut start = self.start();
        self.ends().iter().map(move |(seq, end)| {
            let frame = self.frames.get(start..*end).unwrap_or_default();
            start = *end;
            (*seq, frame)
        })
    }

    pub(super) fn bytes(&self) -> usize {
        self.end() - self.start()
    }

    fn ends(&self) -> &[(u64, usize)] {
        self.shared.ends.get(self.range.clone()).unwrap_or_default()
    }

    fn start(&self) -> usize {
        let last_skipped = self.range.start.checked_sub(1).and_then(|last| self.shared.ends.get(last));
        last_skipped.map_or(0, |(_, end)| *end)
    }

    fn end(&self) -> usize {
        if self.range.end == self.shared.ends.len() {
            return self.frames.len();
        }
        self.ends().last().map_or(self.start(), |(_, end)| *end)
    }

    pub(super) fn last_seq(&self) -> u64 {
        self.ends().last().map_or(0, |(seq, _)| *seq)
    }

    /// The first and the last seq; `None` without messages.
    pub(super) fn seqs(&self) -> Option<(u64, u64)> {
        self.ends().first().map(|(first, _)| (*first, self.last_seq()))
    }

    /// Who gets the messages, where that is recorded and this chunk counts.
    pub(crate) fn deliveries(&self) -> Option<&Arc<Deliveries>> {
        self.shared.deliveries.as_ref().filter(|_| self.is_counted)
    }

    pub(super) fn after(&self, cursor: u64) -> Self {
        let known = self.ends().partition_point(|(seq, _)| *seq <= cursor);
        Self { range: self.range.start + known..self.range.end, ..self.clone() }
    }

    /// What a subscriber that has everything up to `cursor` lacks of it.
    pub(super) fn lacking(&self, cursor: u64) -> Self {
        let lacking = self.after(cursor);
        Self { is_counted: self.is_counted && lacking.range.start == self.range.start, ..lacking }
    }

    /// Drops the message `seq` and all behind it.
    fn truncate_at(&mut self, seq: u64) {
        let kept = self.ends().partition_point(|(earlier, _)| *earlier < seq);
        self.range.end = self.range.start + kept;
    }
}

/// Which message of the room precedes those of a chunk that do not follow the one before them in it. Numbers say that only
/// where they are dense.
#[derive(Debug, Default)]
pub(super) struct Predecessors {
    /// Of the first message.
    pub(super) first: u64,
    last_seq: Option<u64>,
    /// Of further messages: seqs and the greater ones of their predecessors.
    later: Vec<(u64, u64)>,
}

impl Predecessors {
    fn push(&mut self, seq: u64, prev: u64) {
        match self.last_seq.replace(seq) {
            None => self.first = prev,
            Some(last) if prev > last => self.later.push((seq, prev)),
            Some(_) => {}
        }
    }

    /// The first of `chunk`, which has nothing up to `through`, that messages are missing before.
    fn first_gap(&self, chunk: &EncodedChunk, through: u64) -> Option<u64> {
        let (first, _) = chunk.ends().first()?;
        // What is not the first of all follows one that is published, unless it is listed.
        let is_first = chunk.range.start == 0 && self.first > through;
        let later = || self.later.iter().find(|(seq, prev)| seq >= first && *prev > through);
        if is_first { Some(*first) } else { later().map(|(seq, _)| *seq) }
    }
}

/// Encodes consecutive messages.
#[derive(Debug, Default)]
pub(super) struct ChunkEncoder {
    frames: Vec<u8>,
    ends: Vec<(u64, usize)>,
    predecessors: Predecessors,
}

impl ChunkEncoder {
    /// Adds a message behind `prev`, the one before it in the room.
    pub(super) fn push_behind(&mut self, prev: u64, seq: u64, encode: impl FnOnce(&mut Vec<u8>)) {
        self.predecessors.push(seq, prev);
        self.push(seq, encode);
    }

    pub(super) fn take_predecessors(&mut self) -> Predecessors {
        std::mem::take(&mut self.predecessors)
    }

    pub(super) fn push(&mut self, seq: u64, encode: impl FnOnce(&mut Vec<u8>)) {
        encode(&mut self.frames);
        self.ends.push((seq, self.frames.len()));
    }

    /// All messages, unless there are none. They are charged to `memory` until the last reference is dropped.
    pub(super) fn finish(
        self,
        memory: &Arc<LiveMemory>,
        deliveries: Option<Arc<Deliveries>>,
    ) -> Option<EncodedChunk> {
        if self.ends.is_empty() {
            return None;
        }
        let (range, ends) = (0..self.ends.len(), self.ends.into_boxed_slice());
        let frames = memory.frames_with(self.frames, size_of_val(&*ends));
        let shared = Arc::new(SharedByAll { ends, deliveries });
        Some(EncodedChunk { frames, shared, range, is_counted: true })
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
    pub(super) fn continuation(
        &mut self,
        batch: &EncodedChunk,
        predecessors: &Predecessors,
    ) -> (EncodedChunk, bool) {
        self.begin(predecessors.first);
        let through = self.through.unwrap_or(0);
        let mut next = batch.after(through);
        let gap = predecessors.first_gap(&next, through);
        if let Some(seq) = gap {
            next.truncate_at(seq);
        }
        (next, gap.is_some())
    }

    pub(super) fn advance(&mut self, chunk: &EncodedChunk) {
        self.last = chunk.last_seq();
        self.through = self.through.map(|through| through.max(self.last));
    }
}
