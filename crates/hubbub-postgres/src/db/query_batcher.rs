//! Batches concurrent reads of the same kind into one query.
//!
//! A query starts after all its calls arrived. So an answer is never older than its call, although many calls cost one round
//! trip.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::Arc;

use hubbub_core::store::ReadError;
use parking_lot::Mutex;
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
    calls: Mutex<Calls<Q>>,
}

struct Calls<Q: BatchQuery> {
    waiting: VecDeque<Call<Q>>,
    queries: usize,
}

impl<Q: BatchQuery> QueryBatcher<Q> {
    pub(crate) fn new(query: Q, runtime: Handle) -> Arc<Self> {
        let calls = Mutex::new(Calls { waiting: VecDeque::new(), queries: 0 });
        Arc::new(Self { query, runtime, calls })
    }

    pub(crate) fn batch_query(&self) -> &Q {
        &self.query
    }

    /// Whether calls wait for a query that is to come.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.calls.lock().waiting.is_empty()
    }

    /// The value of a key; `None` if there is none.
    pub(crate) async fn get(self: &Arc<Self>, key: Q::Key) -> Answer<Q> {
        let (sender, answer) = oneshot::channel();
        let is_first = {
            let mut calls = self.calls.lock();
            if calls.waiting.len() >= WAITING_MAX {
                let reason = format!("too many reads of {} wait already", Q::SUBJECT);
                return Err(ReadError::Unavailable { reason });
            }
            calls.waiting.push_back((key, sender));
            let is_first = calls.queries < QUERIES_MAX;
            calls.queries += usize::from(is_first);
            is_first
        };
        if is_first {
            // A task of its own: the caller may go away while others wait for the same query.
            self.runtime.spawn(self.clone().run_queries());
        }
        answer.await.unwrap_or_else(|_| Err(ReadError::Unavailable { reason: "the store is closing".into() }))
    }

    /// Runs queries as long as calls wait.
    async fn run_queries(self: Arc<Self>) {
        loop {
            let calls: Vec<_> = {
                let mut calls = self.calls.lock();
                if calls.waiting.is_empty() {
                    calls.queries -= 1;
                    return;
                }
                let count = calls.waiting.len().min(Q::KEYS_MAX);
                calls.waiting.drain(..count).filter(|(_, sender)| !sender.is_closed()).collect()
            };
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
