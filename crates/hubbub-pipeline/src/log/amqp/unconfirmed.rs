//! Publications that the broker has not confirmed yet, in the order of publishing.

use std::collections::{HashSet, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use hubbub_core::Outcome;
use hubbub_core::store::ApplyError;
use lapin::Confirmation;

use super::publication::Publication;
use crate::batcher::{Batch, Waiter};
use crate::committer::count_failures;
use crate::metrics::Metrics;

/// A submission that waits for its answer. If it is dropped unanswered, it may or may not be in the broker.
#[derive(Debug)]
pub(super) struct Submission {
    pub(super) publication: Arc<Publication>,
    pub(super) submitted_at: Duration,
    batch: Arc<Batch>,
    waiter: Arc<Waiter>,
    /// Of a client: where it is counted that its messages failed.
    metrics: Option<Arc<Metrics>>,
    published_at: Duration,
    /// Messages that are confirmed, and of these the ones that the broker returned, or could not keep.
    confirmed: usize,
    returned: usize,
    rejected: usize,
}

impl Submission {
    pub(super) fn new(
        publication: Publication,
        batch: Arc<Batch>,
        waiter: Arc<Waiter>,
        submitted_at: Duration,
        metrics: Option<Arc<Metrics>>,
    ) -> Self {
        let (publication, published_at) = (Arc::new(publication), Duration::ZERO);
        let (confirmed, returned, rejected) = (0, 0, 0);
        Self {
            publication,
            submitted_at,
            batch,
            waiter,
            metrics,
            published_at,
            confirmed,
            returned,
            rejected,
        }
    }

    pub(super) fn messages(&self) -> usize {
        self.publication.messages.len()
    }

    /// Sets the outcome and wakes the sender. Only the first call has an effect.
    pub(super) fn answer(&self, result: Result<(), ApplyError>) {
        if self.batch.outcomes().is_none() {
            if let (Err(_), Some(order)) = (&result, self.waiter.order()) {
                self.publication.rooms().for_each(|room| order.insert_broker_failure(room));
            }
            if let (Err(error), Some(metrics)) = (&result, &self.metrics) {
                count_failures(error, self.messages() as u64, metrics);
            }
            self.batch.set(result.map(|()| vec![Outcome::Accepted; self.messages()]));
            self.batch.make_visible();
            self.waiter.wake();
        }
    }

    /// Answers a submission that is confirmed completely, and counts its messages.
    fn end(&self, counts: &mut ConfirmCounts) {
        let all = self.messages();
        let result = if self.returned == 0 && self.rejected == 0 {
            counts.confirmed += all as u64;
            Ok(())
        } else if self.returned == all {
            counts.returned += all as u64;
            let reason = "the broker has no queue for the message".to_owned();
            Err(ApplyError::Unavailable { reason })
        } else {
            counts.returned += self.returned as u64;
            counts.unconfirmed += (all - self.returned) as u64;
            Err(ApplyError::Unconfirmed { reason: "the broker could not keep it".to_owned() })
        };
        self.answer(result);
    }
}

impl Drop for Submission {
    fn drop(&mut self) {
        let reason = "the connection to the broker was lost before it confirmed".to_owned();
        self.answer(Err(ApplyError::Unconfirmed { reason }));
    }
}

/// The future of one message: publishes it and waits for its confirmation.
pub(super) type Publishing = Pin<Box<dyn Future<Output = lapin::Result<Confirmation>> + Send>>;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ConfirmCounts {
    pub(super) confirmed: u64,
    pub(super) returned: u64,
    pub(super) unconfirmed: u64,
}

/// All unconfirmed publications of one channel.
#[derive(Default)]
pub(super) struct UnconfirmedPublications {
    submissions: VecDeque<Submission>,
    publishing: VecDeque<Publishing>,
    /// For each confirmed message, whether it was rejected. Its return may still be missing.
    confirmed: VecDeque<bool>,
    /// Routing key and id of messages that the broker returned.
    returned: HashSet<(String, String)>,
    pub(super) messages: usize,
    pub(super) bytes: usize,
}

impl UnconfirmedPublications {
    /// Publishes a submission: passes each of its messages to the connection, in order, without waiting.
    pub(super) fn publish(
        &mut self,
        mut submission: Submission,
        now: Duration,
        mut publish: impl FnMut(&Arc<Publication>, usize) -> Publishing,
    ) {
        let count = submission.messages();
        for index in 0..count {
            let mut publishing = publish(&submission.publication, index);
            // The first poll passes the message to the connection. An early answer is kept for its turn.
            if let Poll::Ready(answer) = publishing.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                publishing = Box::pin(std::future::ready(answer));
            }
            self.publishing.push_back(publishing);
        }
        self.messages += count;
        self.bytes += submission.publication.bytes();
        submission.published_at = now;
        self.submissions.push_back(submission);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.submissions.is_empty()
    }

    pub(super) fn oldest(&self) -> Option<Duration> {
        self.submissions.front().map(|oldest| oldest.published_at)
    }

    pub(super) fn unanswered(&self) -> usize {
        self.submissions.iter().map(Submission::messages).sum()
    }

    /// Waits for confirmations and takes all that have arrived.
    pub(super) async fn confirmed(&mut self) -> lapin::Result<()> {
        std::future::poll_fn(|context| self.poll_confirmed(context)).await
    }

    fn poll_confirmed(&mut self, context: &mut Context<'_>) -> Poll<lapin::Result<()>> {
        let before = self.confirmed.len();
        while let Some(front) = self.publishing.front_mut() {
            match front.as_mut().poll(context) {
                Poll::Pending => break,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(confirmation)) => {
                    self.publishing.pop_front();
                    self.confirmed.push_back(!confirmation.is_ack());
                    if let Some(message) = confirmation.take_message() {
                        let id = message.properties.message_id().as_ref().map(|id| id.as_str().to_owned());
                        self.returned
                            .insert((message.routing_key.as_str().to_owned(), id.unwrap_or_default()));
                    }
                }
            }
        }
        if self.confirmed.len() > before { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    /// Answers the submissions that are confirmed completely. `wait_for_frame` returns once the library has processed the
    /// current frame of confirmations. The library attaches a returned message to any of the messages that the frame
    /// confirms, so a confirmation is only meaningful together with its whole frame. The broker returns a message before
    /// it confirms it, and confirms in order.
    pub(super) fn take_confirmed(
        &mut self,
        wait_for_frame: impl FnOnce(),
        answered: &mut impl FnMut(&Submission),
    ) -> lapin::Result<ConfirmCounts> {
        wait_for_frame();
        if let Poll::Ready(Err(error)) = self.poll_confirmed(&mut Context::from_waker(Waker::noop())) {
            return Err(error);
        }
        let mut counts = ConfirmCounts::default();
        while let (Some(is_rejected), Some(oldest)) =
            (self.confirmed.pop_front(), self.submissions.front_mut())
        {
            if !self.returned.is_empty()
                && let Some(message) = oldest.publication.messages.get(oldest.confirmed)
            {
                let id = message.properties.message_id().as_ref().map_or("", |id| id.as_str());
                let is_returned = self.returned.contains(&(message.key.as_str().to_owned(), id.to_owned()));
                oldest.returned += usize::from(is_returned);
            }
            oldest.rejected += usize::from(is_rejected);
            oldest.confirmed += 1;
            self.messages -= 1;
            if oldest.confirmed == oldest.messages()
                && let Some(oldest) = self.submissions.pop_front()
            {
                self.bytes -= oldest.publication.bytes();
                oldest.end(&mut counts);
                answered(&oldest);
            }
        }
        if self.submissions.is_empty() {
            self.returned.clear();
        }
        Ok(counts)
    }

    /// Answers all senders that their messages may be stored; later confirmations are ignored.
    pub(super) fn give_up(&mut self, reason: &str) {
        for submission in &self.submissions {
            submission.answer(Err(ApplyError::Unconfirmed { reason: reason.to_owned() }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batcher::Ticket;
    use hubbub_core::{MessageType, Op, OpBatch, Send, Timestamp};
    use lapin::BasicProperties;
    use lapin::message::{BasicReturnMessage, Delivery};
    use parking_lot::Mutex;

    /// Confirmations by number of message, as they come in.
    type Answers = Arc<Mutex<Vec<Option<Confirmation>>>>;

    fn submission(ids: std::ops::Range<usize>, metrics: &Arc<Metrics>) -> (Submission, Ticket) {
        let mut ops = OpBatch::default();
        for id in ids.clone() {
            let (id, timestamp) = (id.to_string(), Timestamp::default());
            let (kind, username) = (MessageType::Text, None);
            ops.push(&Op::Send(Send { room: "r", user: "u", id: &id, username, text: "t", kind, timestamp }));
        }
        let batch = Batch::new(0);
        let publication = Publication::of_messages(&ops, &"x".into(), Timestamp::default());
        let waiter = Arc::new(Waiter::default());
        let metrics = Some(metrics.clone());
        let submission = Submission::new(publication, batch.clone(), waiter, Duration::ZERO, metrics);
        (submission, Ticket::new(batch, 0, ids.len()))
    }

    fn published(sizes: &[usize]) -> (UnconfirmedPublications, Vec<Ticket>, Answers) {
        counted(sizes, &Arc::default())
    }

    fn counted(sizes: &[usize], metrics: &Arc<Metrics>) -> (UnconfirmedPublications, Vec<Ticket>, Answers) {
        let answers: Answers = Arc::new(Mutex::new((0..sizes.iter().sum()).map(|_| None).collect()));
        let (mut unconfirmed, mut tickets, mut next) = (UnconfirmedPublications::default(), Vec::new(), 0);
        for size in sizes {
            let (submission, ticket) = submission(next..next + size, metrics);
            unconfirmed.publish(submission, Duration::ZERO, |_, index| {
                let (answers, number) = (answers.clone(), next + index);
                Box::pin(std::future::poll_fn(move |_| match answers.lock()[number].take() {
                    Some(confirmation) => Poll::Ready(Ok(confirmation)),
                    None => Poll::Pending,
                }))
            });
            next += size;
            tickets.push(ticket);
        }
        (unconfirmed, tickets, answers)
    }

    fn returned(id: usize) -> BasicReturnMessage {
        let mut delivery = Delivery::mock(0, "x".into(), "room.r".into(), false, Vec::new());
        delivery.properties = BasicProperties::default().with_message_id(id.to_string().into());
        BasicReturnMessage { delivery, reply_code: 312, reply_text: "NO_ROUTE".into() }
    }

    fn take_confirmed(unconfirmed: &mut UnconfirmedPublications) -> ConfirmCounts {
        let _ = unconfirmed.poll_confirmed(&mut Context::from_waker(Waker::noop()));
        unconfirmed.take_confirmed(|| (), &mut |_| ()).unwrap()
    }

    #[test]
    fn a_submission_is_answered_when_all_of_it_is_confirmed() {
        let (mut unconfirmed, tickets, answers) = published(&[2, 1]);
        answers.lock()[0] = Some(Confirmation::Ack(None));
        answers.lock()[2] = Some(Confirmation::Ack(None));
        assert_eq!(take_confirmed(&mut unconfirmed), ConfirmCounts::default());
        assert!(tickets.iter().all(|ticket| ticket.outcomes().is_none()));
        answers.lock()[1] = Some(Confirmation::Ack(None));
        assert_eq!(take_confirmed(&mut unconfirmed).confirmed, 3);
        for (ticket, count) in tickets.iter().zip([2, 1]) {
            assert_eq!(ticket.outcomes().unwrap().unwrap(), vec![Outcome::Accepted; count]);
        }
        assert!(unconfirmed.is_empty() && unconfirmed.messages == 0 && unconfirmed.bytes == 0);
    }

    #[test]
    fn a_returned_message_is_found_whichever_confirmation_has_it() {
        // All three are confirmed by one frame; the library gave the second's return to the third, or to the first.
        for attached_to in 0..3 {
            let (mut unconfirmed, tickets, answers) = published(&[1, 1, 1]);
            for number in 0..3 {
                answers.lock()[number] =
                    Some(Confirmation::Ack((number == attached_to).then(|| returned(1))));
            }
            let counts = take_confirmed(&mut unconfirmed);
            assert_eq!((counts.confirmed, counts.returned), (2, 1));
            let is_accepted: Vec<_> =
                tickets.iter().map(|ticket| ticket.outcomes().unwrap().is_ok()).collect();
            assert_eq!(is_accepted, [true, false, true]);
            assert!(matches!(tickets[1].outcomes().unwrap(), Err(ApplyError::Unavailable { .. })));
        }
    }

    #[test]
    fn a_frame_that_is_being_processed_is_waited_for() {
        let (mut unconfirmed, tickets, answers) = published(&[1, 1]);
        answers.lock()[0] = Some(Confirmation::Ack(None));
        let _ = unconfirmed.poll_confirmed(&mut Context::from_waker(Waker::noop()));
        let rest = || answers.lock()[1] = Some(Confirmation::Ack(Some(returned(0))));
        let counts = unconfirmed.take_confirmed(rest, &mut |_| ()).unwrap();
        assert_eq!((counts.confirmed, counts.returned), (1, 1));
        assert!(tickets[0].outcomes().unwrap().is_err() && tickets[1].outcomes().unwrap().is_ok());
    }

    #[test]
    fn what_is_dropped_or_rejected_is_unconfirmed() {
        let metrics: Arc<Metrics> = Arc::default();
        let (mut unconfirmed, tickets, answers) = counted(&[1, 2, 1], &metrics);
        answers.lock()[0] = Some(Confirmation::Nack(None));
        answers.lock()[1] = Some(Confirmation::Ack(None));
        assert_eq!(
            take_confirmed(&mut unconfirmed),
            ConfirmCounts { unconfirmed: 1, ..ConfirmCounts::default() }
        );
        assert_eq!(metrics.unconfirmed.get(), 1);
        unconfirmed.give_up("blocked");
        assert_eq!(metrics.unconfirmed.get(), 4);
        drop(unconfirmed);
        for ticket in tickets {
            assert!(matches!(ticket.outcomes().unwrap(), Err(ApplyError::Unconfirmed { .. })));
        }
        assert_eq!(metrics.unconfirmed.get(), 4, "each was answered once");
    }
}
