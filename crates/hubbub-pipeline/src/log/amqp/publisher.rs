//! Publishes submissions and answers their senders when the broker has confirmed. A bounded queue feeds one task with one
//! channel, which publishes in order and does not wait between messages.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use hubbub_core::clock::Clock;
use hubbub_core::invariant::saturate;
use hubbub_core::store::ApplyError;
use lapin::options::BasicPublishOptions;
use lapin::{Channel, Connection};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::MissedTickBehavior;

use super::publication::Publication;
use super::unconfirmed::{ConfirmCounts, Submission, UnconfirmedPublications};
use crate::batcher::{Batch, Load, QueueLimits, SubmitError, Ticket, Waiter, WaitingLoad};
use crate::log::admission::Admission;
use crate::metrics::Metrics;
use crate::order::BROKER_BATCH;

/// Bounds of published and unconfirmed messages.
const UNCONFIRMED_MAX: usize = 4_096;
const UNCONFIRMED_BYTES_MAX: usize = 16 * 1024 * 1024;
/// After this time without a confirmation the connection is considered lost.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(30);
/// How long senders wait while the broker blocks the connection for lack of memory or disk. Then they are refused.
const BLOCKED_TIMEOUT: Duration = Duration::from_secs(5);
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    Client,
    Server,
}

struct State {
    queue: VecDeque<Submission>,
    /// What is queued, or published and not confirmed.
    load: WaitingLoad,
    admission: Admission,
}

pub(super) struct Publisher {
    state: Mutex<State>,
    work: Notify,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
}

impl Publisher {
    pub(super) fn new(limits: QueueLimits, clock: Arc<dyn Clock>, metrics: Arc<Metrics>) -> Self {
        let (queue, load) = (VecDeque::new(), WaitingLoad::new(limits));
        let state = State { queue, load, admission: Admission::default() };
        Self { state: Mutex::new(state), work: Notify::new(), clock, metrics }
    }

    /// Queues messages, those of the server itself also while it closes.
    pub(super) fn submit(
        &self,
        publication: Publication,
        waiter: &Arc<Waiter>,
        origin: Origin,
    ) -> Result<Ticket, SubmitError> {
        let load = publication.load();
        let mut state = self.state.lock();
        state.admission.check(origin == Origin::Server)?;
        // A message that the broker did not confirm is sent again, and must not come after these.
        if waiter.order().is_some_and(|order| order.has_broker_failure(publication.rooms())) {
            return Err(SubmitError::Overloaded);
        }
        // Rooms have no shares of their own here.
        if !state.load.admit(load, &[]) {
            return Err(SubmitError::Overloaded);
        }
        let batch = Batch::new(BROKER_BATCH);
        let ticket = Ticket::new(batch.clone(), 0, load.ops);
        let metrics = (origin == Origin::Client).then(|| self.metrics.clone());
        let (waiter, submitted_at) = (waiter.clone(), self.clock.monotonic());
        state.queue.push_back(Submission::new(publication, batch, waiter, submitted_at, metrics));
        drop(state);
        self.work.notify_one();
        Ok(ticket)
    }

    pub(super) fn resume(&self) {
        self.state.lock().admission.resume();
    }

    /// Refuses messages for now, and answers the queued ones: none of them was published.
    pub(super) fn suspend(&self, reason: &str) {
        let mut state = self.state.lock();
        state.admission.suspend(reason);
        for waiting in std::mem::take(&mut state.queue) {
            state.load.release(waiting.publication.load(), &[]);
            waiting.answer(Err(ApplyError::Unavailable { reason: reason.to_owned() }));
        }
    }

    pub(super) fn begin_close(&self) {
        self.state.lock().admission.begin_close();
    }

    /// Why messages are refused; `None` = they are accepted.
    pub(super) fn fault(&self) -> Option<String> {
        self.state.lock().admission.fault()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.state.lock().load.total().ops == 0
    }

    fn next(&self) -> Option<Submission> {
        self.state.lock().queue.pop_front()
    }

    fn release(&self, load: Load) {
        self.state.lock().load.release(load, &[]);
    }

    /// Publishes queued submissions until the connection is lost. Returns the reason.
    pub(super) async fn run(&self, connection: &Connection, channel: &Arc<Channel>) -> String {
        self.resume();
        let mut unconfirmed = UnconfirmedPublications::default();
        let reason = self.publish(connection, channel, &mut unconfirmed).await;
        self.suspend(&reason);
        self.metrics.log_unconfirmed.inc_by(unconfirmed.unanswered() as u64);
        self.release(Load { ops: unconfirmed.unanswered(), bytes: unconfirmed.bytes });
        reason
    }

