//! What this server remembers of queues, so that it can be asked without waiting: who is registered, when something is
//! due, and what it has to tell. It is compared with the database by each beat.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hubbub_core::store::StoreFigures;
use parking_lot::{Mutex, RwLock};

/// When something is due, as far as is known.
#[derive(Debug)]
struct Due {
    /// What the database said when it was last asked.
    known: i64,
    /// The earliest of what was written since then.
    noted: i64,
    /// The same, written before the question that is under way.
    carried: i64,
    is_asking: bool,
}

/// What the database said of what is due.
#[derive(Debug, Clone, Copy)]
pub(super) struct Said {
    /// When the first of it is, if something is.
    pub(super) due: Option<i64>,
    /// Up to when it was looked for.
    pub(super) upto: i64,
    /// The time that was proven then.
    pub(super) proven: i64,
}

/// Nothing is ever due.
const NEVER: i64 = i64::MAX;

#[derive(Debug)]
pub(super) struct Memory {
    due: Mutex<Due>,
    registered: RwLock<(i64, BTreeSet<Arc<str>>)>,
    /// Queues that have something new to take, for the next sweep to tell.
    woken: Mutex<BTreeSet<Arc<str>>>,
    pub(super) given_up: AtomicU64,
    pub(super) dropped: AtomicU64,
    figures: Mutex<StoreFigures>,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            due: Mutex::new(Due { known: NEVER, noted: NEVER, carried: NEVER, is_asking: false }),
            registered: RwLock::default(),
            woken: Mutex::default(),
            given_up: AtomicU64::default(),
            dropped: AtomicU64::default(),
            figures: Mutex::default(),
        }
    }
}

impl Memory {
    /// When something is due; `None` = nothing is.
    pub(super) fn due_at(&self) -> Option<i64> {
        if !self.woken.lock().is_empty() {
            return Some(i64::MIN);
        }
        let due = self.due.lock();
        let at = due.known.min(due.noted).min(due.carried);
        (at != NEVER).then_some(at)
    }

    /// Something was written that is due then.
    pub(super) fn note_due(&self, at: i64) {
        let mut due = self.due.lock();
        due.noted = due.noted.min(at);
    }

    /// Says that the database is about to be asked; whether that is so, for one at a time does it.
    pub(super) fn begin_asking(&self) -> bool {
        let mut due = self.due.lock();
        if due.is_asking {
            return false;
        }
        due.is_asking = true;
        due.carried = std::mem::replace(&mut due.noted, NEVER);
        true
    }

    /// What the database said; `None` = nothing, because it failed.
    pub(super) fn end_asking(&self, said: Option<Said>) {
        let mut due = self.due.lock();
        due.is_asking = false;
        let carried = std::mem::replace(&mut due.carried, NEVER);
        let Some(Said { due: said, upto, .. }) = said else {
            due.noted = due.noted.min(carried);
            return;
        };
        // What is later is as it was known.
        let later = [due.known, carried].into_iter().filter(|at| *at > upto).min();
        due.known = said.or(later).unwrap_or(NEVER);
    }

    pub(super) fn is_registered(&self, name: &str) -> bool {
        self.registered.read().1.contains(name)
    }

    /// Up to which change clients are known.
    pub(super) fn clients_version(&self) -> i64 {
        self.registered.read().0
    }

    /// Clients who registered or went.
    pub(super) fn note_clients(&self, changes: impl Iterator<Item = (Arc<str>, bool)>, version: Option<i64>) {
        let mut registered = self.registered.write();
        for (name, is_registered) in changes {
            if is_registered {
                registered.1.insert(name);
            } else {
                registered.1.remove(&name);
            }
        }
        registered.0 = registered.0.max(version.unwrap_or(0));
    }

    pub(super) fn woken(&self) -> BTreeSet<Arc<str>> {
        self.woken.lock().clone()
    }

    /// Queues that were told of, and those that are to be.
    pub(super) fn tell(&self, told: &BTreeSet<Arc<str>>, to_tell: BTreeSet<Arc<str>>) {
        let mut woken = self.woken.lock();
        woken.retain(|name| !told.contains(name));
        woken.extend(to_tell);
    }

    pub(super) fn set_figures(&self, figures: StoreFigures) {
        *self.figures.lock() = figures;
    }

    /// Enters what is known.
    pub(super) fn figures(&self, figures: &mut StoreFigures) {
        let known = *self.figures.lock();
        (figures.queues, figures.clients) = (known.queues, known.clients);
        (figures.queue_messages, figures.queue_bytes) = (known.queue_messages, known.queue_bytes);
        figures.queue_dead = self.given_up.load(Ordering::Relaxed);
        figures.queue_dropped = self.dropped.load(Ordering::Relaxed);
    }
}
