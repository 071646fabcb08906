//! Wakes background threads when there may be work.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

#[derive(Debug, Default)]
struct State {
    signals: u64,
    stopped: bool,
}

/// A signal that no waiter misses: each says which one it has seen last.
#[derive(Debug, Default)]
pub(crate) struct WakeupSignal {
    state: Mutex<State>,
    changed: Condvar,
    /// The same as `stopped`, to be read often.
    is_stopped: AtomicBool,
}

impl WakeupSignal {
    pub(crate) fn notify(&self) {
        self.state.lock().signals += 1;
        self.changed.notify_all();
    }

    pub(crate) fn stop(&self) {
        self.state.lock().stopped = true;
        self.is_stopped.store(true, Ordering::Relaxed);
        self.changed.notify_all();
    }

    /// Whether work under way is to be given up.
    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    pub(crate) fn last(&self) -> Option<u64> {
        let state = self.state.lock();
        (!state.stopped).then_some(state.signals)
    }

    /// Waits for a signal after `seen`, or a stop, at most for `timeout`.
    pub(crate) fn wait(&self, seen: u64, timeout: Duration) {
        let mut state = self.state.lock();
        self.changed.wait_while_for(&mut state, |state| state.signals == seen && !state.stopped, timeout);
    }
}
