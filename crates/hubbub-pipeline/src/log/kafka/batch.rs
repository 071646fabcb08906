//! A batch of records of one partition, stored together. Every record is one operation of the store, with its position; so
//! the store's next offset moves with it, also over records that cannot be stored.
//!
//! Those go to the topic of dead letters with the reason: unreadable ones before the batch is stored, so that none is lost;
//! those that the store refuses after it. A message of another program that is in another partition than its room's is
//! written again, to the right one, unless nothing is stored from there any more ([`rejected`]).

mod rejected;

use std::ops::Range;
use std::sync::Arc;

use hubbub_core::clock::SeededRandom;
use hubbub_core::limits::MESSAGE_BYTES_MAX;
use hubbub_core::{
    Change, ErrorCode, LogPosition, Op, OpBatch, Outcome, Send, Timestamp, TraceContext, log_partition,
};
use rdkafka::message::{BorrowedMessage, Headers as _, Message as _, OwnedHeaders};
use tokio::sync::watch;

use super::attachment::{NotStored, Progress};
use super::buffer::Buffer;
use super::record::{self, CHANGE, NOTHING, Request, TRACEPARENT};
use super::{Core, bus};
use crate::batcher::{Ticket, Waiter};
use crate::log::backoff::Backoff;
use crate::log::body::{self, Envelope, Rejection, answer, rejection_of};

/// A batch is as large as what waits, up to here: the more of a room or a user is stored together, the less a record costs.
const RECORDS_MAX: usize = 4_000;
const BYTES_MAX: usize = 1024 * 1024;

/// Header of a record with the id of its message, if the body has none.
const MESSAGE_ID: &str = "message-id";

enum RecordKind {
    Message,
    /// Who waits for the outcome.
    Change(Option<Request>),
    /// A message whose room belongs to this partition, with its JSON.
    Misplaced(u32, String, Vec<u8>),
    Rejected(Rejection),
    /// It is written elsewhere.
    WrittenElsewhere,
}

struct Record {
    offset: u64,
    key: Option<Range<usize>>,
    value: Range<usize>,
    headers: Option<OwnedHeaders>,
    kind: RecordKind,
}

/// Records in the order of their offsets.
#[derive(Default)]
pub(super) struct Batch {
    records: Vec<Record>,
    /// The operation of each record.
    ops: OpBatch,
    /// Keys and values.
    bytes: Vec<u8>,
    header_bytes: usize,
    appended_at: Timestamp,
    /// The id of a message without one; kept for its memory.
    made_id: String,
}

impl Batch {
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// The offset behind the last record.
    pub(super) fn end(&self) -> u64 {
        self.records.last().map_or(0, |record| record.offset + 1)
    }

    pub(super) fn has_room(&self) -> bool {
        let bytes = self.bytes.len().saturating_add(self.header_bytes);
        self.len() < RECORDS_MAX && bytes < BYTES_MAX && !self.ops.is_exclusive()
    }

    /// Passes over everything before and at this offset that Kafka shows nobody: the ends of transactions, and those that were
    /// aborted.
    pub(super) fn pass_over(&mut self, partition: u32, offset: u64, now: Timestamp) {
        if self.records.is_empty() {
            self.appended_at = now;
        }
        let position = LogPosition { partition, offset, appended_at: self.appended_at };
        self.ops.push_at(&Op::Change(NOTHING), position);
        self.records.push(Record {
            offset,
            key: None,
            value: 0..0,
            headers: None,
            kind: RecordKind::WrittenElsewhere,
        });
    }

