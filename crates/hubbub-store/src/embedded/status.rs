//! How the engine is: whether it takes writes, and how long its syncs take.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use hubbub_core::invariant::saturate;
use hubbub_core::store::{ApplyError, StoreHealth};
use parking_lot::Mutex;

use crate::embedded::damage::Damage;

/// Facts that one thread writes and others read.
#[derive(Debug, Default)]
pub(crate) struct Status {
    /// The first failed write or sync of the journal; none heals.
    failed: Mutex<Option<String>>,
    /// Why writes are refused until it passes.
    trouble: Mutex<Option<StoreHealth>>,
    /// Whether one of the two is set, so that the usual case takes no lock.
    troubled: AtomicBool,
    pub(crate) damage: Damage,
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
    /// The status of an engine whose journals up to this one are in segments.
    pub(crate) fn sealed(through: u64) -> Self {
        Self { sealed_through: through.into(), ..Self::default() }
    }

    pub(crate) fn fail(&self, reason: String) {
        let mut failed = self.failed.lock();
        failed.get_or_insert(reason);
        self.troubled.store(true, Ordering::Release);
    }

    pub(crate) fn is_failed(&self) -> bool {
        self.failed.lock().is_some()
    }

    /// Says what stands in the way of writes for now, or with `None` that nothing does any more.
    pub(crate) fn set_trouble(&self, trouble: Option<StoreHealth>) {
        // Held throughout, so that a failure that happens meanwhile is not taken for none.
        let failed = self.failed.lock();
        let any = trouble.is_some();
        *self.trouble.lock() = trouble;
        self.troubled.store(any || failed.is_some(), Ordering::Release);
    }

    pub(crate) fn refusal(&self) -> Option<ApplyError> {
        match self.health() {
            StoreHealth::Up | StoreHealth::Alarm(_) => None,
            StoreHealth::DiskFull(reason) => Some(ApplyError::DiskFull { reason }),
            StoreHealth::Failed(reason) | StoreHealth::Unreachable(reason) => {
                Some(ApplyError::Unavailable { reason })
            }
        }
    }

    pub(crate) fn health(&self) -> StoreHealth {
        let up = || self.damage.alarm().map_or(StoreHealth::Up, StoreHealth::Alarm);
        if !self.troubled.load(Ordering::Acquire) {
            return up();
        }
        if let Some(reason) = &*self.failed.lock() {
            return StoreHealth::Failed(reason.clone());
        }
        self.trouble.lock().clone().unwrap_or_else(up)
    }

    pub(crate) fn synced(&self, took: Duration) {
        let micros = saturate(took.as_micros());
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
            *oldest = saturate(took.as_micros());
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
        status.set_trouble(Some(StoreHealth::DiskFull("no space".into())));
        assert!(matches!(status.refusal(), Some(ApplyError::DiskFull { .. })));
        status.set_trouble(None);
        assert_eq!(status.health(), StoreHealth::Up);
        status.fail("broken".into());
        status.set_trouble(None);
        assert!(matches!(status.refusal(), Some(ApplyError::Unavailable { .. })));
    }
}
