//! Caches the newest messages of active rooms, and the access of users to rooms.
//!
//! Other servers write to the same rooms, so nothing cached is used unchecked. Every read first queries the state of its
//! room, together with all other reads at that moment ([`room_state`]): one small query for many. What is cached and as new
//! as that state is the answer; otherwise the missing messages are loaded ([`load`]). Messages stored by this server are
//! added without loading them.

mod load;
mod newest;
pub(super) mod room_state;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use hubbub_core::cache;
use hubbub_core::invariant::saturate;
use hubbub_core::store::{Access, CacheFigures, Cursor, HistoryPage, HistoryQuery, ReadError};
use hubbub_core::{Message, RoomId, UserId};
use quick_cache::sync::Cache;
use quick_cache::{UnitWeighter, Weighter};
use tokio::sync::Mutex;

use super::names::Names;
use crate::db::query_batcher::QueryBatcher;
use crate::db::sql::unsigned;
use crate::db::{Result, Sql};
use crate::rooms::read::access_of;
use crate::rooms::versions::newest_version;
use crate::store::Context;
pub(super) use newest::VisibilityVersion;
use newest::{MESSAGES_MAX, NewestMessages};
use room_state::{RoomState, RoomStateQuery};

/// Most loads at the same time. A room is loaded once, however many reads wait for it.
const LOADS_MAX: usize = 64;

/// Pairs of room and user in the cache.
const ACCESS_MAX: usize = 50_000;

const ACCESS: Sql = Sql {
    what: "looking up a member",
    text: concat!(
        "select r.members_only, m.read_seq, r.changes, r.head, r.deleted from (",
        newest_version!("*", "no", "$1"),
        ") r left join members m on m.room = r.no and m.member = (select no from users where id = $2) \
         where r.no = $1"
    ),
};

/// Rooms expected in memory.
const ROOMS_EXPECTED: usize = 1_000;

/// The largest cache entry: one message at least, however long it is.
const LARGEST_BYTES: u64 = 1024 * 1024;

#[derive(Clone)]
struct Bytes;

impl Weighter<i32, Arc<NewestMessages>> for Bytes {
    fn weight(&self, _room: &i32, newest: &Arc<NewestMessages>) -> u64 {
        newest.bytes()
    }
}

pub(super) struct RecentCache {
    context: Arc<Context>,
    room_states: Arc<QueryBatcher<RoomStateQuery>>,
    newest: Cache<i32, Arc<NewestMessages>, Bytes>,
    loads: Vec<Mutex<()>>,
    access_cache: AccessCache,
    hits: AtomicU64,
    misses: AtomicU64,
}