    /// Adds a record, valid or not. Returns false, and adds nothing, when it needs a batch of its own.
    pub(super) fn take(&mut self, core: &Core, position: LogPosition, message: &BorrowedMessage<'_>) -> bool {
        let value = message.payload().unwrap_or_default();
        let key = message.key();
        let (is_empty, ops) = (self.records.is_empty(), &mut self.ops);
        let kind = match header(message, CHANGE) {
            Some(request) => {
                let taken = record::read_change(value, |change| {
                    is_in_place(core, position, change)?;
                    let is_taken = is_empty || !change.is_exclusive();
                    if is_taken {
                        ops.push_at(&Op::Change(*change), position);
                    }
                    Ok(is_taken)
                });
                match taken.and_then(std::convert::identity) {
                    Ok(false) => return false,
                    Ok(true) => RecordKind::Change(Request::parse(request)),
                    Err(rejection) => RecordKind::Rejected(rejection),
                }
            }
            None => {
                let kind = read_message(core, position, message, ops, &mut self.made_id);
                if core.hub.timeline().tracer().is_some()
                    && matches!(kind, RecordKind::Message)
                    && let Some((context, true)) = header(message, TRACEPARENT).and_then(TraceContext::parse)
                {
                    ops.trace_last(context);
                }
                kind
            }
        };
        if self.ops.len() == self.records.len() {
            self.ops.push_at(&Op::Change(NOTHING), position);
        }
        let mut keep = |bytes: &[u8]| {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(bytes);
            start..self.bytes.len()
        };
        let (key, value) = (key.map(&mut keep), keep(value));
        let headers = message.headers().map(|headers| headers.detach());
        self.header_bytes += headers.as_ref().map_or(0, rejected::header_bytes);
        self.records.push(Record { offset: position.offset, key, value, headers, kind });
        self.appended_at = position.appended_at;
        true
    }

    /// Stores the batch, with retries until it succeeds, and publishes and answers it. `None` when the server stops before, or
    /// the partition was taken away: whoever has it now reads the records again.
    /// Nothing is stored when the store wants an earlier record first: then it returns that one's offset as an error.
    pub(super) async fn commit(
        mut self,
        core: &Core,
        partition: u32,
        buffer: &Buffer,
        stop: &watch::Receiver<bool>,
    ) -> Option<Result<(), u64>> {
        core.metrics.log_batch_size.record(self.len() as u64, 1);
        let _in_hand = core.storing.begin(partition, self.appended_at);
        let mut backoff = Backoff::new(core.random.clone());
        while let Err(reason) = self.write_elsewhere(core, partition).await {
            core.metrics.log_retried.inc();
            tracing::warn!(partition, %reason, "setting records of Kafka aside failed; retrying");
            pause(&mut backoff, buffer, stop).await?;
        }
        backoff.reset();
        let ticket = loop {
            let (seen, reason) = match self.store(core, partition, &buffer.progress).await {
                Ok(ticket) => break ticket,
                Err(NotStored::WentBack(offset)) => return Some(Err(offset)),
                Err(NotStored::Unattached { attachment, reason }) => (Some(attachment), reason),
                Err(NotStored::Failed(reason)) => {
                    core.attachment.count_failure();
                    (None, reason)
                }
            };
            core.metrics.log_retried.inc();
            tracing::warn!(partition, records = self.len(), %reason, "storing records of Kafka failed; retrying");
            // At once: until then others may go on where the store is not any more.
            if let Some(seen) = seen {
                core.reattach(seen).await;
            }
            pause(&mut backoff, buffer, stop).await?;
        };
        let outcomes = answer(&ticket).unwrap_or_default();
        let repeated = outcomes.iter().filter(|outcome| **outcome == Outcome::Accepted).count();
        core.metrics.log_redelivered.inc_by(repeated as u64);
        let requests = self.records.iter().map(|record| match &record.kind {
            RecordKind::Change(request) => request.as_ref(),
            _ => None,
        });
        bus::publish(core, partition, (&self.ops, outcomes), requests);
        for (record, outcome) in self.records.iter_mut().zip(outcomes) {
            record.kind = match (&record.kind, outcome) {
                (RecordKind::Message, Outcome::Refused(refusal)) => {
                    RecordKind::Rejected(rejection_of(*refusal))
                }
                _ => RecordKind::Message,
            };
        }
        // Also when the partition was taken away: nobody else learns that the store refused them.
        self.dead_letter_rejected(core, partition, stop).await;
        let took = core.clock.now().as_micros().saturating_sub(self.appended_at.as_micros()).max(0);
        core.metrics.log_broker_time.record(took.unsigned_abs(), self.records.len() as u64);
        core.measure_lag();
        Some(Ok(()))
    }

