//! What is read again and again, in memory: the newest messages of active rooms, and how users stand to rooms.
//!
//! Other servers write to the same rooms, so nothing in here is believed by itself. Every read first asks where its room
//! stands, together with all others that ask at that moment ([`look`]): one small query for many. What is remembered and
//! stands there, or further, is the answer; of what does not, the missing end is fetched. Messages that this server
//! stores are added without fetching them.
//!
//! [`tail`]: the end of a room, and pages of it. [`load`]: fetching it.

mod access;
mod load;
pub(super) mod look;
mod tail;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use hubbub_core::cache;
use hubbub_core::store::{Access, CacheFigures, Cursor, HistoryPage, HistoryQuery, ReadError};
use hubbub_core::{Message, RoomId, UserId};
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use tokio::sync::Mutex;

use super::names::Names;
use crate::db::Fault;
use crate::db::shared::Shared;
use crate::store::Context;
use access::Accesses;
use look::{Look, Looks};
pub(super) use tail::Stamp;
use tail::{KEPT_MAX, Tail};

/// Ends that are fetched at the same time, at most: a room is fetched once, however many wait for it.
const LOADS_MAX: usize = 64;

/// Rooms expected in memory.
const ROOMS_EXPECTED: usize = 1_000;

/// Largest end of a room that is kept in any case: it has one message at least, however long that is.
const LARGEST_BYTES: u64 = 1024 * 1024;

#[derive(Clone)]
struct Bytes;

impl Weighter<i32, Arc<Tail>> for Bytes {
    fn weight(&self, _room: &i32, tail: &Arc<Tail>) -> u64 {
        tail.bytes()
    }
}

/// What is remembered.
pub(super) struct Recent {
    context: Arc<Context>,
    looks: Arc<Shared<Looks>>,
    tails: Cache<i32, Arc<Tail>, Bytes>,
    loads: Vec<Mutex<()>>,
    accesses: Accesses,
    hits: AtomicU64,
    misses: AtomicU64,
}

impl Recent {
    /// Of so many bytes.
    pub(super) fn new(context: &Arc<Context>, bytes: usize) -> Self {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let options = cache::options(ROOMS_EXPECTED, bytes, LARGEST_BYTES);
        let looks = Looks { context: context.clone(), count: AtomicU64::new(0) };
        Self {
            context: context.clone(),
            looks: Shared::new(looks, context.runtime.clone()),
            tails: Cache::with_options(options, Bytes, Default::default(), Default::default()),
            loads: (0..LOADS_MAX).map(|_| Mutex::default()).collect(),
            accesses: Accesses::default(),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    /// Where a room stands; `None` when there is none of that name.
    pub(super) async fn look(&self, room: &RoomId) -> Result<Option<Arc<Look>>, ReadError> {
        self.looks.get(room.clone()).await
    }

    /// A page near the end of a room; `None` when it is not, and is to be read elsewhere.
    pub(super) async fn page(
        &self,
        users: &Names,
        look: &Look,
        query: &HistoryQuery,
    ) -> Result<Option<HistoryPage>, Fault> {
        let Some(wanted) = wanted(look, query) else { return Ok(None) };
        if let Some(page) = self.remembered(look, query) {
            self.hits.fetch_add(1, Relaxed);
            return Ok(Some(page));
        }
        let load = usize::try_from(look.no).ok().and_then(|no| self.loads.get(no % LOADS_MAX));
        let _loading = match load {
            Some(load) => Some(load.lock().await),
            None => None,
        };
        // Another may have fetched it meanwhile.
        if let Some(page) = self.remembered(look, query) {
            self.hits.fetch_add(1, Relaxed);
            return Ok(Some(page));
        }
        self.misses.fetch_add(1, Relaxed);
        let before = self.tails.get(&look.no);
        let tail = load::load(&self.context, users, look, before.as_deref(), wanted).await?;
        let page = tail.page(query);
        self.tails.insert(look.no, Arc::new(tail));
        Ok(page)
    }

    fn remembered(&self, look: &Look, query: &HistoryQuery) -> Option<HistoryPage> {
        let tail = self.tails.get(&look.no)?;
        if tail.is_as_new_as(look.stamp(), look.info.head) { tail.page(query) } else { None }
    }

    /// How a user stands to a room.
    pub(super) async fn access(&self, look: &Look, user: &UserId) -> Result<Access, Fault> {
        if let Some(access) = self.accesses.get(look, user) {
            self.hits.fetch_add(1, Relaxed);
            return Ok(access);
        }
        self.misses.fetch_add(1, Relaxed);
        self.accesses.load(&self.context, look, user).await
    }

    /// Adds messages that were stored, where the ends of their rooms are remembered.
    pub(super) fn stored<'a>(&self, messages: impl Iterator<Item = (i32, Stamp, Message<'a>)>) {
        if self.tails.is_empty() {
            return;
        }
        let mut rooms: HashMap<i32, Option<(Stamp, Vec<Message<'a>>)>> = HashMap::new();
        for (room, stamp, message) in messages {
            let found = rooms
                .entry(room)
                .or_insert_with(|| Some((stamp, Vec::new())).filter(|_| self.tails.contains_key(&room)));
            if let Some((_, messages)) = found {
                messages.push(message);
            }
        }
        for (room, messages) in rooms {
            let (Some((stamp, messages)), Some(tail)) = (messages, self.tails.peek(&room)) else { continue };
            match tail.is_read().then(|| tail.extended(stamp, &messages)).flatten() {
                Some(tail) => self.tails.insert(room, Arc::new(tail)),
                None => drop(self.tails.remove(&room)),
            }
        }
    }

    pub(super) fn figures(&self) -> CacheFigures {
        CacheFigures {
            hits: self.hits.load(Relaxed),
            misses: self.misses.load(Relaxed),
            questions: self.looks.question().count.load(Relaxed),
            bytes: self.tails.weight(),
        }
    }
}

/// How many of a room's last messages a query needs to know; `None` when it asks for what is far from the end, or for
/// times.
fn wanted(look: &Look, query: &HistoryQuery) -> Option<usize> {
    if query.from.is_some() || query.to.is_some() {
        return None;
    }
    let behind = |seq: u64| usize::try_from(look.info.head.saturating_sub(seq)).ok();
    let wanted = match query.cursor {
        Cursor::After(after) => behind(after)?,
        Cursor::Before(before) => behind(before.saturating_sub(1))?.checked_add(query.limit)?,
    };
    (wanted <= KEPT_MAX).then_some(wanted)
}
