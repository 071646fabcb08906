//! What the producer has accepted and Kafka has not confirmed, and whether more is accepted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use hubbub_core::Outcome;
use hubbub_core::clock::Clock;
use hubbub_core::invariant::saturate;
use hubbub_core::store::ApplyError;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::batcher::{Batch, LaneLoad, Load, QueueLimits, SubmitError, Ticket, Waiter, WaitingLoad};
use crate::committer::count_failures;
use crate::log::admission::Admission;
use crate::metrics::Metrics;
use crate::order::BROKER_BATCH;

/// Who submits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// A client, whose messages these are: bounded, counted, and refused while the server closes.
    Client,
    /// The same for changes of rooms. Whoever waits for their outcome counts what failed.
    Change,
    /// The server, which waits for it.
    Server,
    /// The server, which does not.
    Nobody,
}

impl Origin {
    fn is_client(self) -> bool {
        matches!(self, Self::Client | Self::Change)
    }
}

/// Why a record is not confirmed.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) reason: String,
    /// Whether it waited too long. Then what waits behind it must fail, too: it may not overtake a retry.
    pub(super) is_late: bool,
}

/// Bound of the bytes that nobody waits for.
const UNAWAITED_BYTES_MAX: usize = 32 * 1024 * 1024;

#[derive(Debug)]
struct State {
    /// Unconfirmed records of clients.
    load: WaitingLoad,
    admission: Admission,
}

/// Admission and accounts of the producer.
pub(super) struct UnconfirmedRecords {
    state: Mutex<State>,
    /// Something failed that may mean that no broker is reachable.
    pub(super) suspicion: Notify,
    /// A record waited too long.
    must_purge: AtomicBool,
    /// Bytes of records that nobody waits for.
    unawaited_bytes: AtomicUsize,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
}

impl UnconfirmedRecords {
    pub(super) fn new(limits: QueueLimits, clock: Arc<dyn Clock>, metrics: Arc<Metrics>) -> Self {
        let state = State { load: WaitingLoad::new(limits), admission: Admission::default() };
        let (suspicion, must_purge) = (Notify::new(), AtomicBool::new(false));
        let unawaited_bytes = AtomicUsize::new(0);
        Self { state: Mutex::new(state), suspicion, must_purge, unawaited_bytes, clock, metrics }
    }

    /// Whether clients' submissions are accepted.
    pub(super) fn check(&self) -> Result<(), SubmitError> {
        self.state.lock().admission.check(false)
    }

    /// Admits records of these rooms, and what they load each with.
    pub(super) fn admit<'a>(
        self: &Arc<Self>,
        load: Load,
        lanes: Vec<LaneLoad>,
        rooms: impl Iterator<Item = &'a str> + Clone,
        waiter: &Arc<Waiter>,
        origin: Origin,
    ) -> Result<(Arc<Submission>, Ticket), SubmitError> {
        let mut state = self.state.lock();
        state.admission.check(!origin.is_client())?;
        // A message that Kafka did not confirm is sent again, and must not come after these.
        if waiter.order().is_some_and(|order| order.has_broker_failure(rooms.clone())) {
            return Err(SubmitError::Overloaded);
        }
        if origin.is_client() {
            if !state.load.admit(load, &lanes) {
                return Err(SubmitError::Overloaded);
            }
            self.metrics.log_published.inc_by(load.ops as u64);
        }
        drop(state);
        let mut ordered_rooms: Vec<String> = Vec::new();
        if waiter.order().is_some() {
            for room in rooms {
                if ordered_rooms.last().is_none_or(|last| last != room) {
                    ordered_rooms.push(room.to_owned());
                }
            }
        }
        let mut submission = self.submission(load, waiter.clone(), origin);
        (submission.rooms, submission.lanes) = (ordered_rooms, lanes);
        let ticket = Ticket::new(submission.batch.clone(), 0, load.ops);
        Ok((Arc::new(submission), ticket))
    }

    fn submission(self: &Arc<Self>, load: Load, waiter: Arc<Waiter>, origin: Origin) -> Submission {
        Submission {
            gate: self.clone(),
            batch: Batch::new(BROKER_BATCH),
            waiter,
            rooms: Vec::new(),
            load,
            lanes: Vec::new(),
            origin,
            submitted_at: self.clock.monotonic(),
            unconfirmed: AtomicUsize::new(load.ops),
            failure: Mutex::new(None),
        }
    }

    /// What records that nobody waits for belong to.
    pub(super) fn nobody(self: &Arc<Self>) -> Arc<Submission> {
        Arc::new(self.submission(Load::default(), Arc::default(), Origin::Nobody))
    }

    /// Admits a record that nobody waits for, unless too many wait.
    pub(super) fn admit_unawaited(&self, bytes: usize) -> bool {
        let has_room = self.unawaited_bytes.load(Ordering::Acquire) < UNAWAITED_BYTES_MAX;
        let is_admitted = has_room && self.fault().is_none();
        if is_admitted {
            self.unawaited_bytes.fetch_add(bytes, Ordering::AcqRel);
        } else {
            self.metrics.bus_dropped.inc();
        }
        is_admitted
    }

    /// A record that nobody waits for was written, or dropped.
    pub(super) fn release_unawaited(&self, bytes: usize, is_written: bool) {
        self.unawaited_bytes.fetch_sub(bytes, Ordering::AcqRel);
        let counter = if is_written { &self.metrics.bus_sent } else { &self.metrics.bus_dropped };
        counter.inc();
    }

    pub(super) fn resume(&self) {
        if self.state.lock().admission.resume() {
            tracing::info!("Kafka is reachable again");
        }
    }

    /// Refuses submissions for now. What Kafka does not confirm in time fails by itself.
    pub(super) fn suspend(&self, reason: &str) {
        if self.state.lock().admission.suspend(reason) {
            tracing::warn!(reason, "Kafka is not reachable; retrying");
        }
    }

    pub(super) fn begin_close(&self) {
        self.state.lock().admission.begin_close();
    }

    /// Why records are refused; `None` = they are accepted.
    pub(super) fn fault(&self) -> Option<String> {
        self.state.lock().admission.fault()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.state.lock().load.total().ops == 0
    }

    /// Whether everything unconfirmed must fail now.
    pub(super) fn take_purge(&self) -> bool {
        self.must_purge.swap(false, Ordering::AcqRel)
    }
}

