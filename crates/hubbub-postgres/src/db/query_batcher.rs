//! Batches concurrent reads of the same kind into one query.
//!
//! A query starts after all its calls arrived. So an answer is never older than its call, although many calls cost one round
//! trip.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use hubbub_core::store::ReadError;
use hubbub_core::waiting_calls::{Pushed, WaitingCalls};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// Queries in flight at the same time. Each takes all waiting calls, so few are enough.
const QUERIES_MAX: usize = 2;
/// Calls that may wait.
const WAITING_MAX: usize = 10_000;

/// A query for many keys at once.
pub(crate) trait BatchQuery: Send + Sync + 'static {
    type Key: Clone + Ord + Hash + Send + Sync + 'static;
    type Value: Clone + Send + 'static;

    /// What it reads, for messages: "rooms".
    const SUBJECT: &'static str;
    /// Most keys of one query.
    const KEYS_MAX: usize;

    /// Reads the values of distinct keys. Missing keys are left out.
    fn query(
        &self,
        keys: &[Self::Key],
    ) -> impl Future<Output = Result<HashMap<Self::Key, Self::Value>, ReadError>> + Send;
}

type Answer<Q> = Result<Option<<Q as BatchQuery>::Value>, ReadError>;
type Call<Q> = (<Q as BatchQuery>::Key, oneshot::Sender<Answer<Q>>);

pub(crate) struct QueryBatcher<Q: BatchQuery> {
    query: Q,
    runtime: Handle,
    /// The longest wait for an answer.
    patience: Duration,
    calls: WaitingCalls<Call<Q>>,
}

impl<Q: BatchQuery> QueryBatcher<Q> {
    pub(crate) fn new(query: Q, runtime: Handle, patience: Duration) -> Arc<Self> {
        Arc::new(Self { query, runtime, patience, calls: WaitingCalls::new(WAITING_MAX, QUERIES_MAX) })
    }

    pub(crate) fn batch_query(&self) -> &Q {
        &self.query
    }

    /// Whether calls wait for a query that is to come.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.calls.is_empty()
    }

    /// The value of a key; `None` if there is none.
    pub(crate) async fn get(self: &Arc<Self>, key: Q::Key) -> Answer<Q> {
        let (sender, answer) = oneshot::channel();
        match self.calls.push((key, sender)) {
            Pushed::Waits => {}
            // A task of its own: the caller may go away while others wait for the same query.
            Pushed::StartsTask => self.start_task(),
            Pushed::Refused => {
                return Err(unavailable(format!("too many reads of {} wait already", Q::SUBJECT)));
            }
        }
        match tokio::time::timeout(self.patience, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(unavailable(format!("a read of {} ended early", Q::SUBJECT))),
            Err(_) => Err(unavailable(format!("reading {}: no answer in time", Q::SUBJECT))),
        }
    }

    fn start_task(self: &Arc<Self>) {
        self.runtime.spawn(self.clone().run_queries());
    }

    /// Runs queries as long as calls wait.
    async fn run_queries(self: Arc<Self>) {
        let _right = self.calls.right(|| self.start_task());
        loop {
            let mut calls = self.calls.take(Q::KEYS_MAX);
            if calls.is_empty() {
                return;
            }
            calls.retain(|(_, sender)| !sender.is_closed());
            if calls.is_empty() {
                continue;
            }
            let mut keys: Vec<Q::Key> = calls.iter().map(|(key, _)| key.clone()).collect();
            keys.sort_unstable();
            keys.dedup();
            let found = self.query.query(&keys).await;
            // It may be what is stored of another key: then each is read alone.
            let is_divided = keys.len() > 1 && matches!(found, Err(ReadError::Damaged { .. }));
            for (key, sender) in calls {
                if sender.is_closed() {
                    continue;
                }
                let answer = if is_divided {
                    let found = self.query.query(std::slice::from_ref(&key)).await;
                    found.map(|mut found| found.remove(&key))
                } else {
                    match &found {
                        Ok(found) => Ok(found.get(&key).cloned()),
                        Err(error) => Err(error.clone()),
                    }
                };
                // The caller may have gone.
                let _ = sender.send(answer);
            }
        }
    }
}

fn unavailable(reason: String) -> ReadError {
    ReadError::Unavailable { reason }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use super::*;

    /// Panics so often, then answers; or never does for the key 0.
    struct Panicking(AtomicUsize);

    impl BatchQuery for Panicking {
        type Key = u8;
        type Value = u8;

        const SUBJECT: &'static str = "numbers";
        const KEYS_MAX: usize = 1;

        async fn query(&self, keys: &[u8]) -> Result<HashMap<u8, u8>, ReadError> {
            tokio::task::yield_now().await;
            let panics = self.0.fetch_update(SeqCst, SeqCst, |panics| panics.checked_sub(1)).is_ok();
            assert!(!panics, "a test wants this panic");
            if keys == [0] {
                std::future::pending().await
            }
            Ok(keys.iter().map(|key| (*key, *key)).collect())
        }
    }

    const PATIENCE: Duration = Duration::from_millis(200);

    fn batcher(panics: usize) -> Arc<QueryBatcher<Panicking>> {
        let query = Panicking(AtomicUsize::new(panics));
        QueryBatcher::new(query, Handle::current(), PATIENCE)
    }

    fn is_unavailable(answer: &Result<Option<u8>, ReadError>) -> bool {
        matches!(answer, Err(ReadError::Unavailable { .. }))
    }

    #[tokio::test]
    async fn queries_that_panic_leave_nobody_waiting() {
        let batcher = batcher(QUERIES_MAX + 1);
        // With one key for each query, some wait while the others panic.
        let answers = futures_util::future::join_all((1..=9).map(|key| batcher.get(key))).await;
        assert_eq!(answers.iter().filter(|answer| is_unavailable(answer)).count(), QUERIES_MAX + 1);
        assert!(answers.contains(&Ok(Some(9))), "{answers:?}");
        assert_eq!(batcher.get(7).await, Ok(Some(7)));
        let pushed = [(); QUERIES_MAX].map(|()| batcher.calls.push((7, oneshot::channel().0)));
        assert_eq!(pushed, [Pushed::StartsTask; QUERIES_MAX], "all rights to query were given back");
    }

    #[tokio::test]
    async fn a_query_without_an_answer_is_not_waited_for_without_end() {
        let batcher = batcher(0);
        assert!(is_unavailable(&batcher.get(0).await));
        assert_eq!(batcher.get(1).await, Ok(Some(1)), "there is another right to query");
    }
}
