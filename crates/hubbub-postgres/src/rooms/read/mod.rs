//! Reading rooms: one statement for what is small, and pages of history in [`history`].

mod history;
mod lists;
mod time;

use std::sync::Arc;

use hubbub_core::store::{
    Access, HistoryPage, HistoryQuery, Member, Read, RoomHead, RoomInfo, RoomStore, UserRooms,
};
use hubbub_core::{RoomId, Timestamp, UserId};
use tokio_postgres::Row;

use crate::db::{Fault, PgTime};
use crate::store::Postgres;

impl RoomStore for Postgres {
    fn epoch(&self) -> Arc<str> {
        self.context.history.epoch.clone()
    }

    fn history(&self, room: RoomId, query: HistoryQuery) -> Read<'_, HistoryPage> {
        Box::pin(async move { history::read(&self.rooms, &room, &query).await })
    }

    fn room(&self, room: RoomId) -> Read<'_, Option<RoomInfo>> {
        Box::pin(async move { Ok(lists::room(&self.rooms, &room).await?) })
    }

    fn heads(&self, rooms: Vec<RoomId>) -> Read<'_, Vec<RoomHead>> {
        Box::pin(async move { Ok(lists::heads(&self.rooms, &rooms).await?) })
    }

    fn rooms(&self, after: Option<RoomId>, limit: usize) -> Read<'_, Vec<RoomInfo>> {
        Box::pin(async move { Ok(lists::rooms(&self.rooms, after.as_ref(), limit).await?) })
    }

    fn access(&self, room: RoomId, user: UserId) -> Read<'_, Access> {
        Box::pin(async move { Ok(lists::access(&self.rooms, &room, &user).await?) })
    }

    fn members(&self, room: RoomId, after: Option<UserId>, limit: usize) -> Read<'_, Vec<Member>> {
        Box::pin(async move { Ok(lists::members(&self.rooms, &room, after.as_ref(), limit).await?) })
    }

    fn user_rooms(&self, user: UserId, after: Option<RoomId>, limit: usize) -> Read<'_, UserRooms> {
        Box::pin(async move { lists::user_rooms(&self.rooms, &user, after.as_ref(), limit).await })
    }
}

/// A number of rows as a parameter.
fn limit_of(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// A number of a message or a count, as a column has it.
fn count(row: &Row, column: usize) -> u64 {
    u64::try_from(row.get::<_, i64>(column)).unwrap_or(0)
}

/// A room from the columns id, head, oldest, messages, last_received_at, title, members_only, retention_s, members.
fn room_info(row: &Row) -> Result<RoomInfo, Fault> {
    let name: &str = row.get(0);
    let room = RoomId::new(name)
        .map_err(|_| Fault::Nonsense { what: "reading a room", found: format!("the name {name:?}") })?;
    Ok(RoomInfo {
        room,
        head: count(row, 1),
        oldest: count(row, 2),
        messages: count(row, 3),
        last_received_at: row.get::<_, Option<PgTime>>(4).map(|time: PgTime| -> Timestamp { time.0 }),
        title: row.get(5),
        members_only: row.get(6),
        retention_s: row.get::<_, Option<i64>>(7).map(i64::unsigned_abs),
        members: count(row, 8),
    })
}
