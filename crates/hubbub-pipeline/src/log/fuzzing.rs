//! What brokers deliver, decoded as the consumers do it, for fuzzers: they need no broker.

use hubbub_core::limits::MESSAGE_BYTES_MAX;
use hubbub_core::{Op, OpBatch, Timestamp};

use super::body::{self, Envelope};

#[path = "kafka/record.rs"]
mod record;

/// Decodes a message of any program: its body, its routing key or record key, its id. Returns the operation that would be
/// submitted, and what is written to the broker again where it must be.
pub fn message(
    body: &[u8],
    room: Option<&str>,
    message_id: Option<&str>,
    now: Timestamp,
) -> Result<(OpBatch, Vec<u8>), String> {
    let envelope = Envelope { body, room, message_id };
    let read = body::read(&envelope, MESSAGE_BYTES_MAX, now, "made", |send, _| {
        let (mut ops, mut written) = (OpBatch::default(), Vec::new());
        ops.push(&Op::Send(*send));
        body::write(send, &mut written);
        (ops, written)
    });
    read.map_err(|rejection| rejection.reason)
}

/// Decodes a change of a room from a record of Kafka.
pub fn change(value: &[u8]) -> Result<(OpBatch, Vec<u8>), String> {
    let read = record::read_change(value, |change| {
        let (mut ops, mut written) = (OpBatch::default(), Vec::new());
        ops.push(&Op::Change(*change));
        record::write_change(change, &mut written);
        (ops, written)
    });
    read.map_err(|rejection| rejection.reason)
}

/// Decodes the value of a record as all that it can be on the bus, and as the value of each header.
pub fn bus(value: &[u8]) {
    let _ = record::Request::parse(value).map(|request| request.header());
    let _ = serde_json::from_slice::<record::Reply>(value).map(|reply| reply.outcome.outcome());
    let _ = record::read_traces(value).count();
    for committed in serde_json::from_slice::<Vec<record::Committed<'_>>>(value).unwrap_or_default() {
        let received_at = Timestamp::from_micros(committed.us);
        let _ = message(committed.message.get().as_bytes(), Some("r"), None, received_at);
    }
}
