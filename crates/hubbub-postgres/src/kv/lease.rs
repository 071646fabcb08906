//! The lease: the right of one server to be the only one that changes keys. So it may answer reads of keys from memory
//! without asking whether others changed them. What this server knows of it is here; [`super::leasing`] gets, renews and
//! ends it.
//!
//! 1. The row of `kv_lease` has a generation, which each change of the holder moves on. Whoever changes keys holds the
//!    writers' lock, compares the generation in the same transaction, and changes nothing if it is not the one it knew.
//! 2. Each server has a row in `kv_servers`, and moves its beat every [`super::leasing::HEARTBEAT_INTERVAL`]. Taking the lease needs
//!    the writers' lock and that no other server has a row. So it comes after all changes of others, and before none.
//! 3. The holder counts [`LEASE_DURATION`] from before it sent a beat that found its row, by a clock that does not stand still
//!    while the machine sleeps. Beyond it answers nothing without asking.
//! 4. Another server that wants to write has a row first. The holder sees it within [`super::leasing::LEASE_CHECK_INTERVAL`], stops
//!    answering from memory, and then gives the lease back with the writers' lock.
//! 5. If it does not, the other one waits until the beat of the holder has stood still for
//!    [`super::leasing::HOLDER_TIMEOUT`] by its own clock since it saw it. Then it ends lease and row together, if the beat is
//!    still that one. A beat of the holder that comes later finds no row. No two clocks are compared. Whoever finds no row
//!    comes back under another name, so that no end of the old one, which may be on its way, can miss it.
//! 6. A change by the holder whose outcome is unknown may be committed later, so the holder gives the lease back. The next
//!    generation fences that change off. What gives the lease back may itself be committed later: once that was sent, no
//!    beat of this generation counts.
//! 7. Another history of the database may have lost that somebody took the lease. Nobody writes there before it was open
//!    for [`super::leasing::HOLDER_TIMEOUT`]; the holder of before does not find its own history any more, and cannot renew. Its
//!    revisions begin far behind those of before, of which some may be lost: none is given twice.
//! 8. Other servers may read from the database meanwhile, and see a change of the holder before its cache has it. The cache
//!    knows which of its keys are being changed, and asks for them.
//! 9. A database that lost its last transactions, but begins no other history, is further back than what this server knows
//!    of it. Then the outcomes of earlier changes are unknown.
//! 10. Servers of before this schema compare no generation: the database refuses their changes while somebody has the lease.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use hubbub_core::clock::Clock;
use hubbub_core::store::{ApplyError, LeaseFigures};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

/// How long the lease may be used after a beat was sent. Shorter than others wait, so that clocks may differ in speed.
const LEASE_DURATION: Duration = Duration::from_millis(1_800);

/// Numbers of all leases of this process, in all histories.
static NUMBERS: AtomicU64 = AtomicU64::new(1);

/// What this server knows of the lease.
pub(super) struct Lease {
    clock: Arc<dyn Clock>,
    /// The name of this server among all of the database.
    own: AtomicI64,
    held: Mutex<Held>,
    known: watch::Sender<GenerationState>,
    is_closed: AtomicBool,
    /// See [`LeaseFigures`].
    lost: AtomicU64,
    waits: AtomicU64,
    /// Tells the task that something is no longer as it left it.
    pub(super) looking: Notify,
}

#[derive(Debug, Default)]
struct Held {
    /// Its number, its generation, and until when it may be used, by the clock.
    lease: Option<(NonZeroU64, i64, Duration)>,
    /// The last generation in which the outcome of an own change is unknown.
    uncertain: Option<i64>,
}

/// The generation, and whether this server may change keys in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GenerationState {
    pub(super) generation: i64,
    pub(super) may_write: bool,
}

