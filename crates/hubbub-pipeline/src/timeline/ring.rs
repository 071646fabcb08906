//! The ring of records: segments of a fixed length, of which the oldest is overwritten.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use hubbub_core::invariant::saturate;
use parking_lot::Mutex;

use super::deliveries::Deliveries;
use super::{BatchTimes, CommittedBatch, Source, Span};

/// One thing that happened to messages of a room. Times are microseconds of the monotonic clock.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) span: Span,
    pub(super) at: u64,
    pub(super) kind: Kind,
}

#[derive(Debug)]
pub(super) enum Kind {
    /// A batch stored them. `at` is when its first operation was queued.
    Batch {
        batch: Batch,
        /// When the store received the first and the last one, by its own clock.
        received: (i64, i64),
    },
    #[cfg_attr(not(feature = "kafka"), allow(dead_code, reason = "only Kafka is a bus"))]
    Bus,
    Publication {
        source: Source,
        deliveries: Arc<Deliveries>,
    },
}

/// Times of a batch in microseconds after its first operation was queued, at most 71 minutes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Batch {
    pub(super) queued_last: u32,
    pub(super) taken: u32,
    pub(super) stored: u32,
    pub(super) answered: u32,
    pub(super) operations: u32,
}

impl Batch {
    pub(super) fn public(&self, at: u64) -> CommittedBatch {
        let time = |delta: u32| Duration::from_micros(at.saturating_add(delta.into()));
        let times = BatchTimes {
            queued: time(0),
            queued_last: time(self.queued_last),
            taken: time(self.taken),
            stored: time(self.stored),
            answered: time(self.answered),
        };
        CommittedBatch { times, operations: self.operations.into() }
    }
}

const SEGMENT_RECORDS: usize = 1_024;
/// Half of the records may be publications, which count their deliveries beside the ring.
const RECORD_BYTES: usize = size_of::<Record>() + (size_of::<Deliveries>() + 2 * size_of::<usize>()) / 2;

#[derive(Debug)]
struct Segment {
    /// When its first record was made.
    since: u64,
    records: Vec<Record>,
}

#[derive(Debug)]
pub(super) struct Ring {
    segments: VecDeque<Segment>,
    segments_max: usize,
    /// Number of the oldest segment, counted from 0.
    first: u64,
    /// From when on everything is on record.
    since: u64,
}

impl Ring {
    pub(super) fn new(bytes_max: usize, now: u64) -> Self {
        let segments_max = (bytes_max / (SEGMENT_RECORDS * RECORD_BYTES)).max(2);
        Self { segments: VecDeque::new(), segments_max, first: 0, since: now }
    }

    /// Empties the ring, and returns what to drop.
    pub(super) fn clear(&mut self, now: u64) -> impl Sized + use<> {
        self.first += self.segments.len() as u64;
        self.since = now;
        std::mem::take(&mut self.segments)
    }

    pub(super) fn push(&mut self, now: u64, record: Record) {
        if self.segments.back().is_none_or(|segment| segment.records.len() >= SEGMENT_RECORDS) {
            self.begin_segment(now);
        }
        if let Some(segment) = self.segments.back_mut() {
            segment.records.push(record);
        }
    }

    fn begin_segment(&mut self, now: u64) {
        let mut records = Vec::new();
        if self.segments.len() >= self.segments_max
            && let Some(oldest) = self.segments.pop_front()
        {
            records = oldest.records;
            records.clear();
            self.first += 1;
            self.since = self.segments.front().map_or(now, |segment| segment.since);
        }
        records.reserve_exact(SEGMENT_RECORDS);
        self.segments.push_back(Segment { since: now, records });
    }

    fn segment(&self, number: u64) -> Option<&Segment> {
        self.segments.get(saturate(number.checked_sub(self.first)?))
    }
}

/// Shows every record that was made at `from` or later to `visit`, newest first, and perhaps earlier ones; returns from when on
/// everything is on record. `visit` may raise `from`. Locks the ring for one segment at a time: who records does not wait for
/// who asks.
pub(super) fn visit_all(ring: &Mutex<Ring>, from: &Cell<u64>, visit: &mut impl FnMut(&Record)) -> u64 {
    let mut number = {
        let ring = ring.lock();
        ring.first + ring.segments.len() as u64
    };
    while let Some(before) = number.checked_sub(1) {
        let ring = ring.lock();
        // Overwritten meanwhile, with everything older.
        let Some(segment) = ring.segment(before) else { break };
        segment.records.iter().rev().for_each(&mut *visit);
        if segment.since < from.get() {
            break;
        }
        number = before;
    }
    ring.lock().since
}
