//! Changes of rooms: written as records, answered by whichever node commits them.
//!
//! A change waits until its partition of the bus is read here, then it is written, then its outcome is awaited: from the
//! committer in this process, or from another node's through the bus. When the committer dies between the commit and its
//! answer, the next one finds the change executed and says so, without an outcome; when nobody answers in time, the change
//! may be executed later. In both cases the answer is `unconfirmed`. All changes may be repeated.
//!
//! Erasing a user concerns all rooms, so all partitions: their outcomes are added up.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hubbub_core::store::ApplyError;
use hubbub_core::{Change, Op, OpBatch, Outcome, log_partition};
use parking_lot::Mutex;
use rdkafka::message::{Header, OwnedHeaders};
use tokio::sync::oneshot;

use super::Core;
use super::producer::OwnRecord;
use super::record::{self, CHANGE, ChangeOutcome, Reply, Request};
use super::unconfirmed::Origin;
use crate::batcher::{Outcomes, SubmitError, Waiter};

/// How long a change waits for its outcome.
const TIMEOUT: Duration = Duration::from_secs(15);
/// Bound of the changes that wait.
const WAITING_MAX: usize = 16_384;

/// Changes of this node that wait for their outcomes, by number.
#[derive(Default)]
pub(super) struct WaitingChanges {
    next: AtomicU64,
    waiting: Mutex<HashMap<u64, oneshot::Sender<ChangeOutcome>>>,
}

impl WaitingChanges {
    pub(super) fn answer(&self, reply: Reply) {
        if let Some(waiting) = self.waiting.lock().remove(&reply.number) {
            // Who gave up does not listen.
            let _ = waiting.send(reply.outcome);
        }
    }

    fn register(&self) -> (u64, oneshot::Receiver<ChangeOutcome>) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        self.waiting.lock().insert(number, sender);
        (number, receiver)
    }

    fn forget(&self, planned: &[PlannedChange]) {
        let mut waiting = self.waiting.lock();
        planned
            .iter()
            .flat_map(|change| &change.records)
            .for_each(|(_, number)| drop(waiting.remove(number)));
    }

    pub(super) fn admit(&self) -> Result<(), SubmitError> {
        if self.waiting.lock().len() >= WAITING_MAX { Err(SubmitError::Overloaded) } else { Ok(()) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.lock().is_empty()
    }
}

/// A change, and the partition and number of each of its records.
struct PlannedChange {
    room: Option<String>,
    value: Vec<u8>,
    records: Vec<(u32, u64)>,
}

/// Writes changes, and returns their outcomes once they are committed, and published on this node.
pub(super) async fn execute(core: &Core, ops: &OpBatch) -> Outcomes {
    let (mut planned, mut receivers) = (Vec::new(), Vec::new());
    for op in ops.iter() {
        let Op::Change(change) = op else { continue };
        let mut value = Vec::new();
        record::write_change(&change, &mut value);
        let (records, of_change): (Vec<_>, Vec<_>) = core
            .partitions_of(&change)
            .map(|partition| {
                let (number, receiver) = core.changes.register();
                ((partition, number), receiver)
            })
            .unzip();
        planned.push(PlannedChange { room: change.room().map(str::to_owned), value, records });
        receivers.push(of_change);
    }
    let answering = async {
        write(core, &planned).await?;
        collect(receivers).await
    };
    let answered = tokio::time::timeout(TIMEOUT, answering).await;
    core.changes.forget(&planned);
    answered.unwrap_or_else(|_| {
        let reason = format!("no server committed it within {} s", TIMEOUT.as_secs());
        Err(ApplyError::Unconfirmed { reason })
    })
}

async fn write(core: &Core, planned: &[PlannedChange]) -> Result<(), ApplyError> {
    let partitions: Vec<u32> =
        planned.iter().flat_map(|change| &change.records).map(|(partition, _)| *partition).collect();
    if let Some(reason) = core.faults.refusal(partitions.iter().copied()) {
        return Err(ApplyError::Unavailable { reason });
    }
    core.read_bus(&partitions).await.map_err(|reason| ApplyError::Unavailable { reason })?;
    let mut records = Vec::new();
    for PlannedChange { room, value, records: of_change } in planned {
        for (partition, number) in of_change {
            let request = Request { node: core.node.clone(), number: *number }.header();
            let header = Header { key: CHANGE, value: Some(request.as_str()) };
            let (topic, key) = (core.topics.messages.as_str(), room.as_deref().map(str::as_bytes));
            let headers = Some(OwnedHeaders::new().insert(header));
            records.push(OwnRecord { topic, partition: *partition, key, value, headers });
        }
    }
    let waiter = Arc::new(Waiter::default());
    let submitted = core.producer.submit_own(records, &waiter, Origin::Change);
    let ticket = submitted.map_err(|error| match error {
        SubmitError::Overloaded => ApplyError::Overloaded,
        other => ApplyError::Unavailable { reason: other.to_string() },
    })?;
    waiter.wait(&ticket).await;
    match ticket.outcomes() {
        Some(Err(error)) => Err(error.clone()),
        _ => Ok(()),
    }
}

/// Waits for the outcomes of each change's records, and adds them up.
async fn collect(receivers: Vec<Vec<oneshot::Receiver<ChangeOutcome>>>) -> Outcomes {
    let mut outcomes = Vec::new();
    for of_change in receivers {
        let mut sum: Option<Outcome> = None;
        for receiver in of_change {
            let outcome = receiver.await.ok().and_then(ChangeOutcome::outcome);
            let lost = || ApplyError::Unconfirmed { reason: "its outcome is not known".to_owned() };
            sum = Some(add(sum, outcome.ok_or_else(lost)?));
        }
        outcomes.extend(sum);
    }
    Ok(outcomes)
}

/// Adds the outcomes of one change in several partitions. A refusal remains.
fn add(sum: Option<Outcome>, more: Outcome) -> Outcome {
    match (sum, more) {
        (Some(Outcome::Erased { messages, more }), Outcome::Erased { messages: of_this, more: has_this }) => {
            Outcome::Erased { messages: messages + of_this, more: more || has_this }
        }
        (Some(refused @ Outcome::Refused(_)), _) => refused,
        (_, more) => more,
    }
}

impl Core {
    /// The partitions that a change is written to.
    fn partitions_of(&self, change: &Change<'_>) -> std::ops::Range<u32> {
        match change.room() {
            Some(room) => {
                let partition = log_partition::of_room(room, self.topics.partitions);
                partition..partition + 1
            }
            None => 0..self.topics.partitions,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hubbub_core::Refusal;

    #[test]
    fn erasures_are_added_up() {
        let erased = |messages, more| Outcome::Erased { messages, more };
        assert_eq!(add(None, erased(1, false)), erased(1, false));
        assert_eq!(add(Some(erased(1, true)), erased(2, false)), erased(3, true));
        let refused = Outcome::Refused(Refusal::NotMember);
        assert_eq!(add(Some(refused.clone()), erased(2, false)), refused);
        assert_eq!(add(Some(erased(2, false)), refused.clone()), refused);
    }
}