    /// Submits the batch once, and waits until it is stored. What is stored already is passed over.
    async fn store(&self, core: &Core, partition: u32, progress: &Progress) -> Result<Ticket, NotStored> {
        let attached = core.hold(partition, progress).await?;
        let waiter = Arc::new(Waiter::of_log());
        let submitted = core.direct.submit(&self.ops, &waiter);
        let ticket = submitted.map_err(|error| NotStored::Failed(error.to_string()))?;
        waiter.wait(&ticket).await;
        match ticket.outcomes() {
            Some(Ok(_)) => Ok(ticket),
            Some(Err(error)) => Err(attached.not_stored(error)),
            None => Err(NotStored::Failed("there is no answer".to_owned())),
        }
    }
}

/// Waits before something is tried again for a partition. `None` when somebody else is to do it.
pub(super) async fn pause(
    backoff: &mut Backoff,
    buffer: &Buffer,
    stop: &watch::Receiver<bool>,
) -> Option<()> {
    backoff.pause_unless(stop).await?;
    (!buffer.is_over()).then_some(())
}

fn header<'a>(message: &'a BorrowedMessage<'_>, name: &str) -> Option<&'a [u8]> {
    let header = message.headers()?.iter().find(|header| header.key == name)?;
    Some(header.value.unwrap_or_default())
}

/// Whoever has a room's partition decides about it alone. A change elsewhere is not moved, as messages of other programs are: it
/// would come behind what followed it.
fn is_in_place(core: &Core, position: LogPosition, change: &Change<'_>) -> Result<(), Rejection> {
    let Some(room) = change.room() else { return Ok(()) };
    let partition = log_partition::of_room(room, core.topics.partitions);
    if partition == position.partition {
        return Ok(());
    }
    let reason = format!("a change of this room belongs to partition {partition} of the topic");
    Err(Rejection { code: ErrorCode::Invalid, reason })
}

/// Reads a message into `ops`, unless it is rejected or misplaced.
fn read_message(
    core: &Core,
    position: LogPosition,
    message: &BorrowedMessage<'_>,
    ops: &mut OpBatch,
    made_id: &mut String,
) -> RecordKind {
    let text = |bytes| str::from_utf8(bytes).ok();
    let message_id = header(message, MESSAGE_ID).and_then(text);
    made_id.clear();
    if message_id.is_none() {
        // Whoever reads the record makes the same id.
        let seed = (u64::from(position.partition) << 48) ^ position.offset ^ core.id_seed;
        hubbub_core::id::write_uuid_v7(position.appended_at, &SeededRandom::new(seed), made_id);
    }
    let room = message.key().and_then(text);
    let envelope = Envelope { body: message.payload().unwrap_or_default(), room, message_id };
    let read =
        body::read(&envelope, MESSAGE_BYTES_MAX, position.appended_at, made_id, |send, is_nameless| {
            core.metrics.log_nameless.inc_by(u64::from(is_nameless));
            let partition = log_partition::of_room(send.room, core.topics.partitions);
            if partition != position.partition {
                return misplaced(core, partition, send);
            }
            ops.push_at(&Op::Send(*send), position);
            RecordKind::Message
        });
    read.unwrap_or_else(RecordKind::Rejected)
}

/// A message whose room belongs to another partition, unless it is too large to be surely taken there.
fn misplaced(core: &Core, partition: u32, send: &Send<'_>) -> RecordKind {
    let mut body = Vec::new();
    body::write(send, &mut body);
    if body.len().saturating_add(rejected::RECORD_OVERHEAD) > core.options.record_bytes_max() {
        let reason = format!(
            "this room belongs to partition {partition} of the topic, and the message is too large to be moved there"
        );
        return RecordKind::Rejected(Rejection { code: ErrorCode::Invalid, reason });
    }
    RecordKind::Misplaced(partition, send.room.to_owned(), body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_fill_a_batch_too() {
        let batch = |header_bytes| Batch { header_bytes, ..Batch::default() };
        assert!(batch(BYTES_MAX - 1).has_room() && !batch(BYTES_MAX).has_room());
    }
}
