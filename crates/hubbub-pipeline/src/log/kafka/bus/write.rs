//! Writes to the bus what this node commits, and the answers to changes.

use std::collections::HashMap;

use hubbub_core::{Op, OpBatch, Outcome, Receipt, RoomChange, Send, TraceContext};
use rdkafka::message::{Header, OwnedHeaders};

use crate::log::kafka::Core;
use crate::log::kafka::producer::OwnRecord;
use crate::log::kafka::record::{
    self, CHANGE, CHANGES, ChangeOutcome, NODE, REPLY_KEY, REQUEST, Reply, Request, TRACES,
};

/// A record of committed messages is written when it has so many bytes.
pub(in crate::log::kafka) const RECORD_BYTES: usize = 256 * 1024;

/// Writes what a batch of a partition stored, and the answers to its changes: `requests` has who waits for each operation.
pub(in crate::log::kafka) fn publish<'a>(
    core: &Core,
    partition: u32,
    (ops, outcomes): (&OpBatch, &[Outcome]),
    requests: impl Iterator<Item = Option<&'a Request>>,
) {
    let mut rooms: HashMap<&str, Outgoing> = HashMap::new();
    let mut traces = ops.traces().iter().peekable();
    for (index, ((op, outcome), request)) in ops.iter().zip(outcomes).zip(requests).enumerate() {
        let trace = traces.next_if(|(traced, _)| *traced == index).map(|(_, context)| *context);
        match op {
            Op::Send(sent) => {
                if let (true, Outcome::Stored(receipt)) = (core.options.bus, outcome) {
                    let messages = rooms.entry(sent.room).or_default();
                    messages.push(&sent, *receipt, trace);
                    if messages.json.len() >= RECORD_BYTES {
                        write_messages(core, partition, sent.room, std::mem::take(messages));
                    }
                }
            }
            Op::Change(change) => {
                let is_counted = !matches!(change.what, RoomChange::MarkRead { .. });
                if is_counted && (is_effective(outcome) || matches!(outcome, Outcome::Accepted)) {
                    // What was executed before is written to nobody, who may not have been told then: a number is missing.
                    core.bus.numbers.count(partition);
                }
                if is_effective(outcome) {
                    // The messages before it go first.
                    let before = change.room().map(|room| rooms.remove_entry(room).into_iter().collect());
                    let before: Vec<(&str, Outgoing)> = before.unwrap_or_else(|| rooms.drain().collect());
                    before
                        .into_iter()
                        .for_each(|(room, messages)| write_messages(core, partition, room, messages));
                    let mut value = Vec::new();
                    record::write_change(&change, &mut value);
                    let outcome = serde_json::to_vec(&ChangeOutcome::of(outcome)).unwrap_or_default();
                    let mut headers =
                        headers(core, partition).insert(Header { key: CHANGE, value: Some(&outcome) });
                    if let Some(request) = request.filter(|request| request.node != core.node) {
                        let request = request.header();
                        headers = headers.insert(Header { key: REQUEST, value: Some(&request) });
                    }
                    write(core, partition, change.room().map(str::as_bytes), &value, Some(headers));
                }
                if let Some(request) = request {
                    answer(core, partition, request, ChangeOutcome::of(outcome));
                }
            }
            Op::Queue(_) | Op::Kv(_) => {}
        }
    }
    rooms.into_iter().for_each(|(room, messages)| write_messages(core, partition, room, messages));
}

/// Answers who waits for a change, here or on another node.
fn answer(core: &Core, partition: u32, request: &Request, outcome: ChangeOutcome) {
    let reply = Reply { number: request.number, outcome };
    if request.node == core.node {
        return core.changes.answer(reply);
    }
    let value = serde_json::to_vec(&reply).unwrap_or_default();
    let key = format!("{REPLY_KEY}{}", request.node);
    write(core, partition, Some(key.as_bytes()), &value, None);
}

fn is_effective(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Room { .. } | Outcome::Erased { .. } => true,
        Outcome::Changed { changed } => *changed,
        Outcome::Read(mark) => mark.moved,
        _ => false,
    }
}

/// Who writes, and the number of its last change.
fn headers(core: &Core, partition: u32) -> OwnedHeaders {
    let number = core.bus.numbers.last(partition).to_string();
    let headers = OwnedHeaders::new().insert(Header { key: NODE, value: Some(core.node.as_str()) });
    headers.insert(Header { key: CHANGES, value: Some(&number) })
}

/// Messages of one room on their way to the bus.
#[derive(Default)]
struct Outgoing {
    /// A list without its end.
    json: Vec<u8>,
    first: u64,
    last: u64,
    /// Those that belong to traces.
    traces: Vec<(u64, TraceContext)>,
}

impl Outgoing {
    fn push(&mut self, sent: &Send<'_>, receipt: Receipt, trace: Option<TraceContext>) {
        if self.json.is_empty() {
            self.first = receipt.seq;
        }
        self.last = receipt.seq;
        self.traces.extend(trace.map(|trace| (receipt.seq, trace)));
        record::write_committed(sent, receipt, &mut self.json);
    }
}

fn write_messages(core: &Core, partition: u32, room: &str, mut messages: Outgoing) {
    if !messages.json.is_empty() {
        messages.json.push(b']');
        let mut headers = headers(core, partition);
        if !messages.traces.is_empty() {
            let traces = record::write_traces(&messages.traces);
            headers = headers.insert(Header { key: TRACES, value: Some(&traces) });
        }
        if write(core, partition, Some(room.as_bytes()), &messages.json, Some(headers)) {
            core.hub.timeline().record_bus(room, (messages.first, messages.last));
        }
    }
}

/// Queues a record of the bus. Returns whether it was queued; it may be lost anyway.
pub(in crate::log::kafka) fn write(
    core: &Core,
    partition: u32,
    key: Option<&[u8]>,
    value: &[u8],
    headers: Option<OwnedHeaders>,
) -> bool {
    let topic = core.topics.live.as_str();
    core.producer.send_unconfirmed(OwnRecord { topic, partition, key, value, headers })
}