impl Lease {
    /// Before anything is known. Nobody else may have the name `own`, now or later.
    pub(super) fn new(clock: Arc<dyn Clock>, own: i64) -> Self {
        let known = watch::Sender::new(GenerationState { generation: 0, may_write: false });
        Self {
            clock,
            own: own.into(),
            held: Mutex::default(),
            known,
            is_closed: AtomicBool::new(false),
            lost: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            looking: Notify::new(),
        }
    }

    pub(super) fn own(&self) -> i64 {
        self.own.load(Ordering::Relaxed)
    }

    /// The row of the name of before is gone, and with it the lease. Returns the new name.
    pub(super) fn rename(&self) -> i64 {
        self.lose();
        // Names are random: so near to one is nobody.
        self.own.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }

    pub(super) fn figures(&self) -> LeaseFigures {
        let [lost, waits] = [&self.lost, &self.waits].map(|count| count.load(Ordering::Relaxed));
        LeaseFigures { lost, waits }
    }

    /// The number of the lease, if this server has it now.
    pub(super) fn number(&self) -> Option<NonZeroU64> {
        let held = self.held.lock();
        held.lease.filter(|(_, _, until)| self.clock.monotonic() < *until).map(|(number, _, _)| number)
    }

    /// The time from which a lease counts that is asked for now.
    pub(super) fn now(&self) -> Duration {
        self.clock.monotonic()
    }

    /// Waits until this server may change keys. Returns the generation to compare.
    pub(super) async fn writable(&self, patience: Duration) -> Result<i64, ApplyError> {
        let known = *self.known.borrow();
        if known.may_write {
            return Ok(known.generation);
        }
        self.waits.fetch_add(1, Ordering::Relaxed);
        let is_closed = || self.is_closed.load(Ordering::SeqCst);
        let mut known = self.known.subscribe();
        let waiting = known.wait_for(|known| known.may_write || is_closed());
        match tokio::time::timeout(patience, waiting).await {
            Ok(Ok(known)) if !is_closed() => Ok(known.generation),
            _ => {
                let reason =
                    "another server is the only one that may change keys, and does not let go".into();
                Err(ApplyError::Unavailable { reason })
            }
        }
    }

    /// A change found that this is not the generation.
    pub(super) fn mark_superseded(&self, generation: i64) {
        self.known.send_if_modified(|known| {
            let is_known = known.generation == generation && known.may_write;
            known.may_write &= !is_known;
            is_known
        });
        self.looking.notify_one();
    }

    /// It is not known what became of a change in this generation.
    pub(super) fn mark_uncertain(&self, generation: i64) {
        self.finish(generation);
        self.looking.notify_one();
    }

    /// The same of the current generation.
    pub(super) fn doubt_all(&self) {
        let generation = self.known.borrow().generation;
        self.mark_uncertain(generation);
    }

    /// Answers nothing from memory in this generation any more, whatever a beat says.
    pub(super) fn finish(&self, generation: i64) {
        let mut held = self.held.lock();
        held.uncertain = held.uncertain.max(Some(generation));
        held.lease.take_if(|(_, of, _)| *of <= generation);
    }

    pub(super) fn is_uncertain(&self, generation: i64) -> bool {
        self.held.lock().uncertain >= Some(generation)
    }

    /// This server has the lease, by a beat sent at `since`.
    pub(super) fn hold(&self, generation: i64, since: Duration) {
        let mut held = self.held.lock();
        if held.uncertain >= Some(generation) {
            return;
        }
        let same = held.lease.filter(|(_, of, _)| *of == generation);
        let has_run_out = same.is_some_and(|(_, _, until)| self.clock.monotonic() >= until);
        self.lost.fetch_add(has_run_out.into(), Ordering::Relaxed);
        let number = same.map(|(number, _, _)| number);
        let number = number.or_else(|| NonZeroU64::new(NUMBERS.fetch_add(1, Ordering::Relaxed)));
        held.lease = number.map(|number| (number, generation, since + LEASE_DURATION));
    }

