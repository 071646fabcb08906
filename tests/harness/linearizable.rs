//! Checks that what clients saw of one key can be explained by one order of all operations, in which each takes effect at one
//! moment between its call and its answer (the search of Wing and Gong, with the memory of Lowe).
//!
//! Values are never put twice, so a value stands for its revision. A value that expires may be there or not for
//! operations that can have met it around that time: the clocks of two servers differ a little.

use std::collections::HashSet;
use std::time::Duration;

pub(crate) type Value = u64;

/// What a client asked for, and was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Get(Option<Value>),
    /// With its time to live.
    Put(Value, Option<Duration>),
    PutAbsent(Value, Told),
    /// Only in place of the second value.
    PutIf(Value, Value, Told),
    Delete(Told),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    Done,
    /// The condition does not hold; there is nothing to delete.
    Refused,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Event {
    pub(crate) action: Action,
    /// When it was called, since any moment.
    pub(crate) begin: Duration,
    /// When it was answered; `None` = it may have been done at any time since, or never.
    pub(crate) end: Option<Duration>,
}

/// Difference of the clocks by which values expire.
const SLACK: Duration = Duration::from_millis(500);

/// The value, and from when until when it may expire.
type State = Option<(Value, Option<(Duration, Duration)>)>;

impl Event {
    /// The state after it; `None` = it cannot have been answered so.
    fn after(&self, state: State) -> Option<State> {
        let end = self.end.unwrap_or(Duration::MAX);
        let may_be_there = state.filter(|(_, expiry)| expiry.is_none_or(|(_, last)| self.begin < last));
        let may_be_absent = state.is_none_or(|(_, expiry)| expiry.is_some_and(|(first, _)| end > first));
        let there = may_be_there.map(|(value, _)| value);
        let put = |value| Some(Some((value, None)));
        match self.action {
            Action::Get(None) => may_be_absent.then_some(state),
            Action::Get(found) => (there == found).then_some(state),
            Action::Put(value, None) => put(value),
            Action::Put(value, Some(ttl)) => {
                let first = (self.begin + ttl).saturating_sub(SLACK);
                Some(Some((value, Some((first, end.saturating_add(ttl + SLACK))))))
            }
            Action::PutAbsent(value, Told::Done) => may_be_absent.then(|| put(value)).flatten(),
            Action::PutAbsent(_, Told::Refused) => there.is_some().then_some(state),
            Action::PutIf(value, wanted, Told::Done) => (there == Some(wanted)).then(|| put(value)).flatten(),
            Action::PutIf(_, wanted, Told::Refused) => {
                (may_be_absent || there.is_some_and(|there| there != wanted)).then_some(state)
            }
            Action::Delete(Told::Done) => there.is_some().then_some(None),
            Action::Delete(Told::Refused) => may_be_absent.then_some(state),
        }
    }
}

/// Operations in the order of their calls, and which of them are placed in the order that is looked for.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Placed {
    /// All before this one.
    first: usize,
    /// And these, in ascending order.
    further: Vec<usize>,
    state: State,
}

impl Placed {
    fn has(&self, index: usize) -> bool {
        index < self.first || self.further.binary_search(&index).is_ok()
    }

    fn with(&self, index: usize, state: State) -> Self {
        let mut further = self.further.clone();
        further.insert(further.partition_point(|placed| *placed < index), index);
        let joined = further.iter().zip(self.first..).take_while(|(placed, next)| *placed == next).count();
        further.drain(..joined);
        Self { first: self.first + joined, further, state }
    }
}

