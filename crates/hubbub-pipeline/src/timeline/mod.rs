//! What became of messages on this server, and when: for people who look for one message.
//!
//! Each committed batch leaves one record for each of its rooms ([`batch`]): the first and the last seq, and the times of
//! the batch. Each publication of a room's messages to live subscribers leaves one, too, which goes on counting those who
//! got it. All records are in one ring of a fixed size ([`ring`]). Whoever asks for a message names its room and seq, and
//! gets what is still on record.
//!
//! Invariants
//! - One message costs no record, no lock and no allocation of its own. Publications have one small allocation each.
//! - What is not on record is not guessed: not from neighbours, and not from other servers.
//! - A span without a log in front of the store holds no number that is not of its batch.
//!
//! Not here: what other servers did, and what is stored (`receivedAt` is the store's).

mod batch;
mod deliveries;
mod ring;

use std::cell::Cell;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use hubbub_core::clock::Clock;
use hubbub_core::invariant::saturate;
use hubbub_core::{OpBatch, Outcome, Receipt};
use parking_lot::Mutex;

use crate::traces::Tracer;
pub(crate) use batch::BatchSpans;
pub(crate) use deliveries::Deliveries;
use ring::{Kind, Record, Ring};

/// The records of this server, or nothing where they are switched off.
#[derive(Default)]
pub struct Timeline {
    recorder: Option<Recorder>,
    tracer: Option<Tracer>,
}

struct Recorder {
    clock: Arc<dyn Clock>,
    hasher: RandomState,
    ring: Mutex<Ring>,
}

/// Messages of one room with consecutive numbers. With a log in front of the store, numbers between them may be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    /// A keyed hash of the room's name.
    room: u64,
    first: u64,
    last: u64,
}

impl Span {
    fn holds(&self, room: u64, seq: u64) -> bool {
        self.room == room && (self.first..=self.last).contains(&seq)
    }
}

/// When a batch came to each of its stages on this server, by the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchTimes {
    /// When its first operation was queued in front of the store.
    pub queued: Duration,
    /// When its last operation was.
    pub queued_last: Duration,
    /// When the commit thread took it.
    pub taken: Duration,
    /// When the store had it.
    pub stored: Duration,
    /// When its senders could see the outcome.
    pub answered: Duration,
}

/// A batch that stored a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommittedBatch {
    /// Its times.
    pub times: BatchTimes,
    /// All its operations, of all rooms.
    pub operations: u64,
}

/// Where messages come from that are published to this server's subscribers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// This server committed them.
    Commit,
    /// Another server committed them, and sent them here.
    Bus,
    /// Another server committed them; or this one, behind a gap. They were read from the store.
    Store,
}

/// A publication of a message to the live subscribers of this server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Publication {
    /// When.
    pub at: Duration,
    /// Where the message came from.
    pub source: Source,
    /// Live subscriptions that it was queued for. Those that still caught up read it from the store, and are not counted.
    pub subscribers: u64,
    /// Of these, how many had it moved to their connection.
    pub delivered: u64,
    /// When the first and the last one did.
    pub delivered_at: Option<(Duration, Duration)>,
}

impl Publication {
    /// Whether everybody has it.
    pub(crate) fn is_delivered(&self) -> bool {
        self.delivered >= self.subscribers
    }
}

/// What followed when a message was stored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Sequel {
    /// When it was written to the bus.
    pub(crate) bus: Option<Duration>,
    /// Its publications on this server.
    pub(crate) publications: Vec<Publication>,
}

impl Sequel {
    fn add(&mut self, record: &Record) {
        match &record.kind {
            Kind::Batch { .. } => {}
            Kind::Bus => self.bus = Some(Duration::from_micros(record.at)),
            Kind::Publication { source, deliveries } => {
                self.publications.push(deliveries.public(record.at, *source));
            }
        }
    }
}

/// What is on record of a message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MessageTrace {
    /// The batch that stored it on this server.
    pub batch: Option<CommittedBatch>,
    /// When it was written to the bus, for other servers.
    pub bus: Option<Duration>,
    /// Its publications on this server, oldest first.
    pub publications: Vec<Publication>,
    /// Everything that happened from then on is still on record.
    pub since: Duration,
}

impl Timeline {
    /// Records in about `bytes_max` bytes; 0 = nothing is recorded.
    pub fn new(bytes_max: usize, clock: Arc<dyn Clock>) -> Self {
        if bytes_max == 0 {
            return Self::default();
        }
        let ring = Mutex::new(Ring::new(bytes_max, micros(clock.monotonic())));
        Self { recorder: Some(Recorder { clock, hasher: RandomState::new(), ring }), tracer: None }
    }

    /// Messages that belong to traces are told to `tracer`.
    pub fn with_tracer(self, tracer: Tracer) -> Self {
        Self { tracer: Some(tracer), ..self }
    }

    /// Who takes traces, if anybody does.
    pub fn tracer(&self) -> Option<&Tracer> {
        self.tracer.as_ref()
    }

    /// The time of the records.
    pub(crate) fn now(&self) -> Option<Duration> {
        self.recorder.as_ref().map(|recorder| recorder.clock.monotonic())
    }

    /// Whether anything is recorded.
    pub(crate) fn is_on(&self) -> bool {
        self.recorder.is_some()
    }

    /// Forgets everything: the numbers of messages begin to mean others.
    pub(crate) fn clear(&self) {
        if let Some(recorder) = &self.recorder {
            let now = micros(recorder.clock.monotonic());
            // Dropped behind the lock.
            let _old = recorder.ring.lock().clear(now);
        }
    }

