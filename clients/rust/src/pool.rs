//! Connections kept for later requests, as long as they may still be open.

use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;

/// Most connections kept.
const IDLE_MAX: usize = 8;
/// Longest rest of one that is used again. Boxes on the way forget a connection that rests for long, and say nothing: a request
/// over it has no answer.
const REST_MAX: Duration = Duration::from_secs(30);

/// By two clocks: one may stand still while the machine sleeps, the other may be set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    steady: Instant,
    wall: SystemTime,
}

impl Moment {
    pub(crate) fn now() -> Self {
        Self { steady: Instant::now(), wall: SystemTime::now() }
    }

    fn is_long_before(&self, now: Self) -> bool {
        // A clock that was set back says nothing: better a connection too many.
        let wall = now.wall.duration_since(self.wall).unwrap_or(Duration::MAX);
        now.steady.saturating_duration_since(self.steady).max(wall) > REST_MAX
    }
}

/// Connections that no request uses, each with the end of its last one, the newest last.
pub(crate) struct Pool<T>(Mutex<Vec<(T, Moment)>>);

impl<T> Default for Pool<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Pool<T> {
    /// The one used last, if it does not rest for long.
    pub(crate) fn take(&self, now: Moment) -> Option<T> {
        let mut idle = self.0.lock();
        idle.retain(|(_, since)| !since.is_long_before(now));
        idle.pop().map(|(connection, _)| connection)
    }

    /// Keeps one, unless there are enough.
    pub(crate) fn keep(&self, connection: T, now: Moment) {
        let mut idle = self.0.lock();
        idle.retain(|(_, since)| !since.is_long_before(now));
        if idle.len() < IDLE_MAX {
            idle.push((connection, now));
        }
    }

    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_rests_for_long_by_either_clock_is_not_used() {
        let now = Moment::now();
        let (short, long) = (REST_MAX, REST_MAX + Duration::from_secs(1));
        for (steady, wall, is_used) in [(short, short, true), (long, short, false), (short, long, false)] {
            let pool = Pool::default();
            pool.keep("one", now);
            let later = Moment { steady: now.steady + steady, wall: now.wall + wall };
            assert_eq!(pool.take(later).is_some(), is_used, "{steady:?} {wall:?}");
        }
        let pool = Pool::default();
        pool.keep("one", now);
        assert!(pool.take(Moment { wall: now.wall - short, ..now }).is_none(), "the clock was set back");
    }

    #[test]
    fn so_many_are_kept_and_old_ones_make_place() {
        let (pool, now) = (Pool::default(), Moment::now());
        (0..20).for_each(|number| pool.keep(number, now));
        assert_eq!(pool.take(now), Some(IDLE_MAX - 1));
        let later = Moment { steady: now.steady + 2 * REST_MAX, ..now };
        pool.keep(30, later);
        assert_eq!((pool.take(later), pool.take(later)), (Some(30), None));
    }
}
