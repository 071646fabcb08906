//! Messages that are published and not confirmed yet, in the order in which they were published.

use std::collections::{HashSet, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use hubbub_core::Outcome;
use hubbub_core::store::ApplyError;
use lapin::Confirmation;

use super::mail::Mail;
use crate::batcher::{Batch, Waiter};

/// A submission that waits for its answer. One that is dropped unanswered may be in the broker or not.
#[derive(Debug)]
pub(super) struct Submission {
    pub(super) mail: Arc<Mail>,
    pub(super) submitted_at: Duration,
    batch: Arc<Batch>,
    waiter: Arc<Waiter>,
    is_answered: bool,
}

impl Submission {
    pub(super) fn new(mail: Mail, batch: Arc<Batch>, waiter: Arc<Waiter>, submitted_at: Duration) -> Self {
        Self { mail: Arc::new(mail), submitted_at, batch, waiter, is_answered: false }
    }

    pub(super) fn messages(&self) -> usize {
        self.mail.letters.len()
    }

    /// Tells the sender; only the first answer counts.
    pub(super) fn answer(&mut self, result: Result<(), ApplyError>) {
        if !std::mem::replace(&mut self.is_answered, true) {
            if let (Err(_), Some(order)) = (&result, self.waiter.order()) {
                self.mail.rooms().for_each(|room| order.fail_by_broker(room));
            }
            self.batch.set(result.map(|()| vec![Outcome::Accepted; self.messages()]));
            self.batch.show();
            self.waiter.wake();
        }
    }
}

impl Drop for Submission {
    fn drop(&mut self) {
        let reason = "the connection to the broker was lost before it confirmed".to_owned();
        self.answer(Err(ApplyError::Unconfirmed { reason }));
    }
}

/// Publishes one message and waits until it is confirmed.
pub(super) type Publishing = Pin<Box<dyn Future<Output = lapin::Result<Confirmation>> + Send>>;

struct Flight {
    submission: Submission,
    launched_at: Duration,
    /// Messages not confirmed yet.
    left: usize,
    returned: usize,
    rejected: usize,
}

/// What became of messages, by number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Landed {
    pub(super) confirmed: u64,
    pub(super) returned: u64,
    pub(super) unconfirmed: u64,
}

/// All that is in the air on one channel.
#[derive(Default)]
pub(super) struct Flights {
    flights: VecDeque<Flight>,
    publishing: VecDeque<Publishing>,
    /// Confirmed, but whether they were returned is not known for sure.
    taken: VecDeque<bool>,
    /// Key and id of messages that the broker returned.
    returned: HashSet<(String, String)>,
    pub(super) messages: usize,
    pub(super) bytes: usize,
}

