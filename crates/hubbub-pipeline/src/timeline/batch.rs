//! Divides the stored messages of a batch into spans of one room each.

use std::collections::HashMap;

use hubbub_core::{OpBatch, Outcome, Receipt};

use super::Span;

/// Reused from batch to batch.
#[derive(Debug, Default)]
pub(crate) struct BatchSpans {
    /// Each with when the store received its first and its last message.
    spans: Vec<(Span, (i64, i64))>,
    /// The newest span of each room, once there are several rooms.
    newest: HashMap<u64, usize>,
}

impl BatchSpans {
    /// Collects what a batch stored. Operations are looked at once for each run of a lane; for each message there is one
    /// comparison.
    pub(super) fn collect(
        &mut self,
        (ops, outcomes): (&OpBatch, &[Outcome]),
        runs: impl Iterator<Item = usize>,
        hash: impl Fn(&str) -> u64,
    ) {
        self.spans.clear();
        self.newest.clear();
        // All of a room is in one partition, which one server commits at a time: gaps are records of other rooms.
        let has_gaps = ops.is_from_log();
        let mut begin = 0;
        for count in runs {
            let run = outcomes.get(begin..begin + count).unwrap_or_default();
            let mut stored = run.iter().filter_map(|outcome| match outcome {
                Outcome::Stored(receipt) => Some(receipt),
                _ => None,
            });
            if let Some(first) = stored.next()
                && let Some(room) = ops.get(begin).and_then(|op| op.room())
            {
                let room = hash(room);
                let mut at = self.join(room, first, has_gaps);
                for receipt in stored {
                    at = self.extend(at, receipt, has_gaps);
                }
            }
            begin += count;
        }
    }

    /// Adds the first message of a run: to the room's newest span, if it continues that. Returns the span's index.
    fn join(&mut self, room: u64, receipt: &Receipt, has_gaps: bool) -> usize {
        let newest = match self.spans.last() {
            Some((span, _)) if span.room == room => Some(self.spans.len() - 1),
            Some(_) => self.newest.get(&room).copied(),
            None => None,
        };
        match newest {
            Some(newest) => self.extend(newest, receipt, has_gaps),
            None => self.begin(room, receipt),
        }
    }

    /// Adds a message to a span, or to a new one of the same room behind a gap.
    fn extend(&mut self, at: usize, receipt: &Receipt, has_gaps: bool) -> usize {
        let Some((span, received)) = self.spans.get_mut(at) else { return at };
        if receipt.seq == span.last.saturating_add(1) || has_gaps && receipt.seq > span.last {
            (span.last, received.1) = (receipt.seq, receipt.received_at.as_micros());
            return at;
        }
        let room = span.room;
        self.begin(room, receipt)
    }

    fn begin(&mut self, room: u64, receipt: &Receipt) -> usize {
        // The one before is not the last any more.
        if let Some((before, _)) = self.spans.last() {
            self.newest.insert(before.room, self.spans.len() - 1);
        }
        let received = receipt.received_at.as_micros();
        self.spans.push((Span { room, first: receipt.seq, last: receipt.seq }, (received, received)));
        self.spans.len() - 1
    }

    pub(super) fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    pub(super) fn drain(&mut self) -> impl Iterator<Item = (Span, (i64, i64))> {
        self.spans.drain(..)
    }
}