    async fn publish(
        &self,
        connection: &Connection,
        channel: &Arc<Channel>,
        unconfirmed: &mut UnconfirmedPublications,
    ) -> String {
        let mut check = tokio::time::interval(CHECK_INTERVAL);
        check.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut blocked_since = None;
        let mut unblocked_at = Duration::ZERO;
        loop {
            while !connection.status().blocked()
                && unconfirmed.messages < UNCONFIRMED_MAX
                && unconfirmed.bytes < UNCONFIRMED_BYTES_MAX
                && let Some(submission) = self.next()
            {
                self.metrics.log_published.inc_by(submission.messages() as u64);
                unconfirmed.publish(submission, self.clock.monotonic(), |publication, index| {
                    publish(channel, publication, index)
                });
            }
            tokio::select! {
                confirmed = unconfirmed.confirmed(), if !unconfirmed.is_empty() => {
                    let counts = confirmed.and_then(|()| self.take_confirmed(channel, unconfirmed));
                    match counts {
                        Err(error) => return error.to_string(),
                        // A queue or a binding is gone. Reconnecting declares it again.
                        Ok(counts) if counts.returned > 0 => return "the broker had no queue for a message".to_owned(),
                        Ok(_) => {}
                    }
                }
                () = self.work.notified() => {}
                _ = check.tick() => {
                    if !connection.status().connected() {
                        return "the connection was lost".to_owned();
                    }
                    let now = self.clock.monotonic();
                    self.handle_blocking(connection.status().blocked(), &mut blocked_since, unconfirmed, now);
                    if blocked_since.is_some() {
                        // A blocked broker confirms nothing; the time-out starts again when it is unblocked.
                        unblocked_at = now;
                    }
                    let is_late = unconfirmed
                        .oldest()
                        .is_some_and(|oldest| now.saturating_sub(oldest.max(unblocked_at)) > CONFIRM_TIMEOUT);
                    if is_late {
                        return format!("the broker confirmed nothing for {} s", CONFIRM_TIMEOUT.as_secs());
                    }
                }
            }
        }
    }

    fn take_confirmed(
        &self,
        channel: &Channel,
        unconfirmed: &mut UnconfirmedPublications,
    ) -> lapin::Result<ConfirmCounts> {
        // Takes the lock under which the library processes a frame of confirmations. It does not wait for anything else.
        let wait_for_frame = || drop(channel.wait_for_confirms().now_or_never());
        let now = self.clock.monotonic();
        let counts = unconfirmed.take_confirmed(wait_for_frame, &mut |submission| {
            self.release(submission.publication.load());
            let took = now.saturating_sub(submission.submitted_at).as_micros();
            let messages = submission.messages() as u64;
            self.metrics.log_confirm_time.record(saturate(took), messages);
        })?;
        self.metrics.log_confirmed.inc_by(counts.confirmed);
        self.metrics.log_returned.inc_by(counts.returned);
        self.metrics.log_unconfirmed.inc_by(counts.unconfirmed);
        Ok(counts)
    }

    /// A broker short of memory or disk stops reading from this connection. After a time-out, waiting senders are
    /// answered and new messages are refused.
    fn handle_blocking(
        &self,
        is_blocked: bool,
        since: &mut Option<Duration>,
        unconfirmed: &mut UnconfirmedPublications,
        now: Duration,
    ) {
        let reason = "the broker is short of memory or disk and accepts no messages";
        match *since {
            None if is_blocked => *since = Some(now),
            Some(_) if !is_blocked => {
                *since = None;
                self.resume();
                tracing::info!("the broker accepts messages again");
            }
            Some(start) if now.saturating_sub(start) >= BLOCKED_TIMEOUT => {
                if self.fault().is_none() {
                    tracing::warn!("{reason}");
                }
                self.suspend(reason);
                unconfirmed.give_up(reason);
            }
            _ => {}
        }
    }
}

fn publish(
    channel: &Arc<Channel>,
    publication: &Arc<Publication>,
    index: usize,
) -> super::unconfirmed::Publishing {
    let (channel, publication) = (channel.clone(), publication.clone());
    Box::pin(async move {
        let Some(message) = publication.messages.get(index) else {
            return Ok(lapin::Confirmation::NotRequested);
        };
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let exchange = message.exchange.clone().unwrap_or_default();
        let properties = message.properties.clone();
        let confirm = channel.basic_publish(
            exchange,
            message.key.clone(),
            options,
            publication.body(message),
            properties,
        );
        confirm.await?.await
    })
}
