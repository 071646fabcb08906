//! Caches the access of users to rooms.

use std::sync::Arc;

use hubbub_core::UserId;
use hubbub_core::cache;
use hubbub_core::store::Access;
use quick_cache::UnitWeighter;
use quick_cache::sync::Cache;

use super::room_state::RoomState;
use crate::db::sql::unsigned;
use crate::db::{Result, Sql};
use crate::rooms::read::access_of;
use crate::store::Context;

/// Pairs of room and user in the cache.
const CACHED_MAX: usize = 50_000;

const ACCESS: Sql = Sql {
    what: "looking up a member",
    text: "select r.members_only, m.read_seq, r.changes, r.head, r.deleted from rooms r \
           left join members m on m.room = r.no and m.member = (select no from users where id = $2) \
           where r.no = $1",
};

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

pub(super) struct AccessCache {
    entries: Cache<(i32, Arc<str>), CachedAccess>,
}

impl Default for AccessCache {
    fn default() -> Self {
        let options = cache::options(CACHED_MAX, CACHED_MAX as u64, 1);
        Self { entries: Cache::with_options(options, UnitWeighter, Default::default(), Default::default()) }
    }
}

impl AccessCache {
    pub(super) fn get(&self, state: &RoomState, user: &UserId) -> Option<Access> {
        let cached = self.entries.get(&(state.no, Arc::from(user.as_str())))?;
        cached.holds(state).then_some(cached.access)
    }

    pub(super) async fn load(&self, context: &Context, state: &RoomState, user: &UserId) -> Result<Access> {
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
