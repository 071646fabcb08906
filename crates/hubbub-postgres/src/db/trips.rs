//! How often the database was asked, how often somebody waited for its answer, and whether everybody got theirs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use super::Fault;

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
    is_spoiled: AtomicBool,
}

impl Asking {
    pub(crate) fn new(trips: Arc<Trips>) -> Self {
        Self { trips, under_way: AtomicUsize::new(0), is_spoiled: AtomicBool::new(false) }
    }

    /// Counts a statement, which is under way until [`UnderWay::end`]. Statements that are sent while another one of
    /// their connection is under way share its round trip.
    pub(crate) fn begin(&self) -> UnderWay<'_> {
        self.trips.statements.fetch_add(1, Relaxed);
        if self.under_way.load(Relaxed) == 0 {
            self.trips.round_trips.fetch_add(1, Relaxed);
        }
        self.begin_uncounted()
    }

    /// The same for what is not counted.
    pub(crate) fn begin_uncounted(&self) -> UnderWay<'_> {
        self.under_way.fetch_add(1, Relaxed);
        UnderWay { asking: self, is_answered: false }
    }

    /// Whether the connection is of no more use: it broke, or nobody waits any more for an answer that may take long.
    pub(crate) fn is_spoiled(&self) -> bool {
        self.is_spoiled.load(Relaxed)
    }
}

/// A statement that is under way. Dropped before its end, it spoils its connection; also where another statement of its
/// transaction failed and nobody cared for the rest, which is rare.
#[derive(Debug)]
pub(crate) struct UnderWay<'a> {
    asking: &'a Asking,
    is_answered: bool,
}

impl UnderWay<'_> {
    /// Notes what was answered.
    pub(crate) fn end<T>(mut self, answered: Result<T, Fault>) -> Result<T, Fault> {
        self.is_answered = !answered.as_ref().is_err_and(Fault::spoils_connection);
        answered
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.asking.under_way.fetch_sub(1, Relaxed);
        if !self.is_answered {
            self.asking.is_spoiled.store(true, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_answered(under_way: UnderWay<'_>) {
        under_way.end(Ok(())).unwrap();
    }

    #[test]
    fn statements_under_way_together_share_a_round_trip() {
        let trips = Arc::new(Trips::default());
        let (one, other) = (Asking::new(trips.clone()), Asking::new(trips.clone()));
        is_answered(one.begin());
        let all = [one.begin(), one.begin(), other.begin()];
        all.into_iter().for_each(is_answered);
        is_answered(one.begin());
        assert_eq!((trips.statements(), trips.round_trips()), (5, 4));
        assert!(!one.is_spoiled() && !other.is_spoiled());
    }

    #[test]
    fn only_an_answer_leaves_a_connection_usable() {
        let trips = Arc::new(Trips::default());
        let asked = |answered: Option<Fault>| {
            let asking = Asking::new(trips.clone());
            let under_way = asking.begin();
            match answered {
                Some(fault) => drop(under_way.end::<()>(Err(fault))),
                None => drop(under_way),
            }
            asking.is_spoiled()
        };
        assert!(asked(None));
        assert!(asked(Some(Fault::Timeout { what: "reading" })));
        assert!(!asked(Some(Fault::Again { what: "entering ids" })));
    }
}
