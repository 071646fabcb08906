//! From a submission to the broker's confirmation: a bounded queue that anybody may put submissions into, and one task
//! with one channel that publishes them in their order, without waiting for one before the next.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use hubbub_core::clock::Clock;
use hubbub_core::store::ApplyError;
use lapin::options::BasicPublishOptions;
use lapin::{Channel, Connection};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::MissedTickBehavior;

use super::flights::{Flights, Landed, Submission};
use super::mail::Mail;
use crate::batcher::{Batch, QueueLimits, SubmitError, Ticket, Waiter};
use crate::metrics::Metrics;
use crate::order::BY_BROKER;

/// Most messages, and bytes of them, that are published and not confirmed.
const IN_AIR_MAX: usize = 4_096;
const IN_AIR_BYTES_MAX: usize = 16 * 1024 * 1024;
/// How long the broker may take to confirm before the connection is given up.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(30);
/// How long senders wait while the broker takes nothing, for lack of memory or disk, before they are told.
const BLOCKED_PATIENCE: Duration = Duration::from_secs(5);
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Door {
    Open,
    /// Nothing is taken for now, and why.
    Shut(String),
    /// Only what the server itself has to say.
    Closing,
}

struct State {
    queue: VecDeque<Submission>,
    /// Queued, or published and not confirmed.
    messages: usize,
    bytes: usize,
    door: Door,
}

pub(super) struct Publisher {
    state: Mutex<State>,
    work: Notify,
    limits: QueueLimits,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
}

impl Publisher {
    pub(super) fn new(limits: QueueLimits, clock: Arc<dyn Clock>, metrics: Arc<Metrics>) -> Self {
        let state = State { queue: VecDeque::new(), messages: 0, bytes: 0, door: Door::Open };
        Self { state: Mutex::new(state), work: Notify::new(), limits, clock, metrics }
    }

    /// Queues messages of senders.
    pub(super) fn submit(&self, mail: Mail, waiter: &Arc<Waiter>) -> Result<Ticket, SubmitError> {
        self.enqueue(mail, waiter, |door| match door {
            Door::Open => Ok(()),
            Door::Shut(_) => Err(SubmitError::Unavailable),
            Door::Closing => Err(SubmitError::ShuttingDown),
        })
    }

    /// Queues what the server itself has to say, also while it closes.
    pub(super) fn submit_own(&self, mail: Mail, waiter: &Arc<Waiter>) -> Result<Ticket, SubmitError> {
        self.enqueue(mail, waiter, |door| match door {
            Door::Open | Door::Closing => Ok(()),
            Door::Shut(_) => Err(SubmitError::Unavailable),
        })
    }

    fn enqueue(
        &self,
        mail: Mail,
        waiter: &Arc<Waiter>,
        admit: impl FnOnce(&Door) -> Result<(), SubmitError>,
    ) -> Result<Ticket, SubmitError> {
        let (messages, bytes) = (mail.letters.len(), mail.bytes());
        let mut state = self.state.lock();
        admit(&state.door)?;
        // What the broker did not take is sent again, and must not come behind this.
        if waiter.order().is_some_and(|order| order.has_failed_by_broker(mail.rooms())) {
            return Err(SubmitError::Overloaded);
        }
        let fits = |has: usize, more: usize, limit: usize| has == 0 || has + more <= limit;
        if !fits(state.messages, messages, self.limits.ops) || !fits(state.bytes, bytes, self.limits.bytes) {
            return Err(SubmitError::Overloaded);
        }
        state.messages += messages;
        state.bytes += bytes;
        let batch = Batch::new(BY_BROKER);
        let ticket = Ticket::new(batch.clone(), messages);
        state.queue.push_back(Submission::new(mail, batch, waiter.clone(), self.clock.monotonic()));
        drop(state);
        self.work.notify_one();
        Ok(ticket)
    }

    /// Takes messages again.
    pub(super) fn open(&self) {
        let mut state = self.state.lock();
        if state.door != Door::Closing {
            state.door = Door::Open;
        }
    }

    /// Takes nothing for now, and says so to those who wait: nothing of theirs was published.
    pub(super) fn shut(&self, reason: &str) {
        let mut state = self.state.lock();
        if state.door != Door::Closing {
            state.door = Door::Shut(reason.to_owned());
        }
        for mut waiting in std::mem::take(&mut state.queue) {
            state.messages -= waiting.messages();
            state.bytes -= waiting.mail.bytes();
            waiting.answer(Err(ApplyError::Unavailable { reason: reason.to_owned() }));
        }
    }

    /// Takes nothing of senders any more.
    pub(super) fn begin_close(&self) {
        self.state.lock().door = Door::Closing;
    }

    /// Why nothing is taken, if so.
    pub(super) fn fault(&self) -> Option<String> {
        match &self.state.lock().door {
            Door::Shut(reason) => Some(reason.clone()),
            Door::Open | Door::Closing => None,
        }
    }

