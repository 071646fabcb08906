//! The messages of a run: each carries its number, and each number may be taken once.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use hubbub_core::clock::{RandomSource, SeededRandom};
use hubbub_core::message::write_u64;
use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;

use crate::load::message_plan::Filler;

/// Numbers that one part of the map has.
const PART: u64 = 1 << 20;
/// Parts of the map: four thousand million messages.
const PARTS: usize = 1 << 12;

pub(crate) struct MessageLedger {
    filler: Filler,
    next: AtomicU64,
    counts: Mutex<QueueLedger>,
    parts: Box<[OnceLock<Box<[AtomicU64]>>]>,
}

impl MessageLedger {
    /// Contents have `content_bytes`, or as many as the number needs.
    pub(crate) fn new(run: u64, content_bytes: usize) -> Self {
        let (next, counts) = Default::default();
        let parts = (0..PARTS).map(|_| OnceLock::new()).collect();
        Self { filler: Filler::new(run, '-', content_bytes), next, counts, parts }
    }

    /// The content of a new message: letters, digits, spaces and `-`.
    pub(crate) fn write_content(&self, random: &SeededRandom, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(self.filler.mark.as_bytes());
        write_u64(self.next.fetch_add(1, Ordering::Relaxed), out);
        out.push(b'-');
        self.filler.fill(start, random.next_u64(), out);
    }

    /// What was counted so far.
    pub(crate) fn counts(&self) -> MutexGuard<'_, QueueLedger> {
        self.counts.lock()
    }

    pub(crate) fn taken(&self, content: &[u8]) {
        let is_first = self.number_of(content).map(|number| self.is_first(number));
        let mut counts = self.counts();
        counts.taken += 1;
        counts.taken_twice += u64::from(is_first == Some(false));
        counts.strangers += u64::from(is_first.is_none());
    }

    fn number_of(&self, content: &[u8]) -> Option<u64> {
        let rest = content.strip_prefix(self.filler.mark.as_bytes())?;
        let end = rest.iter().position(|byte| *byte == b'-')?;
        let number = std::str::from_utf8(rest.get(..end)?).ok()?.parse().ok()?;
        (number < self.next.load(Ordering::Relaxed)).then_some(number)
    }

    fn is_first(&self, number: u64) -> bool {
        let (part, place) = (number / PART, number % PART);
        let Some(part) = usize::try_from(part).ok().and_then(|part| self.parts.get(part)) else {
            return true;
        };
        let words = part.get_or_init(|| (0..PART / 64).map(|_| AtomicU64::new(0)).collect());
        let Some(word) = words.get((place / 64) as usize) else { return true };
        let bit = 1 << (place % 64);
        word.fetch_or(bit, Ordering::Relaxed) & bit == 0
    }

    /// The ledger as it stands, with what the queues held before and after.
    pub(crate) fn close(&self, depth: Option<(u64, u64)>) -> QueueLedger {
        let (depth_before, depth_after) = depth.unzip();
        QueueLedger { depth_before, depth_after, ..self.counts().clone() }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct QueueLedger {
    pub sent: u64,
    /// Messages without an answer; they may be there.
    pub unconfirmed: u64,
    pub taken: u64,
    /// Messages taken that had been taken before.
    pub taken_twice: u64,
    /// Takes without an answer; each may have taken a message.
    pub lost_takes: u64,
    /// Messages taken that are none of this run: another one had sent them, or they are damaged.
    pub strangers: u64,
    pub depth_before: Option<u64>,
    pub depth_after: Option<u64>,
}

impl QueueLedger {
    /// Where the ledger does not balance. Other clients of the same queues show as faults.
    pub(crate) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.taken_twice > 0 {
            faults.push(format!("{} messages were taken twice", self.taken_twice));
        }
        // Nothing of another run was left, so that whatever was taken must be of this one.
        if self.strangers > 0 && self.depth_before == Some(0) {
            faults.push(format!(
                "{} messages were taken that nobody sent: the queues were empty before",
                self.strangers
            ));
        }
        if let (Some(before), Some(after)) = (self.depth_before, self.depth_after) {
            let most = (before + self.sent + self.unconfirmed).saturating_sub(self.taken);
            let least = (before + self.sent).saturating_sub(self.taken + self.lost_takes);
            if after < least || after > most {
                faults.push(format!(
                    "{before} messages before, {} sent, {} taken, but {after} there, not {least} to {most}",
                    self.sent, self.taken
                ));
            }
        }
        faults
    }
}

impl fmt::Display for QueueLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let depth = |depth: Option<u64>| depth.map_or_else(|| "?".to_owned(), |depth| depth.to_string());
        write!(
            f,
            "{} sent, {} taken, {} twice, depth {} → {}: {}",
            self.sent,
            self.taken,
            self.taken_twice,
            depth(self.depth_before),
            depth(self.depth_after),
            if self.faults().is_empty() { "the ledger balances" } else { "the ledger does not balance" }
        )?;
        if self.lost_takes + self.unconfirmed + self.strangers > 0 {
            let Self { lost_takes, unconfirmed, strangers, .. } = self;
            write!(
                f,
                " ({unconfirmed} sends and {lost_takes} takes without an answer, {strangers} of another run)"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_taken_once() {
        let (ledger, random) = (MessageLedger::new(7, 200), SeededRandom::new(1));
        let contents: Vec<Vec<u8>> = (0..3)
            .map(|_| {
                let mut content = Vec::new();
                ledger.write_content(&random, &mut content);
                content
            })
            .collect();
        assert!(contents.iter().all(|content| content.len() == 200 && content.is_ascii()));
        assert!(!contents.iter().flatten().any(|byte| matches!(byte, b';' | b'"' | b'\\' | b'\n')));
        ledger.counts().sent += 3;
        ledger.taken(&contents[0]);
        ledger.taken(&contents[2]);
        assert!(ledger.close(Some((5, 6))).faults().is_empty());
        assert_eq!(ledger.close(Some((5, 5))).faults().len(), 1, "one was lost");
        assert_eq!(ledger.close(Some((5, 7))).faults().len(), 1, "one is there although taken");
        ledger.taken(&contents[2]);
        let closed = ledger.close(None);
        assert_eq!((closed.taken, closed.taken_twice, closed.strangers), (3, 1, 0));
        assert_eq!(closed.faults().len(), 1);
        ledger.taken(b"something else");
        ledger.taken(MessageLedger::new(8, 20).filler.mark.as_bytes());
        let closed = ledger.close(None);
        assert_eq!((closed.strangers, closed.faults().len()), (2, 1), "nobody knows what was there before");
        let of = |before| QueueLedger {
            strangers: 1,
            taken: 1,
            depth_before: Some(before),
            depth_after: Some(before),
            sent: 1,
            ..QueueLedger::default()
        };
        assert!(of(1).faults().is_empty(), "one of another run");
        assert_eq!(of(0).faults(), ["1 messages were taken that nobody sent: the queues were empty before"]);
    }

    #[test]
    fn what_has_no_answer_is_allowed_for() {
        let ledger =
            QueueLedger { sent: 10, unconfirmed: 2, taken: 4, lost_takes: 1, ..QueueLedger::default() };
        for (after, faults) in [(4, 1), (5, 0), (8, 0), (9, 1)] {
            let ledger = QueueLedger { depth_before: Some(0), depth_after: Some(after), ..ledger.clone() };
            assert_eq!(ledger.faults().len(), faults, "{after}");
        }
    }
}