impl Flights {
    /// Publishes a submission: each of its messages is handed over at once, in order, without waiting.
    pub(super) fn launch(
        &mut self,
        submission: Submission,
        now: Duration,
        mut publish: impl FnMut(&Arc<Mail>, usize) -> Publishing,
    ) {
        let count = submission.messages();
        for index in 0..count {
            let mut publishing = publish(&submission.mail, index);
            // The first poll hands the message to the connection; an answer is looked at in its turn.
            if let Poll::Ready(answer) = publishing.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                publishing = Box::pin(std::future::ready(answer));
            }
            self.publishing.push_back(publishing);
        }
        self.messages += count;
        self.bytes += submission.mail.bytes();
        self.flights.push_back(Flight {
            submission,
            launched_at: now,
            left: count,
            returned: 0,
            rejected: 0,
        });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.flights.is_empty()
    }

    /// When the oldest was published.
    pub(super) fn oldest(&self) -> Option<Duration> {
        self.flights.front().map(|flight| flight.launched_at)
    }

    /// Messages of all submissions that are not answered.
    pub(super) fn unanswered(&self) -> usize {
        self.flights.iter().map(|flight| flight.submission.messages()).sum()
    }

    /// Waits for confirmations and takes all that are there.
    pub(super) async fn confirmed(&mut self) -> lapin::Result<()> {
        std::future::poll_fn(|context| self.poll_confirmed(context)).await
    }

    fn poll_confirmed(&mut self, context: &mut Context<'_>) -> Poll<lapin::Result<()>> {
        let before = self.taken.len();
        while let Some(front) = self.publishing.front_mut() {
            match front.as_mut().poll(context) {
                Poll::Pending => break,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(confirmation)) => {
                    self.publishing.pop_front();
                    self.taken.push_back(!confirmation.is_ack());
                    if let Some(message) = confirmation.take_message() {
                        let id = message.properties.message_id().as_ref().map(|id| id.as_str().to_owned());
                        self.returned
                            .insert((message.routing_key.as_str().to_owned(), id.unwrap_or_default()));
                    }
                }
            }
        }
        if self.taken.len() > before { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    /// Answers those that are through. `settle` returns when the library has finished with the frame of confirmations
    /// it may be at: it attaches a returned message to any of those the frame confirms, so that one confirmation means
    /// something only together with all of its frame. The broker returns a message before it confirms it, and confirms
    /// in order.
    pub(super) fn land(
        &mut self,
        settle: impl FnOnce(),
        answered: &mut impl FnMut(&Submission),
    ) -> lapin::Result<Landed> {
        settle();
        if let Poll::Ready(Err(error)) = self.poll_confirmed(&mut Context::from_waker(Waker::noop())) {
            return Err(error);
        }
        let mut landed = Landed::default();
        while let (Some(is_rejected), Some(flight)) = (self.taken.pop_front(), self.flights.front_mut()) {
            let place = flight.submission.messages() - flight.left;
            if !self.returned.is_empty()
                && let Some(letter) = flight.submission.mail.letters.get(place)
            {
                let id = letter.properties.message_id().as_ref().map_or("", |id| id.as_str());
                let is_returned = self.returned.contains(&(letter.key.as_str().to_owned(), id.to_owned()));
                flight.returned += usize::from(is_returned);
            }
            flight.rejected += usize::from(is_rejected);
            flight.left -= 1;
            self.messages -= 1;
            if flight.left == 0
                && let Some(flight) = self.flights.pop_front()
            {
                self.bytes -= flight.submission.mail.bytes();
                flight.end(&mut landed, answered);
            }
        }
        if self.flights.is_empty() {
            self.returned.clear();
        }
        Ok(landed)
    }

    /// Answers all with what may be true; what the broker still says of them is of no interest to anybody.
    pub(super) fn give_up(&mut self, reason: &str) {
        for flight in &mut self.flights {
            flight.submission.answer(Err(ApplyError::Unconfirmed { reason: reason.to_owned() }));
        }
    }
}

