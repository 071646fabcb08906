//! How users stand to rooms.

use std::sync::Arc;

use hubbub_core::UserId;
use hubbub_core::cache;
use hubbub_core::store::Access;
use quick_cache::UnitWeighter;
use quick_cache::sync::Cache;
use tokio_postgres::types::Type;

use super::look::Look;
use crate::db::{Fault, Sql};
use crate::store::Context;

/// Users of rooms remembered.
const KNOWN_MAX: usize = 50_000;

const ACCESS: Sql = Sql {
    what: "looking up a member",
    text: "select r.members_only, m.read_seq, r.changes, r.head, r.deleted from rooms r \
           left join members m on m.room = r.no and m.member = (select no from users where id = $2) \
           where r.no = $1",
    types: &[Type::INT4, Type::TEXT],
};

/// How a user stood to a room, and how the room stood then.
#[derive(Debug, Clone)]
struct Known {
    access: Access,
    changes: i64,
    head: u64,
}

impl Known {
    /// Whether it is still so, or was so later. Without any change a read mark moves by a message of its member only, and
    /// only from the head.
    fn holds(&self, look: &Look) -> bool {
        let is_at_head = matches!(self.access, Access::Member { read_seq } if read_seq >= self.head);
        self.changes > look.changes
            || self.changes == look.changes && (self.head >= look.info.head || !is_at_head)
    }
}

/// Those remembered, by room and user.
pub(super) struct Accesses {
    known: Cache<(i32, Arc<str>), Known>,
}

impl Default for Accesses {
    fn default() -> Self {
        let options = cache::options(KNOWN_MAX, KNOWN_MAX as u64, 1);
        Self { known: Cache::with_options(options, UnitWeighter, Default::default(), Default::default()) }
    }
}

impl Accesses {
    pub(super) fn get(&self, look: &Look, user: &UserId) -> Option<Access> {
        let known = self.known.get(&(look.no, Arc::from(user.as_str())))?;
        known.holds(look).then_some(known.access)
    }

    pub(super) async fn load(&self, context: &Context, look: &Look, user: &UserId) -> Result<Access, Fault> {
        let row = context.db.read_one(&ACCESS, &[&look.no, &user.as_str()]).await?;
        if row.get(4) {
            return Ok(Access::Unknown);
        }
        let access = match row.get::<_, Option<i64>>(1) {
            Some(read_seq) => Access::Member { read_seq: read_seq.unsigned_abs() },
            None if row.get(0) => Access::Closed,
            None => Access::Open,
        };
        let head = row.get::<_, i64>(3).unsigned_abs();
        let known = Known { access, changes: row.get(2), head };
        self.known.insert((look.no, Arc::from(user.as_str())), known);
        Ok(access)
    }
}
