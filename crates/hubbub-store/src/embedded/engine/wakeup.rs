//! Wakes background threads when there may be work.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

#[derive(Debug, Default)]
struct State {
    rings: u64,
    stopped: bool,
}

/// A bell that is not missed: whoever waits says which ring it has heard last.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    state: Mutex<State>,
    rung: Condvar,
    /// The same as `stopped`, to be asked often.
    is_stopped: AtomicBool,
}

impl Bell {
    /// There may be work.
    pub(crate) fn ring(&self) {
        self.state.lock().rings += 1;
        self.rung.notify_all();
    }

    /// There will be no more work.
    pub(crate) fn stop(&self) {
        self.state.lock().stopped = true;
        self.is_stopped.store(true, Ordering::Relaxed);
        self.rung.notify_all();
    }

    /// Whether work under way is to be given up.
    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// The last ring, `None` once stopped.
    pub(crate) fn heard(&self) -> Option<u64> {
        let state = self.state.lock();
        (!state.stopped).then_some(state.rings)
    }

    /// Waits for a ring after `heard`, or a stop, at most for `timeout`.
    pub(crate) fn wait(&self, heard: u64, timeout: Duration) {
        let mut state = self.state.lock();
        self.rung.wait_while_for(&mut state, |state| state.rings == heard && !state.stopped, timeout);
    }
}
