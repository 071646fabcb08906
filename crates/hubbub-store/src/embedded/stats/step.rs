//! Counting in the background, so that a question finds little to do.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::source::{add_segment, hidden_changes};
use super::summary::Summary;
use crate::embedded::error::MaintainError;
use crate::embedded::shared::Shared;
use crate::embedded::tail::Tail;

/// How long after a question tails are kept counted.
const WARM_FOR: Duration = Duration::from_secs(60);

/// Counting anew by itself takes at most one part in so many of the time.
const REBUILD_SHARE: u32 = 10;

impl Shared {
    pub(super) fn load(&self) -> Result<(), MaintainError> {
        if self.stats.state.read().is_loaded {
            return Ok(());
        }
        let mut next = self.stats.rebuilding.lock();
        // Somebody else may have done it meanwhile.
        if self.stats.state.read().is_loaded { Ok(()) } else { self.rebuild(&mut next) }
    }

    /// Counts all segments beside the present counts, then takes the place of those.
    fn rebuild(&self, next: &mut Duration) -> Result<(), MaintainError> {
        let (begin, now) = (self.clock.monotonic(), self.clock.now());
        // Before looking, so that what is hidden meanwhile makes another count necessary.
        let hidden = hidden_changes(self);
        let view = {
            let mut state = self.stats.state.write();
            state.replaced = Some(Vec::new());
            self.view()
        };
        let mut summary = Summary::default();
        let counted = view.segments.iter().try_for_each(|segment| add_segment(self, segment, &mut summary));
        let old = {
            let mut state = self.stats.state.write();
            match counted {
                Ok(()) => state.end_rebuild(summary, &view, hidden),
                Err(error) => {
                    state.replaced = None;
                    return Err(error);
                }
            }
        };
        // Behind the lock: it may take a while.
        drop(old);
        self.stats.were_right_at(now);
        let end = self.clock.monotonic();
        *next = end + end.saturating_sub(begin) * (REBUILD_SHARE - 1);
        Ok(())
    }

    /// Does the most urgent piece of counting: all segments from the beginning if something is gone, else new ones,
    /// else the tails if somebody queried lately. Nothing before the first question, so that a server nobody asks pays
    /// nothing. Says whether there was something that took long.
    pub(crate) fn count_some(&self) -> Result<bool, MaintainError> {
        let (is_loaded, is_outdated) = {
            let state = self.stats.state.read();
            (state.is_loaded, state.is_outdated(hidden_changes(self)))
        };
        if !is_loaded {
            return Ok(false);
        }
        if is_outdated
            && let Some(mut next) = self.stats.rebuilding.try_lock()
            && self.clock.monotonic() >= *next
        {
            self.rebuild(&mut next)?;
            return Ok(true);
        }
        let mut state = self.stats.state.write();
        if state.catch_up_segments(self, &self.view())? {
            return Ok(true);
        }
        if self.was_queried_lately() {
            state.catch_up(self, &self.view())?;
        }
        Ok(false)
    }

    /// Counts from the beginning if something is counted that is gone.
    pub(super) fn recount_if_outdated(&self) -> Result<(), MaintainError> {
        let mut next = self.stats.rebuilding.lock();
        let is_outdated = self.stats.state.read().is_outdated(hidden_changes(self));
        if is_outdated { self.rebuild(&mut next) } else { Ok(()) }
    }

    /// Counts the rest of a tail that is about to be replaced by its segment.
    pub(crate) fn finish_tail(&self, tail: &Tail) {
        if let Err(error) = self.stats.exchange().finish_tail(self, tail) {
            // What was counted is forgotten, and will be counted anew.
            self.status.damage.note(&error);
            tracing::warn!("counting a full slot failed: {error}");
        }
    }

    fn was_queried_lately(&self) -> bool {
        let asked = self.stats.queried_ms.load(Ordering::Relaxed);
        asked > 0 && self.clock.monotonic() < Duration::from_millis(asked) + WARM_FOR
    }
}
