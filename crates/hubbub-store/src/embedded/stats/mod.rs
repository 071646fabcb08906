//! Statistics and users' histories, from what segments know of their users and from the blocks of the tails.
//!
//! One [`Summary`] counts everything. It takes in the postings of each segment once, and of each tail whatever was
//! published since the last question, so an answer is current and costs what is new. When a tail whose beginning was
//! counted is sealed, the rest of it is counted first, and then its segment stands for it; merges change nothing. What
//! goes away cannot be subtracted: then everything is counted anew beside, from the segments' postings, and answers say
//! meanwhile by their `as_of` that they are of before.
//!
//! Invariants
//! - Every message is counted once: [`State`] knows of each segment whether, and of each tail how far it is counted, and
//!   whoever changes which segments and tails there are holds its lock meanwhile.
//! - Nothing here is on the way of a message; a writer never waits for anything here.
//! - What a user wrote is filtered by what is hidden at the moment of reading.

mod active;
mod answers;
mod audit;
mod history;
mod places;
mod source;
mod state;
mod step;
mod summary;
mod tail;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use hubbub_core::Timestamp;
use hubbub_core::invariant::saturate;
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::error::MaintainError;
use super::shared::Shared;
use super::view::View;
use source::hidden_changes;
use state::State;
use summary::Summary;

#[derive(Debug)]
pub(crate) struct Stats {
    block_seed: u32,
    state: RwLock<State>,
    /// One count from the beginning at a time; when, on the monotonic clock, the next may begin by itself.
    rebuilding: Mutex<std::time::Duration>,
    /// When somebody queried last, in milliseconds of the monotonic clock, plus one; 0 = never.
    queried_ms: AtomicU64,
    /// The last moment at which nothing was counted that was gone.
    right_at: AtomicI64,
}

pub(super) struct Current<'a> {
    state: RwLockReadGuard<'a, State>,
    /// Its segments are those counted; its tails may hold more than is.
    view: Arc<View>,
    as_of: Timestamp,
}

impl Current<'_> {
    fn summary(&self) -> &Summary {
        &self.state.summary
    }
}

impl Stats {
    pub(crate) fn new(block_seed: u32) -> Self {
        Self {
            block_seed,
            state: RwLock::default(),
            rebuilding: Mutex::default(),
            queried_ms: AtomicU64::new(0),
            right_at: AtomicI64::new(i64::MIN),
        }
    }

    /// Holds back answers while segments or tails are exchanged.
    pub(crate) fn exchange(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write()
    }

    /// Nothing that was gone before this time is counted. In the same microsecond something may be deleted still.
    fn were_right_at(&self, time: Timestamp) {
        self.right_at.fetch_max(time.as_micros().saturating_sub(1), Ordering::Relaxed);
    }
}

impl Shared {
    /// The counts, with everything in them that was acknowledged before.
    fn current(&self) -> Result<Current<'_>, MaintainError> {
        let asked = saturate::<_, u64>(self.clock.monotonic().as_millis());
        self.stats.queried_ms.store(asked.saturating_add(1), Ordering::Relaxed);
        let now = self.clock.now();
        let state = self.stats.state.read();
        let view = self.view();
        let state = if state.covers(&view) {
            state
        } else {
            drop(state);
            self.load()?;
            let mut state = self.stats.state.write();
            state.catch_up(self, &self.view())?;
            RwLockWriteGuard::downgrade(state)
        };
        let view = self.view();
        let as_of = self.as_of(&state, now);
        Ok(Current { state, view, as_of })
    }

    /// How current counts are that hold everything acknowledged before `now`.
    fn as_of(&self, state: &State, now: Timestamp) -> Timestamp {
        if state.is_outdated(hidden_changes(self)) {
            return Timestamp::from_micros(self.stats.right_at.load(Ordering::Relaxed));
        }
        self.stats.were_right_at(now);
        now
    }
}
