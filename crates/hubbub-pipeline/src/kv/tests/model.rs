//! A model store of keys: the list of all changes, with reads of adjustable speed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use hubbub_core::clock::{Clock, ManualClock, RandomSource, SeededRandom};
use hubbub_core::kv::{
    KeyPage, KvChange, KvChanged, KvChanges, KvChangesRead, KvEntry, KvOp, KvOutcome, has_expired,
};
use hubbub_core::store::{KvStore, Read, ReadError};
use hubbub_core::{Op, OpBatch, Outcome, Refusal, Timestamp};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// A state of a key.
struct Event {
    revision: u64,
    key: Vec<u8>,
    /// `None` = deleted.
    value: Option<(Arc<[u8]>, Option<Timestamp>)>,
    what: KvChanged,
}

pub(super) struct Model {
    clock: Arc<ManualClock>,
    events: Mutex<Vec<Event>>,
    random: SeededRandom,
    is_slow: AtomicBool,
    is_held: AtomicBool,
    is_away: AtomicBool,
    reading: AtomicUsize,
    reads: AtomicU64,
    asked: AtomicU64,
    /// How many changes are kept.
    kept: AtomicU64,
    /// Questions that get no answer.
    lost: AtomicU64,
    /// Questions that panic.
    panics: AtomicU64,
    /// Its own time, in microseconds; 0 = that of the clock.
    time: AtomicI64,
    released: Notify,
}

/// The revision of a change.
pub(super) fn revision(outcome: &Outcome) -> Option<u64> {
    match outcome {
        Outcome::Kv(KvOutcome::Put { revision, .. }) => Some(*revision),
        Outcome::Kv(KvOutcome::Deleted { revision }) => *revision,
        _ => None,
    }
}

impl Model {
    pub(super) fn new(clock: Arc<ManualClock>) -> Self {
        Self {
            clock,
            events: Mutex::default(),
            random: SeededRandom::new(9),
            is_slow: AtomicBool::new(false),
            is_held: AtomicBool::new(false),
            is_away: AtomicBool::new(false),
            reading: AtomicUsize::new(0),
            reads: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            kept: AtomicU64::new(u64::MAX),
            lost: AtomicU64::new(0),
            panics: AtomicU64::new(0),
            time: AtomicI64::new(0),
            released: Notify::new(),
        }
    }

    pub(super) fn random(&self) -> u64 {
        self.random.next_u64()
    }

    /// Makes reads wait before and after they access the data.
    pub(super) fn read_slowly(&self, seed: u64) {
        (0..seed).for_each(|_| _ = self.random());
        self.is_slow.store(true, Ordering::SeqCst);
    }

    /// Makes reads wait after they accessed the data.
    pub(super) fn hold_reads(&self) {
        self.is_held.store(true, Ordering::SeqCst);
    }

    pub(super) fn release_reads(&self) {
        self.release_next_reads();
        self.released.notify_waiters();
    }

    /// Those that wait go on waiting.
    pub(super) fn release_next_reads(&self) {
        self.is_held.store(false, Ordering::SeqCst);
    }

    /// Whether reads fail once they are not held any more.
    pub(super) fn fail_reads(&self, is_away: bool) {
        self.is_away.store(is_away, Ordering::SeqCst);
    }

    /// The next questions for changes get no answer.
    pub(super) fn lose_questions(&self, questions: u64) {
        self.lost.store(questions, Ordering::SeqCst);
    }

    /// The next questions for changes panic.
    pub(super) fn panic_at_questions(&self, questions: u64) {
        self.panics.store(questions, Ordering::SeqCst);
    }

    pub(super) fn set_time(&self, micros: i64) {
        self.time.store(micros, Ordering::SeqCst);
    }

    /// Whether a read has accessed the data and waits.
    pub(super) fn is_reading(&self) -> bool {
        self.reading.load(Ordering::SeqCst) > 0
    }

    pub(super) fn reads(&self) -> u64 {
        self.reads.load(Ordering::SeqCst)
    }

    /// Questions for changes.
    pub(super) fn asked(&self) -> u64 {
        self.asked.load(Ordering::SeqCst)
    }

    /// From now on only so many changes are kept.
    pub(super) fn keep(&self, changes: u64) {
        self.kept.store(changes, Ordering::SeqCst);
    }

    /// Another history: only these first changes are left of it.
    pub(super) fn restore(&self, changes: usize) {
        self.events.lock().truncate(changes);
    }

    pub(super) fn apply(&self, ops: &OpBatch) -> Vec<Outcome> {
        let mut events = self.events.lock();
        ops.iter()
            .map(|op| match op {
                Op::Kv(op) => self.apply_one(&op, &mut events),
                other => panic!("not of keys: {other:?}"),
            })
            .collect()
    }