    /// Others have ended the lease, if this server had it.
    pub(super) fn lose(&self) {
        let had = self.held.lock().lease.take();
        self.lost.fetch_add(had.is_some().into(), Ordering::Relaxed);
    }

    /// Ends it for good. Nobody waits any more.
    pub(super) fn close(&self) {
        *self.held.lock() = Held { lease: None, uncertain: Some(i64::MAX) };
        self.is_closed.store(true, Ordering::SeqCst);
        self.known.send_modify(|_| ());
    }

    /// What was read of the lease, or made of it.
    pub(super) fn learn(&self, known: GenerationState) {
        let is_other = |before: &GenerationState| *before != known;
        self.known.send_if_modified(|before| {
            is_other(before) && {
                *before = known;
                true
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use hubbub_core::Timestamp;
    use hubbub_core::clock::ManualClock;

    use super::*;

    fn lease() -> (Arc<ManualClock>, Lease) {
        let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1)));
        (clock.clone(), Lease::new(clock, 1))
    }

    fn advance(clock: &ManualClock, ms: i64) {
        clock.advance_micros(ms * 1_000);
    }

    #[test]
    fn it_counts_from_before_it_was_asked_for() {
        let (clock, lease) = lease();
        assert_eq!(lease.number(), None);
        let asked_at = lease.now();
        advance(&clock, 1_000);
        lease.hold(7, asked_at);
        let number = lease.number();
        assert!(number.is_some());
        advance(&clock, 799);
        assert_eq!(lease.number(), number);
        advance(&clock, 1);
        assert_eq!(lease.number(), None);
        // Renewed: nobody had it in between, or the generation would be another.
        lease.hold(7, lease.now());
        assert_eq!(lease.number(), number);
        assert_eq!(lease.figures().lost, 1, "it had run out");
        assert_eq!(lease.rename(), lease.own());
        assert_eq!((lease.number(), lease.figures().lost), (None, 2));
        lease.hold(9, lease.now());
        assert!(lease.number() > number);
        lease.finish(9);
        lease.hold(9, lease.now());
        assert_eq!((lease.number(), lease.figures().lost), (None, 2), "it was given back");
    }

    #[test]
    fn an_unknown_outcome_ends_it_for_this_generation() {
        let (_, lease) = lease();
        lease.hold(3, lease.now());
        lease.mark_uncertain(2);
        assert!(lease.number().is_some(), "fenced off");
        lease.mark_uncertain(3);
        lease.hold(3, lease.now());
        assert_eq!((lease.number(), lease.is_uncertain(3)), (None, true));
        lease.hold(4, lease.now());
        assert!(lease.number().is_some());
        lease.close();
        lease.hold(5, lease.now());
        assert_eq!(lease.number(), None, "a late answer to the task");
    }

    #[tokio::test]
    async fn who_may_not_write_waits() {
        let (_, lease) = lease();
        let (patience, none) = (Duration::from_secs(60), Duration::ZERO);
        assert!(lease.writable(none).await.is_err());
        let waiting = lease.writable(patience);
        tokio::pin!(waiting);
        assert!(waiting.as_mut().now_or_never().is_none());
        lease.learn(GenerationState { generation: 4, may_write: false });
        assert!(waiting.as_mut().now_or_never().is_none());
        lease.learn(GenerationState { generation: 5, may_write: true });
        assert_eq!(waiting.await, Ok(5));
        assert_eq!(lease.figures().waits, 2);
        lease.mark_superseded(4);
        assert_eq!(lease.writable(none).await, Ok(5));
        lease.mark_superseded(5);
        assert!(lease.writable(none).await.is_err());
        let waiting = lease.writable(patience);
        tokio::pin!(waiting);
        assert!(waiting.as_mut().now_or_never().is_none());
        lease.close();
        assert!(matches!(waiting.now_or_never(), Some(Err(_))), "it holds up nobody who stops");
    }
}
