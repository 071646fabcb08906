//! What the writer, readers and seals share of queues, and who waits for whom.
//!
//! The writer decides a batch under the lock, lets go of it while the journal is written, and then says that all of it is
//! durable. A checkpoint must hold nothing that is not: whoever wants one while a batch is under way leaves that to the
//! writer, who copies the state when the batch is durable. Readers have the lock for moments and read payloads behind it.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use hubbub_core::invariant::saturate;
use hubbub_core::queue::epoch_number;
use hubbub_core::rules::queues::Effects;
use hubbub_core::{Clock, Op, Outcome};
use parking_lot::{Condvar, Mutex, RwLock};

use super::checkpoint::Copied;
use super::time::{Now, Times};
use super::{QueueBatch, Queues, Visible};
use crate::embedded::error::MaintainError;
use crate::embedded::rooms::Position;

/// How often whoever waits for a copy looks again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

const NEVER_DUE: i64 = i64::MAX;

#[derive(Debug)]
struct Guarded {
    queues: Queues,
    /// A batch is entered that is not durable yet.
    unsettled: bool,
    /// A write failed: what is entered will never be known to be durable.
    failed: bool,
    wants_copy: bool,
    copy: Option<Box<Copied>>,
}

#[derive(Debug)]
pub(crate) struct QueueShared {
    guarded: Mutex<Guarded>,
    settled: Condvar,
    /// Names of registered clients, so that asking for one never waits for a payload to be read.
    registered: RwLock<BTreeSet<Arc<str>>>,
    /// When there is something to sweep; for the same reason not behind the lock.
    due_at: AtomicI64,
    times: Times,
}

impl QueueShared {
    /// As the journal left them, in the history that `epoch` names.
    pub(crate) fn new(mut queues: Queues, epoch: &str, clock: &dyn Clock) -> Self {
        queues.epoch = epoch_number(epoch);
        queues.woken.clear();
        let now = queues.times.now(clock);
        queues.advance(now);
        queues.see_all();
        queues.loaded = queues.visible.id;
        queues.client_changes.clear();
        (queues.given_up, queues.dropped) = (0, 0);
        let registered =
            queues.registered.iter().filter_map(|number| queues.client(number).cloned()).collect();
        let times = queues.times;
        let due_at = AtomicI64::new(queues.due_at().unwrap_or(NEVER_DUE));
        let guarded = Guarded { queues, unsettled: false, failed: false, wants_copy: false, copy: None };
        Self {
            guarded: Mutex::new(guarded),
            settled: Condvar::new(),
            registered: RwLock::new(registered),
            due_at,
            times,
        }
    }

    /// Decides the operations on queues of a batch, in their order, and fills in their outcomes.
    pub(crate) fn decide(
        &self,
        clock: &dyn Clock,
        ops: &[Op<'_>],
        outcomes: &mut [Outcome],
        batch: &mut QueueBatch<'_>,
    ) {
        let mut guarded = self.guarded.lock();
        let now = guarded.queues.time_has_come(clock);
        let before = *batch.records;
        let mut effects = Effects::new(batch.spare);
        for (op, outcome) in ops.iter().zip(outcomes) {
            if let Op::Queue(op) = op {
                *outcome = guarded.queues.decide(op, &mut effects, batch, now);
            }
        }
        batch.missing = effects.missing();
        guarded.unsettled |= *batch.records > before;
        self.note_due(&guarded.queues);
    }

    /// Everything that was decided is durable.
    pub(crate) fn settle(&self, clock: &dyn Clock, at: Position) {
        let mut guarded = self.guarded.lock();
        let guarded = &mut *guarded;
        guarded.unsettled = false;
        guarded.queues.at = at;
        guarded.queues.see_all();
        let changes = std::mem::take(&mut guarded.queues.client_changes);
        if !changes.is_empty() {
            let mut registered = self.registered.write();
            for (name, is_registered) in changes {
                if is_registered {
                    registered.insert(name);
                } else {
                    registered.remove(&name);
                }
            }
        }
        if std::mem::take(&mut guarded.wants_copy) {
            let now = guarded.queues.times.now(clock);
            guarded.copy = Some(Box::new(guarded.queues.copied(now)));
            self.settled.notify_all();
        }
    }

    /// Whether a checkpoint is to be written although no slot is full; see [`Queues::lacks_checkpoint`]. Counts the time out of
    /// service, even if nobody asks for anything.
    pub(crate) fn lacks_checkpoint(&self, clock: &dyn Clock) -> bool {
        loop {
            let mut guarded = self.guarded.lock();
            if !guarded.queues.may_count_time_out(clock) {
                return guarded.queues.lacks_checkpoint();
            }
            guarded.queues.time_has_come(clock);
            self.note_due(&guarded.queues);
        }
    }

    /// Whether what was decided may or may not be durable will not be known before the next start.
    pub(crate) fn fail(&self) {
        self.guarded.lock().failed = true;
        self.settled.notify_all();
    }

    /// A copy of everything at a moment at which all of it is durable. For one caller at a time.
    pub(crate) fn copied(&self, clock: &dyn Clock) -> Result<Box<Copied>, MaintainError> {
        let mut guarded = self.guarded.lock();
        loop {
            if guarded.failed {
                let source = io::Error::other("a write of the journal failed before; restart");
                return Err(MaintainError::Io { attempted: "copying", path: "queues".into(), source });
            }
            if let Some(copy) = guarded.copy.take() {
                return Ok(copy);
            }
            if !guarded.unsettled {
                let now = guarded.queues.times.now(clock);
                return Ok(Box::new(guarded.queues.copied(now)));
            }
            guarded.wants_copy = true;
            self.settled.wait_for(&mut guarded, LOOK_AGAIN);
        }
    }

    /// Whether somebody waits for a copy.
    #[cfg(test)]
    pub(crate) fn is_copy_wanted(&self) -> bool {
        self.guarded.lock().wants_copy
    }

    /// Does something with the state as it is by now.
    pub(super) fn with<T>(&self, clock: &dyn Clock, what: impl FnOnce(&mut Queues, Now) -> T) -> T {
        let mut guarded = self.guarded.lock();
        let now = guarded.queues.time_has_come(clock);
        let result = what(&mut guarded.queues, now);
        self.note_due(&guarded.queues);
        result
    }

    fn note_due(&self, queues: &Queues) {
        self.due_at.store(queues.due_at().unwrap_or(NEVER_DUE), Ordering::Release);
    }

    /// How long until there is something to sweep.
    pub(crate) fn due_in(&self, clock: &dyn Clock) -> Option<Duration> {
        let due_at = self.due_at.load(Ordering::Acquire);
        let mut times = self.times;
        let left = due_at.saturating_sub(times.now(clock).at);
        (due_at != NEVER_DUE).then(|| Duration::from_micros(saturate::<_, u64>(left)))
    }

    pub(crate) fn is_client(&self, name: &str) -> bool {
        self.registered.read().contains(name)
    }

    /// Names of registered clients in their order, beginning behind `after`.
    pub(super) fn clients(&self, after: Option<&str>, limit: usize) -> Vec<Arc<str>> {
        use std::ops::Bound;
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.registered.read().range::<str, _>((from, Bound::Unbounded)).take(limit).cloned().collect()
    }
}

impl Queues {
    /// Shows readers everything there is.
    fn see_all(&mut self) {
        self.visible =
            Visible { id: self.next_id.saturating_sub(1), queue: self.next_queue.saturating_sub(1) };
    }
}
