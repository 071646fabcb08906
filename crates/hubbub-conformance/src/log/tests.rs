//! The suite for logs itself: a right store passes, and every kind of wrong one is found.

use std::future::{Future, ready};
use std::sync::Arc;

use hubbub_core::log_position::{Attached, NextOffset, not_attached, past_the_log};
use hubbub_core::store::{ApplyError, Read};
use hubbub_core::{Clock, LogIdentity, LogPosition, LogStore, Op, OpBatch, Outcome, Refusal, Store};

use super::super::Fixture;
use super::super::model::Model;
use super::super::tests::{Flaw, InMemory, Memory, missed};
use super::LogFixture;
use super::steps::change_one;

const FLAWS: [Flaw; 11] = [
    Flaw::LogErasesEverywhere,
    Flaw::LogExecutesRepeats,
    Flaw::LogExecutesRepeatsOfABatch,
    Flaw::LogForgetsOffsetsWhenRestarted,
    Flaw::LogHasOneOffset,
    Flaw::LogIsBypassed,
    Flaw::LogIsNotCompared,
    Flaw::LogLeavesErasuresEarly,
    Flaw::LogSkipsWholeBatches,
    Flaw::LogStaysAtRefusals,
    Flaw::LogUsesTheStoresClock,
];

/// The attached log, and the next offset of each partition.
#[derive(Debug, Clone)]
pub(crate) struct AttachedLog {
    identity: LogIdentity,
    next: Vec<u64>,
    /// Whether an erasure has another step, which erases nothing more.
    is_erasing: bool,
}

/// The log of a store that was started again.
pub(crate) fn restarted(flaw: Flaw, mut log: Option<AttachedLog>) -> Option<AttachedLog> {
    if flaw == Flaw::LogForgetsOffsetsWhenRestarted {
        log.iter_mut().for_each(|log| log.next.fill(0));
    }
    log
}

/// Refuses operations that bypass the log.
pub(crate) fn admit(store: &InMemory, ops: &[Op<'_>]) -> Result<(), ApplyError> {
    let concerns_rooms = ops.iter().any(|op| matches!(op, Op::Send(_) | Op::Change(_)));
    let is_refused = concerns_rooms && store.log.lock().is_some() && store.flaw != Flaw::LogIsBypassed;
    if is_refused { Err(past_the_log()) } else { Ok(()) }
}

/// Executes a batch from the log as the flaw will have it.
pub(crate) fn apply(
    store: &InMemory,
    batch: &OpBatch,
    model: &mut Model,
) -> Result<Vec<Outcome>, ApplyError> {
    let mut attached = store.log.lock();
    let log = attached.as_mut().ok_or_else(not_attached)?;
    let partition = |position: LogPosition| match store.flaw {
        Flaw::LogHasOneOffset => 0,
        _ => position.partition as usize,
    };
    let is_executed =
        |log: &AttachedLog, position: LogPosition| position.offset < log.next[partition(position)];
    let before = log.next.clone();
    let is_first_executed = is_executed(log, batch.position(0).unwrap());
    let outcomes = batch.iter().enumerate().map(|(index, op)| {
        let position = batch.position(index).unwrap();
        let is_skipped = match store.flaw {
            Flaw::LogExecutesRepeats => false,
            Flaw::LogExecutesRepeatsOfABatch => position.offset < before[partition(position)],
            Flaw::LogSkipsWholeBatches => is_first_executed,
            _ => is_executed(log, position),
        };
        if is_skipped {
            return Outcome::Accepted;
        }
        let now =
            if store.flaw == Flaw::LogUsesTheStoresClock { store.clock.now() } else { position.appended_at };
        let done = match op {
            Op::Change(change) if store.flaw != Flaw::LogErasesEverywhere => {
                change_one(model, &change, position.partition)
            }
            _ => store.apply_op(model, op, now),
        };
        let outcome = match (done, op) {
            // An erasure is done at once here, but says at first that it is not.
            (Outcome::Erased { messages: messages @ 1.., .. }, Op::Change(_)) if !log.is_erasing => {
                log.is_erasing = true;
                Outcome::Erased { messages, more: true }
            }
            (outcome, _) => outcome,
        };
        let is_left = match (&outcome, store.flaw) {
            (Outcome::Erased { more: true, .. }, flaw) => flaw != Flaw::LogLeavesErasuresEarly,
            (Outcome::Refused(Refusal::NotMember), flaw) => flaw == Flaw::LogStaysAtRefusals,
            _ => false,
        };
        if let Outcome::Erased { more: false, .. } = outcome {
            log.is_erasing = false;
        }
        if !is_left {
            let next = &mut log.next[partition(position)];
            *next = (*next).max(position.offset + 1);
        }
        outcome
    });
    Ok(outcomes.collect())
}

impl LogStore for InMemory {
    fn attach(&self, log: LogIdentity) -> Read<'_, Attached> {
        let mut attached = self.log.lock();
        let answer = match &*attached {
            None => Attached::New,
            Some(found) if found.identity == log || self.flaw == Flaw::LogIsNotCompared => Attached::Same,
            Some(found) => Attached::Other(found.identity.clone()),
        };
        if answer == Attached::New {
            let next = vec![0; log.partitions as usize];
            *attached = Some(AttachedLog { identity: log, next, is_erasing: false });
        }
        Box::pin(ready(Ok(answer)))
    }

    fn attached(&self) -> Read<'_, Option<LogIdentity>> {
        let attached = self.log.lock().as_ref().map(|log| log.identity.clone());
        Box::pin(ready(Ok(attached)))
    }

    fn next_offsets(&self) -> Read<'_, Vec<NextOffset>> {
        let next = self.log.lock().as_ref().map(|log| log.next.clone()).unwrap_or_default();
        Box::pin(ready(Ok(next.into_iter().map(Ok).collect())))
    }
}

impl LogFixture for Memory {
    fn open_second(&mut self) -> impl Future<Output = Arc<dyn Store>> + Send {
        ready(self.store())
    }
}

mod a_right_store {
    use super::{Flaw, Memory};

    crate::log_conformance_tests!(Memory::fresh(Flaw::None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_flaw_is_found() {
    let missed = missed(&FLAWS, |flaw| crate::log_conformance_tests!(@list Memory::fresh(flaw))).await;
    assert!(missed.is_empty(), "no case minds {missed:?}");
}
