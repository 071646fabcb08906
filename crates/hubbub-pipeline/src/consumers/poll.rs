//! Polls a shared store for messages that other servers committed: one query for all idle consumers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hubbub_core::queue::WaitFilter;
use hubbub_core::store::{ReadError, Store};

use super::{WaitingConsumers, Wakeup};

const POLL_INTERVAL: Duration = Duration::from_millis(250);
const RETRY_PAUSE: Duration = Duration::from_secs(2);
const FILTERS_MAX: usize = 1_000;
/// Consumers with the same filter that one poll wakes: the store does not say how many messages match.
const WOKEN_PER_FILTER_MAX: usize = 8;

pub(crate) async fn poll_store(consumers: Arc<WaitingConsumers>, store: Arc<dyn Store>) {
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        let idle: Vec<(WaitFilter, Vec<u64>)> = consumers.idle_by_filter().into_iter().collect();
        for chunk in idle.chunks(FILTERS_MAX) {
            if let Err(error) = consumers.wake_matching(chunk, &*store).await {
                let pause = RETRY_PAUSE.as_secs();
                tracing::debug!("polling for waiting consumers failed: {error}; retrying in {pause} s");
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        }
    }
}

impl WaitingConsumers {
    /// The consumers without a wakeup, by filter, in the order of their registration.
    fn idle_by_filter(&self) -> BTreeMap<WaitFilter, Vec<u64>> {
        let mut idle: BTreeMap<WaitFilter, Vec<u64>> = BTreeMap::new();
        if self.is_empty() {
            return idle;
        }
        let state = self.state.lock();
        for (number, consumer) in state.waiting.iter().filter(|(_, consumer)| consumer.wakeup.is_none()) {
            idle.entry(consumer.filter.clone()).or_default().push(*number);
        }
        drop(state);
        idle.values_mut().for_each(|numbers| numbers.sort_unstable());
        idle
    }

    /// Wakes the consumers for whose filter the store has a message.
    async fn wake_matching(
        &self,
        idle: &[(WaitFilter, Vec<u64>)],
        store: &dyn Store,
    ) -> Result<(), ReadError> {
        let filters = idle.iter().map(|(filter, _)| filter.clone()).collect();
        let matching = store.matching_filters(filters).await?;
        let matching = matching.iter().filter_map(|index| idle.get(*index));
        self.wake_idle(matching.flat_map(|(_, numbers)| numbers.iter().take(WOKEN_PER_FILTER_MAX)));
        Ok(())
    }

    /// Wakes those of the consumers that are still registered and idle. These wakeups are not passed on: the next poll
    /// finds the message again.
    fn wake_idle<'a>(&self, numbers: impl Iterator<Item = &'a u64>) {
        let mut state = self.state.lock();
        for number in numbers {
            if state.waiting.get(number).is_some_and(|consumer| consumer.wakeup.is_none()) {
                state.wake(*number, Wakeup::Broadcast);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{register, send, woken};
    use super::*;
    use hubbub_core::queue::Audience;

    #[test]
    fn equal_filters_are_polled_once_and_their_consumers_woken_in_order() {
        let consumers = Arc::new(WaitingConsumers::default());
        let handles =
            register(&consumers, &[("jobs", "a", ""), ("jobs", "b", ""), ("jobs", "a", ""), ("", "a", "x")]);
        let idle = consumers.idle_by_filter();
        assert_eq!(idle.len(), 3);
        let same: Vec<&Vec<u64>> = idle.values().filter(|numbers| numbers.len() == 2).collect();
        consumers.wake_idle(same.iter().flat_map(|numbers| numbers.iter().take(1)));
        assert_eq!(woken(&handles), [0]);
        // A consumer that is woken or gone is neither polled for nor woken again.
        assert_eq!(consumers.idle_by_filter().values().map(Vec::len).sum::<usize>(), 3);
        consumers.wake_idle([1, 99].iter());
        send(&consumers, 5, Audience::Anyone);
        assert_eq!(woken(&handles), [0, 1], "a message wakes the next idle consumer");
        handles[0].begin_attempt();
        handles[0].end_empty_attempt();
        assert_eq!(consumers.idle_by_filter().values().map(Vec::len).sum::<usize>(), 3, "it is idle again");
    }
}