    fn apply_one(&self, op: &KvOp<'_>, events: &mut Vec<Event>) -> Outcome {
        let next = events.len() as u64 + 1;
        let now = self.clock.now();
        let current = |key: &[u8], events: &[Event]| {
            let last = events.iter().rev().find(|event| event.key == key)?;
            last.value.as_ref().map(|_| last.revision)
        };
        match *op {
            KvOp::Put { key, condition, .. } | KvOp::Delete { key, condition }
                if !condition.holds(current(key, events)) =>
            {
                Outcome::Refused(Refusal::Condition { revision: current(key, events) })
            }
            KvOp::Put { key, value, ttl_ms, .. } => {
                let expires_at = ttl_ms
                    .map(|ms| Timestamp::from_micros(now.as_micros() + i64::try_from(ms).unwrap() * 1_000));
                let created = current(key, events).is_none();
                let value = Some((Arc::from(value), expires_at));
                events.push(Event { revision: next, key: key.to_vec(), value, what: KvChanged::Put });
                Outcome::Kv(KvOutcome::Put { revision: next, expires_at, created })
            }
            KvOp::Delete { key, .. } => {
                let revision = current(key, events).map(|_| next);
                if revision.is_some() {
                    let what = KvChanged::Deleted;
                    events.push(Event { revision: next, key: key.to_vec(), value: None, what });
                }
                Outcome::Kv(KvOutcome::Deleted { revision })
            }
            KvOp::Sweep => {
                let is_over = |event: &Event| matches!(event.value, Some((_, Some(at))) if at <= now);
                let over = events.iter().filter(|event| is_over(event)).map(|event| event.key.clone());
                let over: Vec<_> = over.collect();
                for key in over {
                    let revision = events.len() as u64 + 1;
                    events.push(Event { revision, key, value: None, what: KvChanged::Expired });
                }
                let last = events.len() as u64;
                Outcome::Kv(KvOutcome::Swept { revision: (last >= next).then_some(last), more: false })
            }
        }
    }

    /// The revision of the state that a key was found in, if it was in that state at the revision `floor` or after:
    /// `found` is the value's revision, `None` = it was not there. Of several states the oldest.
    pub(super) fn state_since(&self, key: u8, found: Option<u64>, floor: u64) -> Option<u64> {
        let events = self.events.lock();
        let mut state = (0, None);
        for event in events.iter().filter(|event| event.key == [key]) {
            if event.revision > floor && state.1 == found {
                return Some(state.0);
            }
            state = (event.revision, event.value.as_ref().map(|_| event.revision));
        }
        (state.1 == found).then_some(state.0)
    }

    async fn dawdle(&self) {
        if self.is_slow.load(Ordering::SeqCst) {
            for _ in 0..self.random() % 8 {
                tokio::task::yield_now().await;
            }
        }
    }
}

impl KvStore for Model {
    fn value(&self, key: &[u8]) -> Read<'_, Option<KvEntry>> {
        let key = key.to_vec();
        Box::pin(async move {
            self.dawdle().await;
            let found = {
                let events = self.events.lock();
                let last = events.iter().rev().find(|event| event.key == key);
                let found = last.and_then(|event| Some((event.revision, event.value.clone()?)));
                found.filter(|(_, (_, expires_at))| !has_expired(*expires_at, self.clock.now()))
            };
            self.reads.fetch_add(1, Ordering::SeqCst);
            let released = self.released.notified();
            if self.is_held.load(Ordering::SeqCst) {
                self.reading.fetch_add(1, Ordering::SeqCst);
                released.await;
            }
            self.dawdle().await;
            if self.is_away.load(Ordering::SeqCst) {
                return Err(ReadError::Unavailable { reason: "the store is away".into() });
            }
            Ok(found.map(|(revision, (value, expires_at))| KvEntry { value, revision, expires_at }))
        })
    }

    fn keys(&self, _: &[u8], _: Option<&[u8]>, _: usize) -> Read<'_, KeyPage> {
        Box::pin(async { Ok(KeyPage { keys: Vec::new(), revision: self.revision() }) })
    }

    fn changes(&self, prefix: &[u8], after: u64, limit: usize) -> Read<'_, KvChangesRead> {
        let prefix = prefix.to_vec();
        Box::pin(async move {
            self.dawdle().await;
            let (mut changes, head) = {
                let events = self.events.lock();
                let behind = events.iter().filter(|event| event.revision > after);
                let behind = behind.filter(|event| event.key.starts_with(&prefix)).map(|event| KvChange {
                    revision: event.revision,
                    key: event.key.as_slice().into(),
                    what: event.what,
                });
                (behind.collect::<Vec<_>>(), events.len() as u64)
            };
            self.asked.fetch_add(1, Ordering::SeqCst);
            let next = |lost: u64| lost.checked_sub(1);
            if self.lost.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next).is_ok() {
                std::future::pending().await
            }
            let panics = self.panics.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next).is_ok();
            assert!(!panics, "a test wants this panic");
            self.dawdle().await;
            let oldest = head.saturating_sub(self.kept.load(Ordering::SeqCst));
            if after < oldest || after > head {
                return Ok(KvChangesRead::Compacted { oldest, head });
            }
            let is_cut = changes.len() > limit;
            changes.truncate(limit);
            let through = changes.last().filter(|_| is_cut).map_or(head, |last| last.revision);
            Ok(KvChangesRead::Changes(KvChanges { changes, through, more: is_cut }))
        })
    }

    fn revision(&self) -> u64 {
        self.events.lock().len() as u64
    }

    fn kv_now(&self) -> Option<Timestamp> {
        let time = self.time.load(Ordering::SeqCst);
        (time != 0).then(|| Timestamp::from_micros(time))
    }

    fn kv_due_in(&self) -> Option<Duration> {
        None
    }
}
