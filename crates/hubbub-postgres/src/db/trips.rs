//! How often the database was asked, and how often somebody waited for its answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Counts since the store was opened, of all connections. Preparing a statement, once for each connection, and what a
/// new connection is asked first are not counted.
#[derive(Debug, Default)]
pub(crate) struct Trips {
    statements: AtomicU64,
    round_trips: AtomicU64,
}

impl Trips {
    pub(crate) fn statements(&self) -> u64 {
        self.statements.load(Relaxed)
    }

    pub(crate) fn round_trips(&self) -> u64 {
        self.round_trips.load(Relaxed)
    }
}

/// What one connection has under way.
#[derive(Debug)]
pub(crate) struct Asking {
    trips: Arc<Trips>,
    under_way: AtomicUsize,
}

impl Asking {
    pub(crate) fn new(trips: Arc<Trips>) -> Self {
        Self { trips, under_way: AtomicUsize::new(0) }
    }

    /// Counts a statement, which is under way until the answer is dropped. Statements that are sent while another one of
    /// their connection is under way share its round trip.
    pub(crate) fn begin(&self) -> UnderWay<'_> {
        self.trips.statements.fetch_add(1, Relaxed);
        if self.under_way.fetch_add(1, Relaxed) == 0 {
            self.trips.round_trips.fetch_add(1, Relaxed);
        }
        UnderWay(self)
    }
}

/// A statement that is under way.
#[derive(Debug)]
pub(crate) struct UnderWay<'a>(&'a Asking);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_under_way_together_share_a_round_trip() {
        let trips = Arc::new(Trips::default());
        let (one, other) = (Asking::new(trips.clone()), Asking::new(trips.clone()));
        drop(one.begin());
        {
            let (_ids, _messages) = (one.begin(), one.begin());
            let _elsewhere = other.begin();
        }
        drop(one.begin());
        assert_eq!((trips.statements(), trips.round_trips()), (5, 4));
    }
}
