//! What this server remembers of queues, and answers without a query: who is registered, when something is due, and which
//! queues have new messages. Each tick compares it with the database.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hubbub_core::store::StoreFigures;
use parking_lot::{Mutex, RwLock};

/// When something is due, as far as is known.
#[derive(Debug)]
struct Due {
    /// What the database answered last.
    known: i64,
    /// The earliest of what was written since then.
    noted: i64,
    /// The same, written before the query that is running.
    carried: i64,
    is_querying: bool,
}

/// The answer of the database to what is due next.
#[derive(Debug, Clone, Copy)]
pub(super) struct NextDue {
    /// When the first of it is, if something is.
    pub(super) due: Option<i64>,
    /// Up to when it was looked for.
    pub(super) upto: i64,
    /// The time that was proven then.
    pub(super) proven: i64,
}

/// Nothing is ever due.
const NEVER: i64 = i64::MAX;

#[derive(Debug, Default)]
pub(super) struct Memory {
    due: Mutex<Due>,
    registered: RwLock<(i64, BTreeSet<Arc<str>>)>,
    /// Queues that have something new to take, for the next sweep to report.
    woken: Mutex<BTreeSet<Arc<str>>>,
    pub(super) given_up: AtomicU64,
    pub(super) dropped: AtomicU64,
    figures: Mutex<StoreFigures>,
}

impl Default for Due {
    fn default() -> Self {
        Self { known: NEVER, noted: NEVER, carried: NEVER, is_querying: false }
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

    /// Records that something was written that is due then.
    pub(super) fn record_due(&self, at: i64) {
        let mut due = self.due.lock();
        due.noted = due.noted.min(at);
    }

    /// Returns false while another query for what is due is running.
    pub(super) fn begin_due_query(&self) -> bool {
        let mut due = self.due.lock();
        if due.is_querying {
            return false;
        }
        due.is_querying = true;
        due.carried = std::mem::replace(&mut due.noted, NEVER);
        true
    }

    /// The answer of the database; `None` if the query failed.
    pub(super) fn end_due_query(&self, found: Option<NextDue>) {
        let mut due = self.due.lock();
        due.is_querying = false;
        let carried = std::mem::replace(&mut due.carried, NEVER);
        let Some(NextDue { due: next, upto, .. }) = found else {
            due.noted = due.noted.min(carried);
            return;
        };
        // What is later is as it was known.
        let later = [due.known, carried].into_iter().filter(|at| *at > upto).min();
        due.known = next.or(later).unwrap_or(NEVER);
    }

    pub(super) fn is_registered(&self, name: &str) -> bool {
        self.registered.read().1.contains(name)
    }

    /// Up to which change clients are known.
    pub(super) fn clients_version(&self) -> i64 {
        self.registered.read().0
    }

    pub(super) fn record_clients(
        &self,
        changes: impl Iterator<Item = (Arc<str>, bool)>,
        version: Option<i64>,
    ) {
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

    /// Removes queues that a sweep reported, and adds those that the next one has to report.
    pub(super) fn record_woken(&self, reported: &BTreeSet<Arc<str>>, new: BTreeSet<Arc<str>>) {
        let mut woken = self.woken.lock();
        woken.retain(|name| !reported.contains(name));
        woken.extend(new);
    }

    pub(super) fn set_figures(&self, figures: StoreFigures) {
        *self.figures.lock() = figures;
    }

    pub(super) fn figures(&self, figures: &mut StoreFigures) {
        let known = *self.figures.lock();
        (figures.queues, figures.clients) = (known.queues, known.clients);
        (figures.queue_messages, figures.queue_bytes) = (known.queue_messages, known.queue_bytes);
        figures.queue_dead = self.given_up.load(Ordering::Relaxed);
        figures.queue_dropped = self.dropped.load(Ordering::Relaxed);
    }
}