impl RecentCache {
    pub(super) fn new(context: &Arc<Context>, bytes: usize) -> Self {
        let bytes: u64 = saturate(bytes);
        let options = cache::options(ROOMS_EXPECTED, bytes, LARGEST_BYTES);
        let room_states = RoomStateQuery { context: context.clone(), count: AtomicU64::new(0) };
        Self {
            context: context.clone(),
            room_states: QueryBatcher::new(room_states, context.runtime.clone(), context.db.patience()),
            newest: Cache::with_options(options, Bytes, Default::default(), Default::default()),
            loads: (0..LOADS_MAX).map(|_| Mutex::default()).collect(),
            access_cache: AccessCache::default(),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    /// The current state of a room; `None` if there is no such room.
    pub(super) async fn room_state(&self, room: &RoomId) -> Result<Option<Arc<RoomState>>, ReadError> {
        self.room_states.get(room.clone()).await
    }

    /// A page near the head of a room; `None` if it must be read from the database.
    pub(super) async fn page(
        &self,
        users: &Names,
        state: &RoomState,
        query: &HistoryQuery,
    ) -> Result<Option<HistoryPage>> {
        let Some(wanted) = wanted(state, query) else { return Ok(None) };
        if let Some(page) = self.cached_page(state, query) {
            self.hits.fetch_add(1, Relaxed);
            return Ok(Some(page));
        }
        let load = usize::try_from(state.no).ok().and_then(|no| self.loads.get(no % LOADS_MAX));
        let _loading = match load {
            Some(load) => Some(load.lock().await),
            None => None,
        };
        // Another read may have loaded it meanwhile.
        if let Some(page) = self.cached_page(state, query) {
            self.hits.fetch_add(1, Relaxed);
            return Ok(Some(page));
        }
        self.misses.fetch_add(1, Relaxed);
        let before = self.newest.get(&state.no);
        let newest = load::load(&self.context, users, state, before.as_deref(), wanted).await?;
        let page = newest.page(query);
        self.newest.insert(state.no, Arc::new(newest));
        Ok(page)
    }

    fn cached_page(&self, state: &RoomState, query: &HistoryQuery) -> Option<HistoryPage> {
        let newest = self.newest.get(&state.no)?;
        if newest.is_as_new_as(state.version(), state.info.head) { newest.page(query) } else { None }
    }

    pub(super) async fn access(&self, state: &RoomState, user: &UserId) -> Result<Access> {
        if let Some(access) = self.access_cache.get(state, user) {
            self.hits.fetch_add(1, Relaxed);
            return Ok(access);
        }
        self.misses.fetch_add(1, Relaxed);
        self.access_cache.load(&self.context, state, user).await
    }

    /// Adds stored messages to the rooms that are cached.
    pub(super) fn stored<'a>(&self, messages: impl Iterator<Item = (i32, VisibilityVersion, Message<'a>)>) {
        if self.newest.is_empty() {
            return;
        }
        let mut rooms: HashMap<i32, Option<(VisibilityVersion, Vec<Message<'a>>)>> = HashMap::new();
        for (room, version, message) in messages {
            let found = rooms
                .entry(room)
                .or_insert_with(|| Some((version, Vec::new())).filter(|_| self.newest.contains_key(&room)));
            if let Some((_, messages)) = found {
                messages.push(message);
            }
        }
        for (room, messages) in rooms {
            let (Some((version, messages)), Some(newest)) = (messages, self.newest.peek(&room)) else {
                continue;
            };
            match newest.is_read().then(|| newest.extended(version, &messages)).flatten() {
                Some(newest) => self.newest.insert(room, Arc::new(newest)),
                None => drop(self.newest.remove(&room)),
            }
        }
    }

    pub(super) fn figures(&self) -> CacheFigures {
        CacheFigures {
            hits: self.hits.load(Relaxed),
            misses: self.misses.load(Relaxed),
            validations: self.room_states.batch_query().count.load(Relaxed),
            bytes: self.newest.weight(),
        }
    }
}

/// The access of a user to a room, and the state of the room at that time.
#[derive(Debug, Clone)]
struct CachedAccess {
    access: Access,
    changes: i64,
    head: u64,
}

impl CachedAccess {
    /// Whether it is as new as `state`, or newer. Without a change of the room, a read mark moves only with a message of its
    /// member, and only from the head.
    fn holds(&self, state: &RoomState) -> bool {
        let is_at_head = matches!(self.access, Access::Member { read_seq } if read_seq >= self.head);
        self.changes > state.changes
            || self.changes == state.changes && (self.head >= state.info.head || !is_at_head)
    }
}

struct AccessCache {
    entries: Cache<(i32, Arc<str>), CachedAccess>,
}

impl Default for AccessCache {
    fn default() -> Self {
        let options = cache::options(ACCESS_MAX, ACCESS_MAX as u64, 1);
        Self { entries: Cache::with_options(options, UnitWeighter, Default::default(), Default::default()) }
    }
}

impl AccessCache {
    fn get(&self, state: &RoomState, user: &UserId) -> Option<Access> {
        let cached = self.entries.get(&(state.no, Arc::from(user.as_str())))?;
        cached.holds(state).then_some(cached.access)
    }

    async fn load(&self, context: &Context, state: &RoomState, user: &UserId) -> Result<Access> {
        let row = context.db.read_one(&ACCESS, &[&state.no, &user.as_str()]).await?;
        if row.get(4) {
            return Ok(Access::Unknown);
        }
        let access = access_of(&row)?;
        let head = unsigned(&row, 3, ACCESS.what)?;
        let cached = CachedAccess { access, changes: row.get(2), head };
        self.entries.insert((state.no, Arc::from(user.as_str())), cached);
        Ok(access)
    }
}

/// How many of a room's newest messages a query needs; `None` for pages far from the head, and for time windows.
fn wanted(state: &RoomState, query: &HistoryQuery) -> Option<usize> {
    if query.from.is_some() || query.to.is_some() {
        return None;
    }
    let distance = |seq: u64| usize::try_from(state.info.head.saturating_sub(seq)).ok();
    let wanted = match query.cursor {
        Cursor::After(after) => distance(after)?,
        Cursor::Before(before) => distance(before.saturating_sub(1))?.checked_add(query.limit)?,
    };
    (wanted <= MESSAGES_MAX).then_some(wanted)
}
