//! Values of single keys. Calls that wait at the same time are answered by one query, which began after each of them
//! came: so an answer is not older than its question, although many questions cost one round trip.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use hubbub_core::kv::KvEntry;
use hubbub_core::store::ReadError;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio_postgres::types::Type;

use super::known::Known;
use super::lists::revision;
use crate::db::{PgTime, Sql};
use crate::store::Context;

/// Queries under way at the same time. Each takes all that wait, so few are enough.
const QUERIES_MAX: usize = 2;
/// Keys of one query, because their values are in memory together.
const KEYS_MAX: usize = 128;
/// Calls that may wait.
const WAITING_MAX: usize = 10_000;

const READ: Sql = Sql {
    what: "reading values of keys",
    text: "select head, k.key, k.value, k.revision, k.expires_at \
           from (select coalesce(max(revision), 0) as head from kv_changes) h left join kv k on k.key = any($1)",
    types: &[Type::BYTEA_ARRAY],
};

type Answer = Result<Option<KvEntry>, ReadError>;

/// The way to values.
pub(super) struct Values {
    context: Arc<Context>,
    known: Arc<Known>,
    calls: Mutex<Calls>,
}

#[derive(Default)]
struct Calls {
    waiting: VecDeque<(Vec<u8>, oneshot::Sender<Answer>)>,
    queries: usize,
}

impl Values {
    pub(super) fn new(context: Arc<Context>, known: Arc<Known>) -> Self {
        Self { context, known, calls: Mutex::default() }
    }

    /// The value of a key.
    pub(super) async fn get(self: &Arc<Self>, key: Vec<u8>) -> Answer {
        let (sender, answer) = oneshot::channel();
        let is_first = {
            let mut calls = self.calls.lock();
            if calls.waiting.len() >= WAITING_MAX {
                return Err(ReadError::Unavailable { reason: "too many reads of keys wait already".into() });
            }
            calls.waiting.push_back((key, sender));
            let is_first = calls.queries < QUERIES_MAX;
            calls.queries += usize::from(is_first);
            is_first
        };
        if is_first {
            // A task of its own: whoever called may go away, and others wait for the same query.
            self.context.runtime.spawn(self.clone().query_all());
        }
        let lost = || ReadError::Unavailable { reason: "the store is closing".into() };
        answer.await.unwrap_or_else(|_| Err(lost()))
    }

    /// Asks as long as somebody waits.
    async fn query_all(self: Arc<Self>) {
        loop {
            let calls: Vec<_> = {
                let mut calls = self.calls.lock();
                if calls.waiting.is_empty() {
                    calls.queries -= 1;
                    return;
                }
                let count = calls.waiting.len().min(KEYS_MAX);
                calls.waiting.drain(..count).filter(|(_, sender)| !sender.is_closed()).collect()
            };
            if calls.is_empty() {
                continue;
            }
            let found = self.query(&calls).await;
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

    async fn query(
        &self,
        calls: &[(Vec<u8>, oneshot::Sender<Answer>)],
    ) -> Result<HashMap<Vec<u8>, KvEntry>, ReadError> {
        let mut keys: Vec<&[u8]> = calls.iter().map(|(key, _)| key.as_slice()).collect();
        keys.sort_unstable();
        keys.dedup();
        let rows = self.context.db.read(&READ, &[&keys]).await?;
        if let Some(row) = rows.first() {
            self.known.saw(revision(row.get(0)));
        }
        let now = self.context.clock.now();
        let mut found = HashMap::with_capacity(rows.len());
        for row in &rows {
            let (Some(key), Some(value)) = (row.get::<_, Option<&[u8]>>(1), row.get::<_, Option<&[u8]>>(2))
            else {
                continue;
            };
            let expires_at = row.get::<_, Option<PgTime>>(4).map(|at| at.0);
            if expires_at.is_none_or(|at| at > now) {
                let entry = KvEntry { value: value.into(), revision: revision(row.get(3)), expires_at };
                found.insert(key.to_vec(), entry);
            }
        }
        Ok(found)
    }
}
