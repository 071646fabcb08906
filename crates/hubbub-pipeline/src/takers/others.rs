//! Calling those for whom other servers stored something: one question for all who wait, now and then.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hubbub_core::queue::{Freed, Wants};
use hubbub_core::store::Store;

use super::{Call, Takers};

/// Time between two questions.
const ASK_EVERY: Duration = Duration::from_millis(250);
/// The same while the store does not answer.
const ASK_AGAIN: Duration = Duration::from_secs(2);
/// Wants in one question.
const WANTS_MAX: usize = 1_000;
/// Those who are called when there is something for all of them, and nobody knows how much.
const CALLED_MAX: usize = 8;

/// Asks until it is stopped.
pub(crate) async fn follow(takers: Arc<Takers>, store: Arc<dyn Store>) {
    loop {
        tokio::time::sleep(ASK_EVERY).await;
        let waiting: Vec<(Wants, Vec<u64>)> = takers.uncalled().into_iter().collect();
        for some in waiting.chunks(WANTS_MAX) {
            let wants = some.iter().map(|(wants, _)| wants.clone()).collect();
            match store.found_for(wants).await {
                Ok(found) => {
                    let found = found.iter().filter_map(|place| some.get(*place));
                    takers.call_found(found.flat_map(|(_, numbers)| numbers.iter().take(CALLED_MAX)));
                }
                Err(error) => {
                    tracing::debug!(%error, "the store was asked in vain for those who wait");
                    tokio::time::sleep(ASK_AGAIN).await;
                }
            }
        }
    }
}

impl Takers {
    /// Those who are not called, by what they want, first come first.
    fn uncalled(&self) -> BTreeMap<Wants, Vec<u64>> {
        let mut uncalled: BTreeMap<Wants, Vec<u64>> = BTreeMap::new();
        if self.is_empty() {
            return uncalled;
        }
        let state = self.state.lock();
        for (number, waiting) in state.waiting.iter().filter(|(_, waiting)| waiting.call.is_none()) {
            uncalled.entry(waiting.wants.clone()).or_default().push(*number);
        }
        drop(state);
        uncalled.values_mut().for_each(|numbers| numbers.sort_unstable());
        uncalled
    }

    /// Calls those who are still there and were not called meanwhile. Nothing is passed on: the store is asked again.
    fn call_found<'a>(&self, numbers: impl Iterator<Item = &'a u64>) {
        let mut state = self.state.lock();
        for number in numbers {
            if state.waiting.get(number).is_some_and(|waiting| waiting.call.is_none()) {
                let message = Freed { queue: "".into(), id: 0, sender: "".into(), receiver: None };
                state.call(*number, Call { message, is_for_all: true });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{called, line_up, send};
    use super::*;
    use hubbub_core::queue::Audience;

    #[test]
    fn those_who_want_the_same_are_asked_for_once_and_called_in_their_order() {
        let takers = Arc::new(Takers::default());
        let places =
            line_up(&takers, &[("jobs", "a", ""), ("jobs", "b", ""), ("jobs", "a", ""), ("", "a", "x")]);
        let uncalled = takers.uncalled();
        assert_eq!(uncalled.len(), 3);
        let same: Vec<&Vec<u64>> = uncalled.values().filter(|numbers| numbers.len() == 2).collect();
        takers.call_found(same.iter().flat_map(|numbers| numbers.iter().take(1)));
        assert_eq!(called(&places), [0]);
        // Whoever is called or gone is neither asked for nor called again.
        assert_eq!(takers.uncalled().values().map(Vec::len).sum::<usize>(), 3);
        takers.call_found([1, 99].iter());
        send(&takers, 5, Audience::Anyone);
        assert_eq!(called(&places), [0, 1], "a message finds the next in line");
        places[0].begin();
        places[0].found_nothing();
        assert_eq!(takers.uncalled().values().map(Vec::len).sum::<usize>(), 3, "it waits again");
    }
}