impl Flight {
    fn end(mut self, landed: &mut Landed, answered: &mut impl FnMut(&Submission)) {
        let all = self.submission.messages();
        let result = if self.returned == 0 && self.rejected == 0 {
            landed.confirmed += all as u64;
            Ok(())
        } else if self.returned == all {
            landed.returned += all as u64;
            let reason = "the broker has no queue for the message".to_owned();
            Err(ApplyError::Unavailable { reason })
        } else {
            landed.returned += self.returned as u64;
            landed.unconfirmed += (all - self.returned) as u64;
            Err(ApplyError::Unconfirmed { reason: "the broker could not keep it".to_owned() })
        };
        self.submission.answer(result);
        answered(&self.submission);
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

    fn submission(ids: std::ops::Range<usize>) -> (Submission, Ticket) {
        let mut ops = OpBatch::default();
        for id in ids.clone() {
            let (id, timestamp) = (id.to_string(), Timestamp::default());
            let (kind, username) = (MessageType::Text, None);
            ops.push(&Op::Send(Send { room: "r", user: "u", id: &id, username, text: "t", kind, timestamp }));
        }
        let batch = Batch::new(0);
        let mail = Mail::of_messages(&ops, &"x".into(), Timestamp::default());
        let waiter = Arc::new(Waiter::default());
        (Submission::new(mail, batch.clone(), waiter, Duration::ZERO), Ticket::new(batch, ids.len()))
    }

    fn flights(sizes: &[usize]) -> (Flights, Vec<Ticket>, Answers) {
        let answers: Answers = Arc::new(Mutex::new((0..sizes.iter().sum()).map(|_| None).collect()));
        let (mut flights, mut tickets, mut next) = (Flights::default(), Vec::new(), 0);
        for size in sizes {
            let (submission, ticket) = submission(next..next + size);
            flights.launch(submission, Duration::ZERO, |_, index| {
                let (answers, number) = (answers.clone(), next + index);
                Box::pin(std::future::poll_fn(move |_| match answers.lock()[number].take() {
                    Some(confirmation) => Poll::Ready(Ok(confirmation)),
                    None => Poll::Pending,
                }))
            });
            next += size;
            tickets.push(ticket);
        }
        (flights, tickets, answers)
    }

    fn returned(id: usize) -> BasicReturnMessage {
        let mut delivery = Delivery::mock(0, "x".into(), "room.r".into(), false, Vec::new());
        delivery.properties = BasicProperties::default().with_message_id(id.to_string().into());
        BasicReturnMessage { delivery, reply_code: 312, reply_text: "NO_ROUTE".into() }
    }

    fn land(flights: &mut Flights) -> Landed {
        let _ = flights.poll_confirmed(&mut Context::from_waker(Waker::noop()));
        flights.land(|| (), &mut |_| ()).unwrap()
    }

    #[test]
    fn a_submission_is_answered_when_all_of_it_is_confirmed() {
        let (mut flights, tickets, answers) = flights(&[2, 1]);
        answers.lock()[0] = Some(Confirmation::Ack(None));
        answers.lock()[2] = Some(Confirmation::Ack(None));
        assert_eq!(land(&mut flights), Landed::default());
        assert!(tickets.iter().all(|ticket| ticket.outcomes().is_none()));
        answers.lock()[1] = Some(Confirmation::Ack(None));
        assert_eq!(land(&mut flights).confirmed, 3);
        for (ticket, count) in tickets.iter().zip([2, 1]) {
            assert_eq!(ticket.outcomes().unwrap().unwrap(), vec![Outcome::Accepted; count]);
        }
        assert!(flights.is_empty() && flights.messages == 0 && flights.bytes == 0);
    }

    #[test]
    fn a_returned_message_is_found_wherever_it_was_attached() {
        // All three are confirmed by one frame; the library gave the second's return to the third, or to the first.
        for attached_to in 0..3 {
            let (mut flights, tickets, answers) = flights(&[1, 1, 1]);
            for number in 0..3 {
                answers.lock()[number] =
                    Some(Confirmation::Ack((number == attached_to).then(|| returned(1))));
            }
            let landed = land(&mut flights);
            assert_eq!((landed.confirmed, landed.returned), (2, 1));
            let is_accepted: Vec<_> =
                tickets.iter().map(|ticket| ticket.outcomes().unwrap().is_ok()).collect();
            assert_eq!(is_accepted, [true, false, true]);
            assert!(matches!(tickets[1].outcomes().unwrap(), Err(ApplyError::Unavailable { .. })));
        }
    }

    #[test]
    fn a_frame_that_is_being_worked_on_is_waited_for() {
        let (mut flights, tickets, answers) = flights(&[1, 1]);
        answers.lock()[0] = Some(Confirmation::Ack(None));
        let _ = flights.poll_confirmed(&mut Context::from_waker(Waker::noop()));
        let rest = || answers.lock()[1] = Some(Confirmation::Ack(Some(returned(0))));
        let landed = flights.land(rest, &mut |_| ()).unwrap();
        assert_eq!((landed.confirmed, landed.returned), (1, 1));
        assert!(tickets[0].outcomes().unwrap().is_err() && tickets[1].outcomes().unwrap().is_ok());
    }

    #[test]
    fn what_is_dropped_or_rejected_is_unconfirmed() {
        let (mut flights, tickets, answers) = flights(&[1, 2, 1]);
        answers.lock()[0] = Some(Confirmation::Nack(None));
        answers.lock()[1] = Some(Confirmation::Ack(None));
        assert_eq!(land(&mut flights), Landed { unconfirmed: 1, ..Landed::default() });
        drop(flights);
        for ticket in tickets {
            assert!(matches!(ticket.outcomes().unwrap(), Err(ApplyError::Unconfirmed { .. })));
        }
    }
}