/// The operations up to the first that no order explains, for messages; nothing if there is an order. The key is absent at
/// first.
pub(crate) fn unexplained(mut events: Vec<Event>) -> Option<Vec<Event>> {
    events.sort_by_key(|event| event.begin);
    let start = Placed { first: 0, further: Vec::new(), state: None };
    let (mut tried, mut left, mut furthest) = (HashSet::from([start.clone()]), vec![start], 0);
    while let Some(placed) = left.pop() {
        let open = || (placed.first..events.len()).filter(|index| !placed.has(*index));
        if open().all(|index| events[index].end.is_none()) {
            return None;
        }
        furthest = furthest.max(placed.first);
        // Whatever was called after another one was answered is placed behind it; what was called later still has no
        // earlier end.
        let mut first_end = Duration::MAX;
        let next = open().take_while(|index| {
            let event = &events[*index];
            let is_next = event.begin <= first_end;
            first_end = first_end.min(event.end.unwrap_or(Duration::MAX));
            is_next
        });
        // What was called first is tried first.
        for index in next.collect::<Vec<_>>().into_iter().rev() {
            if let Some(state) = events[index].after(placed.state) {
                let placed = placed.with(index, state);
                if tried.insert(placed.clone()) {
                    left.push(placed);
                }
            }
        }
    }
    events.truncate(furthest + 1);
    Some(events.split_off(furthest.saturating_sub(12)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use Action::*;
    use Told::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn is_explained(events: &[(Action, u64, u64)]) -> bool {
        let event = |(action, begin, end): &(Action, u64, u64)| Event {
            action: *action,
            begin: ms(*begin),
            end: (*end > 0).then_some(ms(*end)),
        };
        unexplained(events.iter().map(event).collect()).is_none()
    }

    #[test]
    fn what_one_order_explains_is_accepted() {
        assert!(is_explained(&[]));
        // Concurrent: in either order.
        for seen in [1, 2] {
            assert!(is_explained(&[(Put(1, None), 0, 9), (Put(2, None), 0, 9), (Get(Some(seen)), 10, 11)]));
        }
        assert!(is_explained(&[(Put(1, None), 0, 1), (Get(None), 0, 9), (Get(Some(1)), 2, 3)]));
        assert!(is_explained(&[(PutAbsent(1, Done), 0, 9), (PutAbsent(2, Refused), 0, 9)]));
        assert!(is_explained(&[
            (Put(1, None), 0, 1),
            (PutIf(2, 1, Done), 2, 3),
            (PutIf(3, 1, Refused), 2, 3)
        ]));
        // Nobody knows whether it was done: it was, between the two; or never.
        assert!(is_explained(&[(Put(1, None), 0, 0), (Get(None), 1, 2), (Get(Some(1)), 3, 4)]));
        assert!(is_explained(&[(Put(1, None), 0, 0), (Get(None), 1, 2)]));
        // It ran out.
        assert!(is_explained(&[
            (Put(1, Some(ms(9_000))), 0, 1),
            (Get(Some(1)), 5, 6),
            (Get(None), 9_900, 9_901)
        ]));
    }

    #[test]
    fn what_no_order_explains_is_found() {
        let old = [(Put(1, None), 0, 1), (Put(2, None), 2, 3), (Get(Some(1)), 4, 5)];
        assert!(!is_explained(&old), "older than what was told");
        let back = [(Put(1, None), 0, 1), (Put(2, None), 2, 90), (Get(Some(2)), 4, 5), (Get(Some(1)), 6, 7)];
        assert!(!is_explained(&back), "older than what another one saw");
        assert!(!is_explained(&[(Get(Some(1)), 0, 1), (Put(1, None), 2, 3)]), "from the future");
        assert!(
            !is_explained(&[(Put(1, None), 0, 1), (Delete(Done), 2, 3), (Get(Some(1)), 4, 5)]),
            "deleted"
        );
        assert!(!is_explained(&[(PutAbsent(1, Done), 0, 9), (PutAbsent(2, Done), 0, 9)]), "both first");
        let twice = [(Put(1, None), 0, 1), (PutIf(2, 1, Done), 2, 9), (PutIf(3, 1, Done), 2, 9)];
        assert!(!is_explained(&twice), "replaced twice");
        let seen = [(Put(1, None), 0, 0), (Get(Some(1)), 1, 2), (Get(None), 3, 4)];
        assert!(!is_explained(&seen), "done, and undone");
        let ran_out = [(Put(1, Some(ms(9_000))), 0, 1), (Get(Some(1)), 9_900, 9_901)];
        assert!(!is_explained(&ran_out), "it ran out");
        assert!(!is_explained(&[(Put(1, Some(ms(9_000))), 0, 1), (Get(None), 5, 6)]), "it has not run out");
    }
}