    /// Whether everything is answered.
    pub(super) fn is_idle(&self) -> bool {
        self.state.lock().messages == 0
    }

    fn next(&self) -> Option<Submission> {
        self.state.lock().queue.pop_front()
    }

    fn forget(&self, messages: usize, bytes: usize) {
        let mut state = self.state.lock();
        state.messages -= messages;
        state.bytes -= bytes;
    }

    /// Publishes what is queued until the connection is lost; says why.
    pub(super) async fn run(&self, connection: &Connection, channel: &Arc<Channel>) -> String {
        self.open();
        let mut flights = Flights::default();
        let reason = self.publish(connection, channel, &mut flights).await;
        self.shut(&reason);
        self.metrics.log_unconfirmed.inc_by(flights.unanswered() as u64);
        self.forget(flights.unanswered(), flights.bytes);
        reason
    }

    async fn publish(
        &self,
        connection: &Connection,
        channel: &Arc<Channel>,
        flights: &mut Flights,
    ) -> String {
        let mut look = tokio::time::interval(LOOK_INTERVAL);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut blocked_since = None;
        let mut unblocked_at = Duration::ZERO;
        loop {
            while !connection.status().blocked()
                && flights.messages < IN_AIR_MAX
                && flights.bytes < IN_AIR_BYTES_MAX
                && let Some(submission) = self.next()
            {
                self.metrics.log_published.inc_by(submission.messages() as u64);
                flights
                    .launch(submission, self.clock.monotonic(), |mail, index| publish(channel, mail, index));
            }
            tokio::select! {
                confirmed = flights.confirmed(), if !flights.is_empty() => {
                    let landed = confirmed.and_then(|()| self.land(channel, flights));
                    match landed {
                        Err(error) => return error.to_string(),
                        // A queue or a binding is gone: connecting again declares what is missing.
                        Ok(landed) if landed.returned > 0 => return "the broker had no queue for a message".to_owned(),
                        Ok(_) => {}
                    }
                }
                () = self.work.notified() => {}
                _ = look.tick() => {
                    if !connection.status().connected() {
                        return "the connection was lost".to_owned();
                    }
                    let now = self.clock.monotonic();
                    self.mind_blocking(connection.status().blocked(), &mut blocked_since, flights, now);
                    if blocked_since.is_some() {
                        // Nothing is confirmed meanwhile, and afterwards the broker has its time again.
                        unblocked_at = now;
                    }
                    let is_late = flights
                        .oldest()
                        .is_some_and(|oldest| now.saturating_sub(oldest.max(unblocked_at)) > CONFIRM_TIMEOUT);
                    if is_late {
                        return format!("the broker confirmed nothing for {} s", CONFIRM_TIMEOUT.as_secs());
                    }
                }
            }
        }
    }

    fn land(&self, channel: &Channel, flights: &mut Flights) -> lapin::Result<Landed> {
        // Takes the lock under which the library works on a frame of confirmations; there is nothing to wait for.
        let settle = || drop(channel.wait_for_confirms().now_or_never());
        let now = self.clock.monotonic();
        let landed = flights.land(settle, &mut |submission| {
            self.forget(submission.messages(), submission.mail.bytes());
            let took = now.saturating_sub(submission.submitted_at).as_micros();
            let messages = submission.messages() as u64;
            self.metrics.log_confirm_time.record(u64::try_from(took).unwrap_or(u64::MAX), messages);
        })?;
        self.metrics.log_confirmed.inc_by(landed.confirmed);
        self.metrics.log_returned.inc_by(landed.returned);
        self.metrics.log_unconfirmed.inc_by(landed.unconfirmed);
        Ok(landed)
    }

    /// A broker short of memory or disk reads nothing from this connection. After a while nobody is left waiting.
    fn mind_blocking(
        &self,
        is_blocked: bool,
        since: &mut Option<Duration>,
        flights: &mut Flights,
        now: Duration,
    ) {
        let reason = "the broker is short of memory or disk and takes no messages";
        match *since {
            None if is_blocked => *since = Some(now),
            Some(_) if !is_blocked => {
                *since = None;
                self.open();
                tracing::info!("the broker takes messages again");
            }
            Some(start) if now.saturating_sub(start) >= BLOCKED_PATIENCE => {
                if self.fault().is_none() {
                    tracing::warn!("{reason}");
                }
                self.shut(reason);
                flights.give_up(reason);
            }
            _ => {}
        }
    }
}

fn publish(channel: &Arc<Channel>, mail: &Arc<Mail>, index: usize) -> super::flights::Publishing {
    let (channel, mail) = (channel.clone(), mail.clone());
    Box::pin(async move {
        let Some(letter) = mail.letters.get(index) else { return Ok(lapin::Confirmation::NotRequested) };
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let exchange = letter.exchange.clone().unwrap_or_default();
        let properties = letter.properties.clone();
        let confirm =
            channel.basic_publish(exchange, letter.key.clone(), options, mail.body(letter), properties);
        confirm.await?.await
    })
}
