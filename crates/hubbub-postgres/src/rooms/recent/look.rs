//! Where rooms stand. Reads that wait at the same time are answered by one query, which began after each of them came:
//! so an answer is not older than its question, although many questions cost one round trip.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use hubbub_core::RoomId;
use hubbub_core::store::{ReadError, RoomInfo};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio_postgres::types::Type;

use super::tail::Stamp;
use crate::db::Sql;
use crate::rooms::read::{ROOM_COLUMNS, room_columns, room_info};
use crate::store::Context;

/// Queries under way at the same time. Each takes all that wait, so few are enough.
const QUERIES_MAX: usize = 2;
/// Rooms of one query.
const ROOMS_MAX: usize = 512;
/// Reads that may wait.
const WAITING_MAX: usize = 10_000;

const LOOK: Sql = Sql {
    what: "looking where rooms stand",
    text: concat!(
        "select ",
        room_columns!(),
        ", r.no, r.erased, r.changes from rooms r where r.id = any($1) and not r.deleted"
    ),
    types: &[Type::TEXT_ARRAY],
};

/// A room as it stood a moment ago.
#[derive(Debug)]
pub(in crate::rooms) struct Look {
    pub(in crate::rooms) no: i32,
    pub(in crate::rooms) info: RoomInfo,
    /// Messages from the oldest on that are erased.
    pub(super) erased: i64,
    /// Grows with every change that is not a message.
    pub(super) changes: i64,
}

impl Look {
    pub(super) fn stamp(&self) -> Stamp {
        (self.info.oldest, self.erased)
    }
}

type Answer = Result<Option<Arc<Look>>, ReadError>;

/// The way to ask.
pub(super) struct Looks {
    context: Arc<Context>,
    calls: Mutex<Calls>,
    count: AtomicU64,
}

#[derive(Default)]
struct Calls {
    waiting: VecDeque<(RoomId, oneshot::Sender<Answer>)>,
    queries: usize,
}

impl Looks {
    pub(super) fn new(context: Arc<Context>) -> Self {
        Self { context, calls: Mutex::default(), count: AtomicU64::new(0) }
    }

    /// Queries so far.
    pub(super) fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }

    /// Where a room stands.
    pub(super) async fn get(self: &Arc<Self>, room: RoomId) -> Answer {
        let (sender, answer) = oneshot::channel();
        let is_first = {
            let mut calls = self.calls.lock();
            if calls.waiting.len() >= WAITING_MAX {
                return Err(ReadError::Unavailable { reason: "too many reads of rooms wait already".into() });
            }
            calls.waiting.push_back((room, sender));
            let is_first = calls.queries < QUERIES_MAX;
            calls.queries += usize::from(is_first);
            is_first
        };
        if is_first {
            // A task of its own: whoever called may go away, and others wait for the same query.
            self.context.runtime.spawn(self.clone().query_all());
        }
        answer.await.unwrap_or_else(|_| Err(ReadError::Unavailable { reason: "the store is closing".into() }))
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
                let count = calls.waiting.len().min(ROOMS_MAX);
                calls.waiting.drain(..count).filter(|(_, sender)| !sender.is_closed()).collect()
            };
            if calls.is_empty() {
                continue;
            }
            let found = self.query(&calls).await;
            for (room, sender) in calls {
                let answer = match &found {
                    Ok(found) => Ok(found.get(&room).cloned()),
                    Err(error) => Err(error.clone()),
                };
                // Whoever has gone needs no answer.
                let _ = sender.send(answer);
            }
        }
    }

    async fn query(
        &self,
        calls: &[(RoomId, oneshot::Sender<Answer>)],
    ) -> Result<HashMap<RoomId, Arc<Look>>, ReadError> {
        self.count.fetch_add(1, Relaxed);
        let mut names: Vec<&str> = calls.iter().map(|(room, _)| room.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        let rows = self.context.db.read(&LOOK, &[&names]).await?;
        let mut found = HashMap::with_capacity(rows.len());
        for row in &rows {
            let info = room_info(row)?;
            let [no, erased, changes] = [0, 1, 2].map(|column| ROOM_COLUMNS + column);
            let look = Look { no: row.get(no), erased: row.get(erased), changes: row.get(changes), info };
            found.insert(look.info.room.clone(), Arc::new(look));
        }
        Ok(found)
    }
}