    /// Records what a batch stored. `runs` are the numbers of consecutive operations of one lane.
    pub(crate) fn record_batch(
        &self,
        (ops, outcomes): (&OpBatch, &[Outcome]),
        runs: impl Iterator<Item = usize>,
        times: &BatchTimes,
        spans: &mut BatchSpans,
    ) {
        let Some(recorder) = &self.recorder else { return };
        spans.collect((ops, outcomes), runs, |room| recorder.hasher.hash_one(room));
        if spans.is_empty() {
            return;
        }
        let (at, delta) =
            (micros(times.queued), |time: Duration| saturate(micros(time.saturating_sub(times.queued))));
        let batch = ring::Batch {
            queued_last: delta(times.queued_last),
            taken: delta(times.taken),
            stored: delta(times.stored),
            answered: delta(times.answered),
            operations: saturate(ops.len()),
        };
        let now = micros(times.answered);
        let mut ring = recorder.ring.lock();
        for (span, received) in spans.drain() {
            ring.push(now, Record { span, at, kind: Kind::Batch { batch, received } });
        }
    }

    /// Counts who gets messages that are about to be encoded; `None` where nothing is recorded.
    pub(crate) fn deliveries(&self) -> Option<Arc<Deliveries>> {
        self.recorder.as_ref().map(|_| Arc::default())
    }

    /// Records that messages are published to this server's subscribers.
    pub(crate) fn record_publication(
        &self,
        room: &str,
        (first, last): (u64, u64),
        source: Source,
        deliveries: &Arc<Deliveries>,
    ) {
        self.record(room, (first, last), Kind::Publication { source, deliveries: deliveries.clone() });
    }

    /// Records that messages were written to the bus.
    #[cfg(feature = "kafka")]
    pub(crate) fn record_bus(&self, room: &str, (first, last): (u64, u64)) {
        self.record(room, (first, last), Kind::Bus);
    }

    fn record(&self, room: &str, (first, last): (u64, u64), kind: Kind) {
        let Some(recorder) = &self.recorder else { return };
        let (now, span) =
            (micros(recorder.clock.monotonic()), Span { room: recorder.hasher.hash_one(room), first, last });
        recorder.ring.lock().push(now, Record { span, at: now, kind });
    }

    /// Records that a connection takes the messages of a chunk to its socket.
    pub fn delivered(&self, chunk: &crate::hub::EncodedChunk) {
        if let (Some(recorder), Some(deliveries)) = (&self.recorder, chunk.deliveries()) {
            deliveries.count(micros(recorder.clock.monotonic()));
        }
    }

    /// What is on record of a stored message; `None` where nothing is recorded. Reads the ring back to the batch that stored it,
    /// all of it where another server did, with a lock for a part of it at a time.
    pub fn trace(&self, room: &str, receipt: &Receipt) -> Option<MessageTrace> {
        let recorder = self.recorder.as_ref()?;
        let (room, received) = (recorder.hasher.hash_one(room), receipt.received_at.as_micros());
        let mut trace = MessageTrace::default();
        let from = Cell::new(0);
        let mut visit = |record: &Record| {
            if !record.span.holds(room, receipt.seq) {
                return;
            }
            match &record.kind {
                // Another time: of a history that has ended.
                Kind::Batch { received: (from, to), .. } if !(*from..=*to).contains(&received) => {}
                Kind::Batch { batch, .. } => {
                    trace.batch = Some(batch.public(record.at));
                    // Nothing of the message happened before it was queued.
                    from.set(record.at);
                }
                Kind::Bus => trace.bus = Some(Duration::from_micros(record.at)),
                Kind::Publication { source, deliveries } => {
                    trace.publications.push(deliveries.public(record.at, *source));
                }
            }
        };
        let since = ring::visit_all(&recorder.ring, &from, &mut visit);
        trace.since = Duration::from_micros(since);
        trace.publications.sort_by_key(|publication| publication.at);
        Some(trace)
    }

    /// What followed on this server when messages were stored, none of them before `since`. They are looked up together.
    pub(crate) fn sequels<'a>(
        &self,
        messages: impl Iterator<Item = (&'a str, u64)>,
        since: Duration,
    ) -> Vec<Sequel> {
        let Some(recorder) = &self.recorder else { return Vec::new() };
        let mut wanted: HashMap<u64, Vec<(u64, usize)>> = HashMap::new();
        let mut sequels = Vec::new();
        for (room, seq) in messages {
            wanted.entry(recorder.hasher.hash_one(room)).or_default().push((seq, sequels.len()));
            sequels.push(Sequel::default());
        }
        wanted.values_mut().for_each(|seqs| seqs.sort_unstable());
        ring::visit_all(&recorder.ring, &Cell::new(micros(since)), &mut |record| {
            let Some(seqs) = wanted.get(&record.span.room) else { return };
            let first = seqs.partition_point(|(seq, _)| *seq < record.span.first);
            let of_record = seqs.iter().skip(first).take_while(|(seq, _)| *seq <= record.span.last);
            for (_, index) in of_record {
                if let Some(sequel) = sequels.get_mut(*index) {
                    sequel.add(record);
                }
            }
        });
        sequels.iter_mut().for_each(|sequel| sequel.publications.reverse());
        sequels
    }
}

fn micros(time: Duration) -> u64 {
    saturate(time.as_micros())
}

#[cfg(test)]
mod tests;