/// Records that are confirmed together. Each record has a reference; the last confirmation answers.
pub(super) struct Submission {
    gate: Arc<UnconfirmedRecords>,
    batch: Arc<Batch>,
    waiter: Arc<Waiter>,
    /// Rooms of a sender whose order matters.
    rooms: Vec<String>,
    load: Load,
    lanes: Vec<LaneLoad>,
    origin: Origin,
    submitted_at: Duration,
    unconfirmed: AtomicUsize,
    failure: Mutex<Option<String>>,
}

impl Submission {
    /// Whether its records are messages and changes, and in no other topic than theirs.
    pub(super) fn is_of_client(&self) -> bool {
        self.origin.is_client()
    }

    /// Counts `count` records, of `bytes`, as confirmed or failed.
    pub(super) fn confirm(&self, (count, bytes): (usize, usize), failure: Option<Failure>) {
        if failure.is_some() {
            self.gate.suspicion.notify_one();
        }
        if self.origin == Origin::Nobody {
            self.gate.release_unawaited(bytes, failure.is_none());
            return;
        }
        if let Some(Failure { reason, is_late }) = failure {
            self.gate.must_purge.fetch_or(is_late, Ordering::AcqRel);
            self.failure.lock().get_or_insert(reason);
            // At once: what the sender submits before the last record is confirmed would overtake this one.
            self.keep_order();
        }
        if self.unconfirmed.fetch_sub(count, Ordering::AcqRel) == count {
            self.answer();
        }
    }

    /// Refuses what the sender submits to these rooms until it has seen the failure.
    fn keep_order(&self) {
        if let Some(order) = self.waiter.order() {
            self.rooms.iter().for_each(|room| order.insert_broker_failure(room));
        }
    }

