//! Where rooms stand, asked by one query for all who wait ([`crate::db::shared`]).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use hubbub_core::RoomId;
use hubbub_core::store::{ReadError, RoomInfo};
use tokio_postgres::types::Type;

use super::tail::Stamp;
use crate::db::Sql;
use crate::db::shared::Question;
use crate::rooms::read::{ROOM_COLUMNS, room_columns, room_info};
use crate::store::Context;

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

/// What is asked for rooms.
pub(super) struct Looks {
    pub(super) context: Arc<Context>,
    /// Queries so far.
    pub(super) count: AtomicU64,
}

impl Question for Looks {
    type Key = RoomId;
    type Value = Arc<Look>;

    const OF: &'static str = "rooms";
    const KEYS_MAX: usize = 512;

    async fn ask(&self, rooms: &[RoomId]) -> Result<HashMap<RoomId, Arc<Look>>, ReadError> {
        self.count.fetch_add(1, Relaxed);
        let names: Vec<&str> = rooms.iter().map(RoomId::as_str).collect();
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
