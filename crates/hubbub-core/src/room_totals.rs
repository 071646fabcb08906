//! The numbers of messages and rooms of a store that several servers write to, for metrics.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use crate::invariant::saturate;

/// Most counts in a row disturbed by local changes; then the count is used all the same.
const COUNTS_MAX: u32 = 3;

/// Messages and rooms, kept without a query: changes by this server count at once, changes by others when the store is counted
/// again.
#[derive(Debug, Default)]
pub struct RoomTotals {
    messages: AtomicI64,
    rooms: AtomicI64,
    /// Number of local changes. A count during which it grows is inexact.
    changes: AtomicU64,
}

impl RoomTotals {
    /// Adds a local change, which is stored.
    pub fn add(&self, messages: i64, rooms: i64) {
        self.messages.fetch_add(messages, Ordering::Relaxed);
        self.rooms.fetch_add(rooms, Ordering::Relaxed);
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Stored messages, and rooms.
    pub fn sums(&self) -> (u64, u64) {
        (saturate(self.messages.load(Ordering::Relaxed)), saturate(self.rooms.load(Ordering::Relaxed)))
    }

    /// Takes over what `count` finds: messages, rooms, and something more, which is returned. It counts again if something
    /// changed here meanwhile, of which nobody knows whether it was counted.
    pub async fn count<T, E, F>(&self, mut count: impl FnMut() -> F) -> Result<T, E>
    where
        F: Future<Output = Result<(i64, i64, T), E>>,
    {
        let mut counts = 0;
        loop {
            let changes = self.changes.load(Ordering::Acquire);
            let before = (self.messages.load(Ordering::Relaxed), self.rooms.load(Ordering::Relaxed));
            let (messages, rooms, more) = count().await?;
            counts += 1;
            let is_disturbed = self.changes.load(Ordering::Acquire) != changes;
            if is_disturbed && counts < COUNTS_MAX {
                continue;
            }
            // What is added from now on is not lost.
            let now = match is_disturbed {
                true => (self.messages.load(Ordering::Relaxed), self.rooms.load(Ordering::Relaxed)),
                false => before,
            };
            self.messages.fetch_add(messages - now.0, Ordering::Relaxed);
            self.rooms.fetch_add(rooms - now.1, Ordering::Relaxed);
            return Ok(more);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// Counts a store that has one message more each time, written here `disturbed` times during a count. Returns the counts
    /// and what is told then.
    fn counted(disturbed: i64) -> (i64, u64) {
        let (totals, mut counts) = (RoomTotals::default(), 0);
        totals.add(10, 1);
        let counting = totals.count(|| {
            let seen = 100 + counts;
            if counts < disturbed {
                totals.add(1, 0);
            }
            counts += 1;
            std::future::ready(Ok::<_, ()>((seen, 2, ())))
        });
        assert_eq!(pin!(counting).poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(Ok(())));
        assert_eq!(totals.sums().1, 2);
        (counts, totals.sums().0)
    }

    #[test]
    fn what_is_written_during_a_count_is_not_lost() {
        assert_eq!(counted(0), (1, 100));
        assert_eq!(counted(1), (2, 101));
        assert_eq!(counted(2), (3, 102));
        assert_eq!(counted(9), (3, 102), "it comes to an end");
    }
}
