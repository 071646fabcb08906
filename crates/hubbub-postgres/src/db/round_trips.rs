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

/// What a connection may be used for next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Usability {
    Usable,
    /// An answer is outstanding that nobody waits for.
    Unanswered {
        /// Whether a statement was being prepared, which the connection has for the rest of its life, and nobody knows.
        is_last: bool,
    },
    /// It broke, or nobody knows whether a commit was executed, which nobody may cancel.
    Unusable,
}

/// The statements in flight on one connection.
#[derive(Debug)]
pub(crate) struct InFlight {
    round_trips: Arc<RoundTrips>,
    count: AtomicUsize,
    preparing: AtomicUsize,
    is_unanswered: AtomicBool,
    is_committing: AtomicBool,
    is_broken: AtomicBool,
}

impl InFlight {
    pub(crate) fn new(round_trips: Arc<RoundTrips>) -> Self {
        Self {
            round_trips,
            count: AtomicUsize::new(0),
            preparing: AtomicUsize::new(0),
            is_unanswered: AtomicBool::new(false),
            is_committing: AtomicBool::new(false),
            is_broken: AtomicBool::new(false),
        }
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

    /// A statement is being prepared, until [`Self::end_preparing`].
    pub(crate) fn begin_preparing(&self) {
        self.preparing.fetch_add(1, Relaxed);
    }

    pub(crate) fn end_preparing(&self) {
        self.preparing.fetch_sub(1, Relaxed);
    }

    /// A commit of changes is sent, or was answered.
    pub(crate) fn set_committing(&self, is_committing: bool) {
        self.is_committing.store(is_committing, Relaxed);
    }

    pub(crate) fn usability(&self) -> Usability {
        let is_unanswered = self.is_unanswered.load(Relaxed);
        if self.is_broken.load(Relaxed) || is_unanswered && self.is_committing.load(Relaxed) {
            Usability::Unusable
        } else if is_unanswered {
            Usability::Unanswered { is_last: self.preparing.load(Relaxed) > 0 }
        } else {
            Usability::Usable
        }
    }
}

/// A statement in flight. If dropped before its end, its connection is not usable before it is answered. That also happens,
/// rarely, if another statement of its transaction fails first.
#[derive(Debug)]
pub(crate) struct InFlightStatement<'a> {
    in_flight: &'a InFlight,
    is_answered: bool,
}

impl InFlightStatement<'_> {
    pub(crate) fn end<T>(mut self, answered: Result<T>) -> Result<T> {
        self.is_answered = true;
        if answered.as_ref().is_err_and(DbError::spoils_connection) {
            self.in_flight.is_broken.store(true, Relaxed);
        }
        answered
    }
}

impl Drop for InFlightStatement<'_> {
    fn drop(&mut self) {
        self.in_flight.count.fetch_sub(1, Relaxed);
        if !self.is_answered {
            self.in_flight.is_unanswered.store(true, Relaxed);
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
        assert_eq!([one.usability(), other.usability()], [Usability::Usable; 2]);
    }

    #[test]
    fn only_an_answer_leaves_a_connection_usable() {
        let round_trips = Arc::new(RoundTrips::default());
        let after = |answered: Option<DbError>, is_committing| {
            let in_flight = InFlight::new(round_trips.clone());
            in_flight.set_committing(is_committing);
            let statement = in_flight.begin();
            match answered {
                Some(fault) => drop(statement.end::<()>(Err(fault))),
                None => drop(statement),
            }
            in_flight.usability()
        };
        assert_eq!(after(None, false), Usability::Unanswered { is_last: false });
        assert_eq!(after(None, true), Usability::Unusable, "a commit is never canceled");
        assert_eq!(after(Some(DbError::Timeout { what: "reading" }), false), Usability::Unusable);
        assert_eq!(after(Some(DbError::Again { what: "entering ids" }), true), Usability::Usable);
        let in_flight = InFlight::new(round_trips.clone());
        in_flight.begin_preparing();
        in_flight.end_preparing();
        drop(in_flight.begin());
        assert_eq!(in_flight.usability(), Usability::Unanswered { is_last: false });
        in_flight.begin_preparing();
        assert_eq!(in_flight.usability(), Usability::Unanswered { is_last: true });
    }
}
