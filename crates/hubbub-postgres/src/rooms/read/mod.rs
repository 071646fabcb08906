//! Reads rooms: lists and single rooms by one statement each, and pages of history ([`history`]).

mod columns;
pub(super) mod history;
mod lists;
mod time_window;

use std::sync::Arc;

use hubbub_core::invariant::saturate;
use hubbub_core::store::{
    Access, HistoryPage, HistoryQuery, Member, Read, RoomHead, RoomInfo, RoomStore, UserRooms,
};
use hubbub_core::{RoomId, UserId};

use crate::store::Postgres;
pub(super) use columns::{
    MESSAGE_COLUMNS, ROOM_COLUMNS, count, message_columns, push, room_columns, room_info,
};

impl RoomStore for Postgres {
    fn epoch(&self) -> Arc<str> {
        self.context.history.epoch.clone()
    }

    fn history(&self, room: RoomId, query: HistoryQuery) -> Read<'_, HistoryPage> {
        Box::pin(async move { history::read(&self.rooms, &self.rooms.primary, &room, &query).await })
    }

    fn room(&self, room: RoomId) -> Read<'_, Option<RoomInfo>> {
        Box::pin(async move { lists::room(&self.rooms, &room).await })
    }

    fn heads(&self, rooms: Vec<RoomId>) -> Read<'_, Vec<RoomHead>> {
        Box::pin(async move { Ok(lists::heads(&self.rooms, &rooms).await?) })
    }

    fn rooms(&self, after: Option<RoomId>, limit: usize) -> Read<'_, Vec<RoomInfo>> {
        Box::pin(async move { Ok(lists::rooms(&self.rooms, after.as_ref(), limit).await?) })
    }

    fn access(&self, room: RoomId, user: UserId) -> Read<'_, Access> {
        Box::pin(async move { lists::access(&self.rooms, &room, &user).await })
    }

    fn members(&self, room: RoomId, after: Option<UserId>, limit: usize) -> Read<'_, Vec<Member>> {
        Box::pin(async move { Ok(lists::members(&self.rooms, &room, after.as_ref(), limit).await?) })
    }

    fn user_rooms(&self, user: UserId, after: Option<RoomId>, limit: usize) -> Read<'_, UserRooms> {
        Box::pin(async move { lists::user_rooms(&self.rooms, &user, after.as_ref(), limit).await })
    }
}

/// A limit of rows as a parameter.
fn limit_of(limit: usize) -> i64 {
    saturate(limit)
}
