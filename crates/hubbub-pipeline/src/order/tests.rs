use std::collections::VecDeque;
use std::time::Duration;

use hubbub_core::store::{ApplyError, BatchCap};
use hubbub_core::{Receipt, Timestamp};

use super::*;
use crate::batcher::{LogOptions, QueueLimits, SubmitError, Ticket};
use crate::test_message::message;

fn batch(room: &str, id: &str) -> OpBatch {
    let mut ops = OpBatch::default();
    ops.push(&message(room, id, "t"));
    ops
}

fn stored() -> Outcome {
    Outcome::Stored(Receipt { seq: 1, received_at: Timestamp::default(), gap: 0 })
}

/// A batcher whose chunks hold one operation each, and the commit thread's failures.
struct Pipeline {
    batcher: Batcher,
    failed: FailedSends,
    submitted: VecDeque<Ticket>,
}

impl Pipeline {
    fn new() -> Self {
        let (limits, cap) = (QueueLimits::default(), BatchCap { ops: 1, bytes: usize::MAX });
        let batcher = Batcher::new(LogOptions { queue: limits, ..LogOptions::default() }, cap);
        Self { batcher, failed: FailedSends::default(), submitted: VecDeque::new() }
    }

    fn submit(&mut self, sender: &Arc<Waiter>, room: &str, id: &str) -> Result<(), SubmitError> {
        let ticket = self.batcher.submit(&batch(room, id), sender, Duration::ZERO)?;
        self.submitted.push_back(ticket);
        Ok(())
    }

    /// Commits the next chunk to a store that may fail. Returns whether it was stored, and its ticket.
    fn commit(&mut self, fails: bool) -> (Option<bool>, Ticket) {
        let chunk = self.batcher.take().unwrap();
        let refused = self.failed.out_of_order(&chunk);
        let mut outcomes = match &refused {
            Some(_) => Ok(vec![Outcome::Refused(Refusal::OutOfOrder)]),
            None if fails => Err(ApplyError::Overloaded),
            None => Ok(vec![stored()]),
        };
        let is_stored = outcomes.as_ref().ok().map(|outcomes| matches!(outcomes[0], Outcome::Stored(_)));
        self.failed.record(&chunk, &mut outcomes);
        self.failed.prune(chunk.batch.number, &self.batcher);
        chunk.batch.set(outcomes);
        chunk.batch.make_visible();
        (is_stored, self.submitted.pop_front().unwrap())
    }
}

#[test]
fn what_was_queued_behind_a_failure_is_refused_until_the_sender_knows() {
    let (mut pipeline, ordered) = (Pipeline::new(), Arc::new(Waiter::ordered()));
    let (other, unordered) = (Arc::new(Waiter::ordered()), Arc::new(Waiter::default()));
    for (sender, room) in
        [(&ordered, "r"), (&ordered, "r"), (&ordered, "another"), (&other, "r"), (&unordered, "r")]
    {
        pipeline.submit(sender, room, "id").unwrap();
    }
    let (stored, ticket) = pipeline.commit(true);
    assert_eq!(stored, None);
    let stored: Vec<_> = (0..4).map(|_| pipeline.commit(false).0).collect();
    assert_eq!(stored, [Some(false), Some(true), Some(true), Some(true)]);
    // No sender was notified yet.
    pipeline.submit(&ordered, "r", "id").unwrap();
    assert_eq!(ordered.acknowledge_failure(&ticket), [SendLane::Room("r".to_owned())]);
    assert_eq!(ordered.acknowledge_failure(&ticket), []);
    pipeline.submit(&ordered, "r", "id").unwrap();
    assert_eq!(pipeline.commit(false).0, Some(false), "submitted before");
    assert_eq!(pipeline.commit(false).0, Some(true), "submitted after");
    pipeline.submit(&other, "r", "id").unwrap();
    pipeline.commit(false);
    assert!(pipeline.failed.senders.is_empty(), "all is known");
}

