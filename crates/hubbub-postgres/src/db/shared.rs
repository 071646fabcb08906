//! One query for all who ask at the same moment. It began after each of them came: so an answer is not older than its
//! question, although many questions cost one round trip.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::Arc;

use hubbub_core::store::ReadError;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// Queries under way at the same time. Each takes all that wait, so few are enough.
const QUERIES_MAX: usize = 2;
/// Calls that may wait.
const WAITING_MAX: usize = 10_000;

/// A question that can be asked for many keys at once.
pub(crate) trait Question: Send + Sync + 'static {
    type Key: Clone + Ord + Hash + Send + Sync + 'static;
    type Value: Clone + Send + 'static;

    /// What is read, for messages: "rooms".
    const OF: &'static str;
    /// Keys of one query.
    const KEYS_MAX: usize;

    /// Asks for keys, each once; what is not there is left out.
    fn ask(
        &self,
        keys: &[Self::Key],
    ) -> impl Future<Output = Result<HashMap<Self::Key, Self::Value>, ReadError>> + Send;
}

type Answer<Q> = Result<Option<<Q as Question>::Value>, ReadError>;
type Call<Q> = (<Q as Question>::Key, oneshot::Sender<Answer<Q>>);

/// Those who ask the same kind of question.
pub(crate) struct Shared<Q: Question> {
    question: Q,
    runtime: Handle,
    calls: Mutex<Calls<Q>>,
}

struct Calls<Q: Question> {
    waiting: VecDeque<Call<Q>>,
    queries: usize,
}

impl<Q: Question> Shared<Q> {
    pub(crate) fn new(question: Q, runtime: Handle) -> Arc<Self> {
        let calls = Mutex::new(Calls { waiting: VecDeque::new(), queries: 0 });
        Arc::new(Self { question, runtime, calls })
    }

    /// The question itself.
    pub(crate) fn question(&self) -> &Q {
        &self.question
    }

    /// The answer for a key; `None` = it is not there.
    pub(crate) async fn get(self: &Arc<Self>, key: Q::Key) -> Answer<Q> {
        let (sender, answer) = oneshot::channel();
        let is_first = {
            let mut calls = self.calls.lock();
            if calls.waiting.len() >= WAITING_MAX {
                let reason = format!("too many reads of {} wait already", Q::OF);
                return Err(ReadError::Unavailable { reason });
            }
            calls.waiting.push_back((key, sender));
            let is_first = calls.queries < QUERIES_MAX;
            calls.queries += usize::from(is_first);
            is_first
        };
        if is_first {
            // A task of its own: whoever called may go away, and others wait for the same query.
            self.runtime.spawn(self.clone().ask_all());
        }
        answer.await.unwrap_or_else(|_| Err(ReadError::Unavailable { reason: "the store is closing".into() }))
    }

    /// Asks as long as somebody waits.
    async fn ask_all(self: Arc<Self>) {
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
            let found = self.question.ask(&keys).await;
            for (key, sender) in calls {
                let answer = match &found {
                    Ok(found) => Ok(found.get(&key).cloned()),
                    Err(error) => Err(error.clone()),
                };
                // Whoever has gone needs no answer.
                let _ = sender.send(answer);
            }
        }
    }
}
