//! Counts statements and round trips, and detects connections that are no longer usable.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use super::{DbError, Result};

/// Counters of all connections since the store was opened. Not counted: preparing statements, and checks of new
/// connections.
#[derive(Debug, Default)]
pub(crate) struct RoundTrips {
    statements: AtomicU64,
    round_trips: AtomicU64,
}

impl RoundTrips {
    pub(crate) fn statements(&self) -> u64 {
        self.statements.load(Relaxed)
    }

    pub(crate) fn round_trips(&self) -> u64 {
        self.round_trips.load(Relaxed)
    }
}

/// The statements in flight on one connection.
#[derive(Debug)]
pub(crate) struct InFlight {
    round_trips: Arc<RoundTrips>,
    count: AtomicUsize,
    is_spoiled: AtomicBool,
}

impl InFlight {
    pub(crate) fn new(round_trips: Arc<RoundTrips>) -> Self {
        Self { round_trips, count: AtomicUsize::new(0), is_spoiled: AtomicBool::new(false) }
    }

    /// Counts a statement, which is in flight until [`InFlightStatement::end`]. Statements in flight together on one
    /// connection share a round trip.
    pub(crate) fn begin(&self) -> InFlightStatement<'_> {
        self.round_trips.statements.fetch_add(1, Relaxed);
        if self.count.load(Relaxed) == 0 {
            self.round_trips.round_trips.fetch_add(1, Relaxed);
        }
        self.begin_uncounted()
    }

    /// The same without counting.
    pub(crate) fn begin_uncounted(&self) -> InFlightStatement<'_> {
        self.count.fetch_add(1, Relaxed);
        InFlightStatement { in_flight: self, is_answered: false }
    }

    /// Whether the connection is unusable: it broke, or an answer is outstanding that nobody waits for.
    pub(crate) fn is_spoiled(&self) -> bool {
        self.is_spoiled.load(Relaxed)
    }
}

/// A statement in flight. If dropped before its end, it makes its connection unusable. That also happens, rarely, if another
/// statement of its transaction fails first.
#[derive(Debug)]
pub(crate) struct InFlightStatement<'a> {
    in_flight: &'a InFlight,
    is_answered: bool,
}

impl InFlightStatement<'_> {
    pub(crate) fn end<T>(mut self, answered: Result<T>) -> Result<T> {
        self.is_answered = !answered.as_ref().is_err_and(DbError::spoils_connection);
        answered
    }
}

impl Drop for InFlightStatement<'_> {
    fn drop(&mut self) {
        self.in_flight.count.fetch_sub(1, Relaxed);
        if !self.is_answered {
            self.in_flight.is_spoiled.store(true, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_answered(statement: InFlightStatement<'_>) {
        statement.end(Ok(())).unwrap();
    }

    #[test]
    fn statements_under_way_together_share_a_round_trip() {
        let round_trips = Arc::new(RoundTrips::default());
        let (one, other) = (InFlight::new(round_trips.clone()), InFlight::new(round_trips.clone()));
        is_answered(one.begin());
        let all = [one.begin(), one.begin(), other.begin()];
        all.into_iter().for_each(is_answered);
        is_answered(one.begin());
        assert_eq!((round_trips.statements(), round_trips.round_trips()), (5, 4));
        assert!(!one.is_spoiled() && !other.is_spoiled());
    }

    #[test]
    fn only_an_answer_leaves_a_connection_usable() {
        let round_trips = Arc::new(RoundTrips::default());
        let is_spoiled_by = |answered: Option<DbError>| {
            let in_flight = InFlight::new(round_trips.clone());
            let statement = in_flight.begin();
            match answered {
                Some(fault) => drop(statement.end::<()>(Err(fault))),
                None => drop(statement),
            }
            in_flight.is_spoiled()
        };
        assert!(is_spoiled_by(None));
        assert!(is_spoiled_by(Some(DbError::Timeout { what: "reading" })));
        assert!(!is_spoiled_by(Some(DbError::Again { what: "entering ids" })));
    }
}