#[test]
fn where_a_part_fails_others_have_their_outcomes_and_what_follows_it_is_refused() {
    let (limits, cap) = (QueueLimits::default(), BatchCap { ops: 4, bytes: usize::MAX });
    let batcher = Batcher::new(LogOptions { queue: limits, ..LogOptions::default() }, cap);
    let mut failed = FailedSends::default();
    let senders: Vec<_> = (0..3).map(|_| Arc::new(Waiter::ordered())).collect();
    let mut of_two_rooms = batch("bad", "1");
    of_two_rooms.append(&batch("good", "1"));
    let submissions = [of_two_rooms, batch("bad", "2"), batch("good", "2")];
    let submit = |ops: &OpBatch, sender| batcher.submit(ops, sender, Duration::ZERO).unwrap();
    let tickets: Vec<_> = submissions.iter().zip(&senders).map(|(ops, sender)| submit(ops, sender)).collect();
    let chunk = batcher.take().unwrap();
    let away = || ApplyError::Unavailable { reason: "away".to_owned() };
    let lost = || Outcome::Failed(Box::new(away()));
    let mut outcomes = Ok(vec![lost(), stored(), lost(), stored()]);
    failed.record(&chunk, &mut outcomes);
    chunk.batch.set(outcomes);
    chunk.batch.make_visible();

    let answers: Vec<_> = tickets.iter().map(|ticket| ticket.outcomes().unwrap()).collect();
    // Of the first something is stored.
    assert_eq!(answers[0], Err(&away().into_partial()));
    assert_eq!(answers[1], Err(&away()));
    assert_eq!(answers[2], Ok(&[stored()][..]));
    for room in ["bad", "good"] {
        senders.iter().for_each(|sender| drop(submit(&batch(room, "3"), sender)));
    }
    let refused: Vec<_> = std::iter::from_fn(|| {
        let chunk = batcher.take()?;
        batcher.close();
        Some(failed.out_of_order(&chunk).unwrap_or_else(|| vec![false; chunk.ops.len()]))
    })
    .flatten()
    .collect();
    assert_eq!(refused, [true, true, false, false, false, false]);
    for (sender, ticket) in senders.iter().zip(&tickets).take(2) {
        assert_eq!(sender.acknowledge_failure(ticket), [SendLane::Room("bad".to_owned())]);
    }
    assert_eq!(senders[2].acknowledge_failure(&tickets[2]), []);
}

#[test]
fn a_second_failure_needs_to_be_known_too() {
    let (mut pipeline, sender) = (Pipeline::new(), Arc::new(Waiter::ordered()));
    pipeline.submit(&sender, "r", "1").unwrap();
    let (_, first) = pipeline.commit(true);
    sender.acknowledge_failure(&first);
    pipeline.submit(&sender, "r", "1").unwrap();
    pipeline.submit(&sender, "r", "2").unwrap();
    let (stored, second) = pipeline.commit(true);
    assert_eq!(stored, None);
    assert_eq!(pipeline.commit(false).0, Some(false));
    sender.acknowledge_failure(&second);
    pipeline.submit(&sender, "r", "1").unwrap();
    assert_eq!(pipeline.commit(false).0, Some(true));
}

#[test]
fn a_sender_that_is_gone_is_forgotten() {
    let (mut pipeline, sender) = (Pipeline::new(), Arc::new(Waiter::ordered()));
    pipeline.submit(&sender, "r", "1").unwrap();
    let (_, ticket) = pipeline.commit(true);
    drop((sender, ticket));
    let other = Arc::new(Waiter::default());
    for _ in 0..6 {
        // Chunks that are kept for reuse refer to their senders until they are filled again.
        pipeline.submit(&other, "r", "1").unwrap();
        pipeline.commit(false);
    }
    assert!(pipeline.failed.senders.is_empty());
}

#[cfg(feature = "amqp")]
#[test]
fn what_a_broker_did_not_take_is_known_by_itself() {
    let order = SenderOrder::default();
    let rooms = |room: &'static str| std::iter::once(room);
    order.failed.lock().push((7, SendLane::Room("of a batch".to_owned())));
    order.insert_broker_failure("r");
    order.insert_broker_failure("r");
    assert!(order.has_broker_failure(rooms("r")) && !order.has_broker_failure(rooms("of a batch")));
    // A read mark, which goes to the store, failed meanwhile.
    assert_eq!(order.acknowledge(7), [SendLane::Room("of a batch".to_owned())]);
    assert!(order.has_broker_failure(rooms("r")), "its refusal was not seen yet");
    assert_eq!(order.acknowledge(BROKER_BATCH), [SendLane::Room("r".to_owned())]);
    assert!(!order.has_broker_failure(rooms("r")));
    assert_eq!(order.acknowledged(), 7);
}