    fn answer(&self) {
        let UnconfirmedRecords { state, metrics, clock, .. } = &*self.gate;
        let records = self.load.ops;
        let failure = self.failure.lock().take();
        if self.origin.is_client() {
            state.lock().load.release(self.load, &self.lanes);
            let counter = if failure.is_some() { &metrics.log_unconfirmed } else { &metrics.log_confirmed };
            counter.inc_by(records as u64);
            let took = clock.monotonic().saturating_sub(self.submitted_at).as_micros();
            metrics.log_confirm_time.record(saturate(took), records as u64);
        }
        if failure.is_some() {
            // Again: the sender may have acknowledged another failure meanwhile.
            self.keep_order();
        }
        let failure = failure.map(|reason| ApplyError::Unconfirmed { reason });
        if let Some(error) = failure.as_ref().filter(|_| self.origin == Origin::Client) {
            count_failures(error, records as u64, metrics);
        }
        self.batch.set(failure.map_or_else(|| Ok(vec![Outcome::Accepted; records]), Err));
        self.batch.make_visible();
        self.waiter.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hubbub_core::clock::ManualClock;
    use prometheus_client::metrics::counter::Counter;

    fn gate(ops: usize) -> Arc<UnconfirmedRecords> {
        let clock = Arc::new(ManualClock::default());
        Arc::new(UnconfirmedRecords::new(QueueLimits { ops, bytes: 1_000 }, clock, Arc::default()))
    }

    fn of(records: usize) -> Load {
        Load { ops: records, bytes: 1 }
    }

    fn admit(
        gate: &Arc<UnconfirmedRecords>,
        records: usize,
        waiter: &Arc<Waiter>,
    ) -> Result<(Arc<Submission>, Ticket), SubmitError> {
        gate.admit(of(records), Vec::new(), ["r"].into_iter(), waiter, Origin::Client)
    }

    #[test]
    fn the_last_confirmation_answers() {
        let (gate, waiter) = (gate(3), Arc::new(Waiter::default()));
        let (submission, ticket) = admit(&gate, 2, &waiter).unwrap();
        assert_eq!(admit(&gate, 2, &waiter).map(drop), Err(SubmitError::Overloaded));
        submission.confirm((1, 0), None);
        assert!(ticket.outcomes().is_none() && !gate.is_idle());
        submission.confirm((1, 0), None);
        assert_eq!(ticket.outcomes().unwrap().unwrap(), vec![Outcome::Accepted; 2]);
        assert!(gate.is_idle() && !gate.take_purge());
    }

    /// Messages and changes alike; what the server writes itself is in neither figure.
    #[test]
    fn what_is_published_is_confirmed_or_not() {
        let (gate, waiter) = (gate(9), Arc::new(Waiter::default()));
        let counts = || {
            let metrics = &gate.metrics;
            [&metrics.log_published, &metrics.log_confirmed, &metrics.log_unconfirmed].map(Counter::get)
        };
        let own = gate.admit(of(4), Vec::new(), std::iter::empty(), &waiter, Origin::Server).unwrap().0;
        own.confirm((4, 1), None);
        assert_eq!(counts(), [0, 0, 0]);
        let [taken, late] = [2, 3].map(|records| admit(&gate, records, &waiter).unwrap().0);
        assert_eq!(counts(), [5, 0, 0]);
        taken.confirm((2, 1), None);
        late.confirm((3, 1), Some(Failure { reason: "late".into(), is_late: true }));
        assert_eq!(counts(), [5, 2, 3]);
        assert!(admit(&gate, 10, &waiter).is_ok_and(|_| counts()[0] == 15), "one submission always fits");
        assert_eq!(admit(&gate, 1, &waiter).map(drop), Err(SubmitError::Overloaded));
        assert_eq!(counts()[0], 15, "what is refused is not published");
    }

    #[test]
    fn a_failure_keeps_the_order_of_its_sender() {
        let (gate, waiter) = (gate(9), Arc::new(Waiter::ordered()));
        let (submission, ticket) = admit(&gate, 2, &waiter).unwrap();
        submission.confirm((1, 0), Some(Failure { reason: "late".into(), is_late: true }));
        assert_eq!(admit(&gate, 1, &waiter).map(drop), Err(SubmitError::Overloaded), "it would overtake");
        submission.confirm((1, 0), None);
        assert!(matches!(ticket.outcomes(), Some(Err(ApplyError::Unconfirmed { .. }))));
        assert!(gate.take_purge() && gate.is_idle());
        assert_eq!(gate.metrics.unconfirmed.get(), 2, "all of it is told to be unconfirmed");
        assert_eq!(admit(&gate, 1, &waiter).map(drop), Err(SubmitError::Overloaded));
        waiter.acknowledge_failure(&ticket);
        assert!(admit(&gate, 1, &waiter).is_ok());
    }

    #[test]
    fn what_nobody_waits_for_is_counted_as_written_or_dropped() {
        let gate = gate(9);
        let nobody = gate.nobody();
        let counts = || (gate.metrics.bus_sent.get(), gate.metrics.bus_dropped.get());
        assert!(gate.admit_unawaited(UNAWAITED_BYTES_MAX) && !gate.admit_unawaited(1));
        assert_eq!(counts(), (0, 1), "there is no room for it");
        nobody.confirm((1, UNAWAITED_BYTES_MAX), None);
        assert!(gate.admit_unawaited(1));
        nobody.confirm((1, 1), Some(Failure { reason: "away".into(), is_late: false }));
        assert_eq!(counts(), (1, 2));
        assert!(gate.admit_unawaited(1), "their bytes are free again");
    }

    #[test]
    fn it_refuses_while_suspended_or_closing() {
        let (gate, waiter) = (gate(9), Arc::new(Waiter::default()));
        gate.suspend("away");
        assert_eq!(admit(&gate, 1, &waiter).map(drop), Err(SubmitError::Unavailable));
        assert_eq!(gate.fault().as_deref(), Some("away"));
        gate.resume();
        assert!(admit(&gate, 1, &waiter).is_ok());
        gate.begin_close();
        assert_eq!(admit(&gate, 1, &waiter).map(drop), Err(SubmitError::ShuttingDown));
        assert!(gate.admit(of(1), Vec::new(), std::iter::empty(), &waiter, Origin::Server).is_ok());
    }
}
