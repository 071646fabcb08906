//! How the engine is: whether it takes writes, and how long its syncs take.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use hubbub_core::store::{ApplyError, StoreHealth};
use parking_lot::Mutex;

/// Facts that one thread writes and others read.
#[derive(Debug, Default)]
pub(crate) struct Status {
    /// The first failed write or sync of the journal; none heals.
    failed: Mutex<Option<String>>,
    /// What could not be done for lack of space.
    disk_full: Mutex<Option<String>>,
    /// Whether one of the two is set, so that the usual case takes no lock.
    troubled: AtomicBool,
    /// Journals up to this one are in segments that the view holds.
    pub(crate) sealed_through: AtomicU64,
    /// Ids that the filter holds, those of dropped messages included.
    pub(crate) filter_ids: AtomicU64,
    /// Bytes of journal a second of sealing takes; 0 = not known yet.
    pub(crate) seal_bytes_per_s: AtomicU64,
    /// Whether syncs are slow, so that larger batches pay.
    pub(crate) slow_syncs: AtomicBool,
    sync_us_last: AtomicU64,
    sync_us_max: AtomicU64,
}

impl Status {
    /// Stops writing until restart.
    pub(crate) fn fail(&self, reason: String) {
        self.failed.lock().get_or_insert(reason);
        self.troubled.store(true, Ordering::Release);
    }

    /// Says that space is missing, or with `None` that it came back.
    pub(crate) fn set_disk_full(&self, reason: Option<String>) {
        let full = reason.is_some();
        *self.disk_full.lock() = reason;
        if full {
            self.troubled.store(true, Ordering::Release);
        } else if self.failed.lock().is_none() {
            self.troubled.store(false, Ordering::Release);
        }
    }

    /// Why writes are refused, if they are.
    pub(crate) fn refusal(&self) -> Option<ApplyError> {
        match self.health() {
            StoreHealth::Up => None,
            StoreHealth::DiskFull(reason) => Some(ApplyError::DiskFull { reason }),
            StoreHealth::Failed(reason) => Some(ApplyError::Unavailable { reason }),
        }
    }

    /// Whether writes are taken.
    pub(crate) fn health(&self) -> StoreHealth {
        if !self.troubled.load(Ordering::Acquire) {
            return StoreHealth::Up;
        }
        if let Some(reason) = &*self.failed.lock() {
            return StoreHealth::Failed(reason.clone());
        }
        self.disk_full.lock().clone().map_or(StoreHealth::Up, StoreHealth::DiskFull)
    }

    /// Notes how long a sync took.
    pub(crate) fn synced(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.sync_us_last.store(micros, Ordering::Relaxed);
        self.sync_us_max.fetch_max(micros, Ordering::Relaxed);
    }

    /// Time of the last and the longest sync, in microseconds.
    pub(crate) fn sync_us(&self) -> (u64, u64) {
        (self.sync_us_last.load(Ordering::Relaxed), self.sync_us_max.load(Ordering::Relaxed))
    }
}

/// Syncs remembered to tell slow disks from single slow syncs.
const REMEMBERED: usize = 15;

/// Above this median, syncs are slow; below the other one they are not any more.
const SLOW_US: u64 = 500;
const FAST_US: u64 = 350;

/// The last few sync times.
#[derive(Debug, Default)]
pub(crate) struct SyncTimes {
    micros: [u64; REMEMBERED],
    seen: usize,
    slow: bool,
}

impl SyncTimes {
    /// Notes one more and says whether syncs are slow: by the median, so that a single one changes nothing.
    pub(crate) fn add(&mut self, took: Duration) -> bool {
        let place = self.seen % REMEMBERED;
        if let Some(oldest) = self.micros.get_mut(place) {
            *oldest = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        }
        self.seen += 1;
        if place + 1 == REMEMBERED {
            let mut sorted = self.micros;
            sorted.sort_unstable();
            let median = sorted.get(REMEMBERED / 2).copied().unwrap_or(0);
            self.slow = if self.slow { median > FAST_US } else { median > SLOW_US };
        }
        self.slow
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_syncs_are_told_by_their_median() {
        let mut times = SyncTimes::default();
        let mut add = |micros: u64, count: usize| {
            (0..count).fold(false, |_, _| times.add(Duration::from_micros(micros)))
        };
        assert!(!add(30, 15));
        assert!(!add(90_000, 1));
        assert!(!add(30, 14), "one slow sync changes nothing");
        assert!(add(2_000, 15));
        assert!(add(400, 15), "it takes more than a little to go back");
        assert!(!add(300, 15));
    }

    #[test]
    fn a_full_disk_heals_and_a_failed_write_does_not() {
        let status = Status::default();
        assert_eq!(status.refusal(), None);
        status.set_disk_full(Some("no space".into()));
        assert!(matches!(status.refusal(), Some(ApplyError::DiskFull { .. })));
        status.set_disk_full(None);
        assert_eq!(status.health(), StoreHealth::Up);
        status.fail("broken".into());
        status.set_disk_full(None);
        assert!(matches!(status.refusal(), Some(ApplyError::Unavailable { .. })));
    }
}
