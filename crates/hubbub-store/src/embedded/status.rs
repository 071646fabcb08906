//! How the engine is: whether it takes writes, and how long its syncs take.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use hubbub_core::invariant::saturate;
use hubbub_core::store::{ApplyError, HANGING, StoreHealth};
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
    /// Since when writes that needed a further slot have found none, in microseconds of the monotonic clock; 0 = they found one.
    no_slot_since: AtomicU64,
    /// Whether syncs are slow, so that larger batches pay.
    pub(crate) slow_syncs: AtomicBool,
    sync_us_last: AtomicU64,
    sync_us_max: AtomicU64,
    /// When the write of the journal under way began, in microseconds of the monotonic clock; 0 = there is none.
    write_began: AtomicU64,
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
        self.failure().is_some()
    }

    /// Why nothing is written before a restart.
    pub(crate) fn failure(&self) -> Option<String> {
        self.failed.lock().clone()
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

    /// How it is, also while the disk finishes nothing: a write, or what would give writers a slot, which they have been
    /// `without_slot` for.
    pub(crate) fn health_at(&self, now: Duration, without_slot: Option<Duration>) -> StoreHealth {
        let health = self.health();
        if !matches!(health, StoreHealth::Up | StoreHealth::Alarm(_)) {
            return health;
        }
        let writing = self.writing_for(now);
        let reason = match without_slot {
            _ if writing >= HANGING => {
                format!("the disk has not finished a write of the journal for {} s", writing.as_secs())
            }
            Some(waited) if waited >= HANGING => format!(
                "no slot of the journal has become free for {} s: the disk does not finish a seal, or is too slow",
                waited.as_secs()
            ),
            _ => return health,
        };
        StoreHealth::Unreachable(reason)
    }

    fn health(&self) -> StoreHealth {
        let up = || self.damage.alarm().map_or(StoreHealth::Up, StoreHealth::Alarm);
        if !self.troubled.load(Ordering::Acquire) {
            return up();
        }
        if let Some(reason) = &*self.failed.lock() {
            return StoreHealth::Failed(reason.clone());
        }
        self.trouble.lock().clone().unwrap_or_else(up)
    }

    /// Says whether a write found a slot to go on to.
    pub(crate) fn found_slot(&self, found: bool, now: Duration) {
        if found {
            self.no_slot_since.store(0, Ordering::Release);
        } else {
            let _ = self.no_slot_since.compare_exchange(0, micros(now), Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// How long writes have found no slot; `None` if the last one that needed one found it.
    pub(crate) fn without_slot_for(&self, now: Duration) -> Option<Duration> {
        since(&self.no_slot_since, now)
    }

    pub(crate) fn begin_write(&self, now: Duration) {
        self.write_began.store(micros(now), Ordering::Relaxed);
    }

    pub(crate) fn end_write(&self) {
        self.write_began.store(0, Ordering::Relaxed);
    }

    /// How long the write of the journal under way has taken; zero if there is none.
    fn writing_for(&self, now: Duration) -> Duration {
        since(&self.write_began, now).unwrap_or_default()
    }

    pub(crate) fn synced(&self, took: Duration) {
        let micros = saturate(took.as_micros());
        self.sync_us_last.store(micros, Ordering::Relaxed);
        self.sync_us_max.fetch_max(micros, Ordering::Relaxed);
    }

    /// Time of the last and the longest sync in microseconds, for which one under way counts, too.
    pub(crate) fn sync_us(&self, now: Duration) -> (u64, u64) {
        let under_way = saturate(self.writing_for(now).as_micros());
        (self.sync_us_last.load(Ordering::Relaxed), self.sync_us_max.load(Ordering::Relaxed).max(under_way))
    }
}

/// A time for [`since`].
fn micros(now: Duration) -> u64 {
    saturate::<_, u64>(now.as_micros()).max(1)
}

/// How long ago a time was noted; `None` for 0.
fn since(noted: &AtomicU64, now: Duration) -> Option<Duration> {
    let noted = noted.load(Ordering::Acquire);
    (noted != 0).then(|| now.saturating_sub(Duration::from_micros(noted)))
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
    fn a_write_that_hangs_is_told_of_until_it_ends() {
        let (status, second) = (Status::default(), Duration::from_secs(1));
        status.begin_write(second);
        assert_eq!(status.health_at(second * 5, None), StoreHealth::Up);
        let hanging = status.health_at(second * 8, None);
        assert!(
            matches!(&hanging, StoreHealth::Unreachable(reason) if reason.ends_with("for 7 s")),
            "{hanging:?}"
        );
        assert_eq!(status.sync_us(second * 8), (0, 7_000_000));
        assert_eq!(status.refusal(), None, "what waits may still be stored");
        status.end_write();
        assert_eq!(status.health_at(second * 9, Some(second * 4)), StoreHealth::Up);
        let hanging = status.health_at(second * 9, Some(second * 5));
        assert!(
            matches!(&hanging, StoreHealth::Unreachable(reason) if reason.contains("free for 5 s")),
            "{hanging:?}"
        );
    }

    /// Trouble that passes at the moment of a failure does not take the failure back.
    #[test]
    fn a_failure_stays_whatever_else_heals_meanwhile() {
        let all: Vec<Status> = (0..20_000).map(|_| Status::default()).collect();
        let arrived = AtomicU64::new(0);
        // Both at the same one, at the same time as far as the machine permits.
        let meet = |round: usize| {
            arrived.fetch_add(1, Ordering::SeqCst);
            while arrived.load(Ordering::SeqCst) < 2 * (round as u64 + 1) {
                std::thread::yield_now();
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for (round, status) in all.iter().enumerate() {
                    meet(round);
                    status.fail("broken".into());
                }
            });
            for (round, status) in all.iter().enumerate() {
                meet(round);
                status.set_trouble(None);
            }
        });
        let is_failed = |status: &Status| matches!(status.refusal(), Some(ApplyError::Unavailable { .. }));
        assert_eq!(all.iter().filter(|status| !is_failed(status)).count(), 0);
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
