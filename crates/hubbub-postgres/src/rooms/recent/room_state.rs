//! Reads the current state of rooms, by one query for all waiting calls ([`crate::db::query_batcher`]).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use hubbub_core::RoomId;
use hubbub_core::store::{ReadError, RoomInfo};

use super::newest::VisibilityVersion;
use crate::db::Sql;
use crate::db::query_batcher::BatchQuery;
use crate::rooms::read::{ROOM_COLUMNS, room_columns, room_info};
use crate::rooms::versions::newest_version;
use crate::store::Context;

const ROOM_STATES: Sql = Sql {
    what: "reading the state of rooms",
    text: concat! {
        "select ", room_columns!(),
        ", r.no, r.erased, r.changes from unnest($1) as wanted (id) cross join lateral (",
        newest_version!("*", "id", "wanted.id"), ") r where r.id = wanted.id and not r.deleted"
    },
};

/// A room at the moment of the query.
#[derive(Debug)]
pub(in crate::rooms) struct RoomState {
    pub(in crate::rooms) no: i32,
    pub(in crate::rooms) info: RoomInfo,
    /// Erased messages after the oldest.
    pub(super) erased: i64,
    /// Number of changes other than messages.
    pub(super) changes: i64,
}

impl RoomState {
    pub(super) fn version(&self) -> VisibilityVersion {
        (self.info.oldest, self.erased)
    }
}

pub(super) struct RoomStateQuery {
    pub(super) context: Arc<Context>,
    pub(super) count: AtomicU64,
}

impl BatchQuery for RoomStateQuery {
    type Key = RoomId;
    type Value = Arc<RoomState>;

    const SUBJECT: &'static str = "rooms";
    const KEYS_MAX: usize = 512;

    async fn query(&self, rooms: &[RoomId]) -> Result<HashMap<RoomId, Arc<RoomState>>, ReadError> {
        self.count.fetch_add(1, Relaxed);
        let names: Vec<&str> = rooms.iter().map(RoomId::as_str).collect();
        let rows = self.context.db.read(&ROOM_STATES, &[&names]).await?;
        let mut found = HashMap::with_capacity(rows.len());
        for row in &rows {
            let info = room_info(row)?;
            let [no, erased, changes] = [0, 1, 2].map(|column| ROOM_COLUMNS + column);
            let state =
                RoomState { no: row.get(no), erased: row.get(erased), changes: row.get(changes), info };
            found.insert(state.info.room.clone(), Arc::new(state));
        }
        Ok(found)
    }
}
