//! Rooms, members, and the rooms of a user.

use std::sync::Arc;

use futures_util::future::try_join_all;
use futures_util::{StreamExt, TryStreamExt, stream};
use hubbub_core::invariant::saturate;
use hubbub_core::store::{
    Access, Cursor, HistoryPage, HistoryQuery, LastMessages, MEMBERSHIPS_MAX, Member, Membership, Read,
    ReadError, RoomHead, RoomInfo, RoomStore, UserRoom, UserRooms,
};
use hubbub_core::{MessageId, RoomId, UserId};

use super::history::history;
use crate::db::{Db, DbError, PAGE_ROWS, Result};
use crate::state::{self, Mark, RoomState};
use crate::store::Scylla;
use crate::write::seq_of;

/// Rooms that are read at the same time.
const AT_ONCE: usize = 32;
/// Most names in one read.
const NAMES: usize = 1_000;

fn damaged(what: &'static str) -> impl Fn(hubbub_core::id::InvalidId) -> DbError {
    move |_| DbError::new(what, "an id that is none")
}

pub(crate) fn room_id(name: &str) -> Result<RoomId> {
    RoomId::new(name).map_err(damaged("reading a room's name"))
}

pub(super) fn user_id(name: &str) -> Result<UserId> {
    UserId::new(name).map_err(damaged("reading a user's name"))
}

/// A room that is there, and a member's mark.
async fn membership(db: &Db, room: &str, user: &str) -> Result<Option<(RoomState, Mark)>> {
    let statement = &db.statements.member;
    let row = db.row::<(Option<RoomState>, i64, i64)>("reading a member", statement, (room, user)).await?;
    let found = row.and_then(|(state, seq, rank)| Some((state?, Mark { seq, rank })));
    Ok(found.filter(|(state, _)| state.present))
}

impl Scylla {
    async fn rooms_behind(&self, after: Option<RoomId>, limit: usize) -> Result<Vec<RoomInfo>> {
        let db = &self.context.db;
        let mut found = Vec::new();
        let mut after = after.map(|room| room.to_string()).unwrap_or_default();
        while found.len() < limit {
            let count = limit.saturating_sub(found.len()).clamp(1, NAMES);
            let pages = self.context.parts().into_iter().map(|part| {
                let values = (part, after.clone(), saturate::<_, i32>(count));
                async move { db.rows::<(String,)>("listing rooms", &db.statements.room_names, values).await }
            });
            let mut names: Vec<String> =
                try_join_all(pages).await?.into_iter().flatten().map(|(name,)| name).collect();
            names.sort_unstable();
            names.truncate(count);
            let Some(last) = names.last() else { break };
            after.clone_from(last);
            let reading = stream::iter(names).map(async |name| {
                let state = state::read_present(db, &name).await?;
                state.map(|state| Ok::<_, DbError>(state.info(room_id(&name)?))).transpose()
            });
            let some: Vec<Option<RoomInfo>> = reading.buffered(AT_ONCE).try_collect().await?;
            found.extend(some.into_iter().flatten());
        }
        Ok(found)
    }

    async fn members_behind(&self, room: &str, after: Option<UserId>, limit: usize) -> Result<Vec<Member>> {
        let db = &self.context.db;
        if state::read_present(db, room).await?.is_none() {
            return Ok(Vec::new());
        }
        let after = after.map(|user| user.to_string()).unwrap_or_default();
        let values = (room, after, saturate::<_, i32>(limit));
        let rows =
            db.stream::<(String, i64, i64)>("reading members", &db.statements.members, values, PAGE_ROWS);
        let members = rows.await?.map(|row| {
            let (name, seq, _) = row?;
            Ok(Member { user: user_id(&name)?, read_seq: seq.unsigned_abs() })
        });
        members.try_collect().await
    }

    async fn rooms_of(
        &self,
        user: UserId,
        after: Option<RoomId>,
        limit: usize,
        last: LastMessages,
    ) -> std::result::Result<UserRooms, ReadError> {
        let db = &self.context.db;
        let after = after.map(|room| room.to_string()).unwrap_or_default();
        let values = (user.as_str(), after);
        let names = db.stream::<(String, i32)>(
            "listing a user's rooms",
            &db.statements.user_rooms,
            values,
            PAGE_ROWS,
        );
        let reading = names.await?.map(|row| {
            let user = user.as_str();
            async move {
                let (name, _) = row?;
                let Some((state, mark)) = membership(db, &name, user).await? else { return Ok(None) };
                let info = state.info(room_id(&name)?);
                let last = (last == LastMessages::Read && state.kept > 0)
                    .then(|| newest_page(db, info.room.clone()));
                let last = match last {
                    Some(last) => Some(last.await?),
                    None => None,
                };
                let unread = state.unread(mark.rank).unsigned_abs();
                Ok::<_, ReadError>(Some((UserRoom { info, read_seq: mark.seq.unsigned_abs(), unread }, last)))
            }
        });
        let mut found = UserRooms::default();
        let mut rooms = reading.buffered(AT_ONCE.min(limit.max(1)));
        while found.rooms.len() < limit {
            let Some(one) = rooms.try_next().await? else { break };
            let Some((room, last)) = one else { continue };
            found.rooms.push(room);
            last.iter().flat_map(|page| page.messages.iter()).for_each(|message| found.last.push(&message));
        }
        Ok(found)
    }

    /// The rooms that the user has something to do with, or had. Each join writes its row anew.
    async fn rooms_listed(&self, user: UserId) -> Result<Option<Vec<Membership>>> {
        let db = &self.context.db;
        let (what, statement) = ("listing memberships", &db.statements.memberships);
        let rows = db.stream::<(String, i64)>(what, statement, (user.as_str(),), PAGE_ROWS).await?;
        let listed = rows.map(|row| {
            let (name, written_at) = row?;
            Ok(Membership { room: room_id(&name)?, version: Some(written_at.unsigned_abs()) })
        });
        let listed: Vec<Membership> = listed.take(MEMBERSHIPS_MAX + 1).try_collect().await?;
        Ok((listed.len() <= MEMBERSHIPS_MAX).then_some(listed))
    }

    /// One read for each room that the user is in, or was in before.
    async fn count_rooms(&self, user: &str, most: usize) -> Result<usize> {
        let db = &self.context.db;
        let (what, statement) = ("counting a user's rooms", &db.statements.user_rooms);
        let names = db.stream::<(String, i32)>(what, statement, (user, ""), PAGE_ROWS).await?;
        let reading = names.map(|row| async move {
            let (name, _) = row?;
            Ok::<_, DbError>(membership(db, &name, user).await?.is_some())
        });
        let mut rooms = reading.buffer_unordered(AT_ONCE.min(most.max(1)));
        let mut count = 0;
        while count < most {
            let Some(is_member) = rooms.try_next().await? else { break };
            count += usize::from(is_member);
        }
        Ok(count)
    }
}

/// The newest message of a room.
async fn newest_page(db: &Db, room: RoomId) -> std::result::Result<HistoryPage, ReadError> {
    let cursor = Cursor::Before(u64::MAX);
    let query = HistoryQuery { cursor, from: None, to: None, limit: 1, bytes_max: usize::MAX };
    match history(db, room, query).await {
        Err(ReadError::UnknownRoom) => Ok(HistoryPage::default()),
        page => page,
    }
}

impl RoomStore for Scylla {
    fn epoch(&self) -> Arc<str> {
        self.context.epoch()
    }

    fn history(&self, room: RoomId, query: HistoryQuery) -> Read<'_, HistoryPage> {
        Box::pin(history(&self.context.db, room, query))
    }

    fn seq_of(&self, room: RoomId, id: MessageId) -> Read<'_, Option<u64>> {
        Box::pin(async move { Ok(seq_of(&self.context, room.as_str(), id.as_str()).await?) })
    }

    fn room(&self, room: RoomId) -> Read<'_, Option<RoomInfo>> {
        Box::pin(async move {
            let state = state::read_present(&self.context.db, room.as_str()).await?;
            Ok(state.map(|state| state.info(room)))
        })
    }

    fn rooms(&self, after: Option<RoomId>, limit: usize) -> Read<'_, Vec<RoomInfo>> {
        Box::pin(async move { Ok(self.rooms_behind(after, limit).await?) })
    }

    fn access(&self, room: RoomId, user: UserId) -> Read<'_, Access> {
        Box::pin(async move {
            let db = &self.context.db;
            if let Some((_, mark)) = membership(db, room.as_str(), user.as_str()).await? {
                return Ok(Access::Member { read_seq: mark.seq.unsigned_abs() });
            }
            Ok(match state::read_present(db, room.as_str()).await? {
                None => Access::Unknown,
                Some(state) if state.members_only => Access::Closed,
                Some(_) => Access::Open,
            })
        })
    }

    fn members(&self, room: RoomId, after: Option<UserId>, limit: usize) -> Read<'_, Vec<Member>> {
        Box::pin(async move { Ok(self.members_behind(room.as_str(), after, limit).await?) })
    }

    fn heads(&self, rooms: Vec<RoomId>) -> Read<'_, Vec<RoomHead>> {
        Box::pin(async move {
            let db = &self.context.db;
            let reading = stream::iter(rooms).map(async |room| {
                let state = state::read_present(db, room.as_str()).await?;
                Ok::<_, DbError>(state.map(|state| RoomHead {
                    room,
                    head: state.head.unsigned_abs(),
                    members_only: state.members_only,
                    changes: state.changes.unsigned_abs(),
                }))
            });
            let heads: Vec<Option<RoomHead>> = reading.buffer_unordered(AT_ONCE).try_collect().await?;
            Ok(heads.into_iter().flatten().collect())
        })
    }

    fn user_rooms(
        &self,
        user: UserId,
        after: Option<RoomId>,
        limit: usize,
        last: LastMessages,
    ) -> Read<'_, UserRooms> {
        Box::pin(self.rooms_of(user, after, limit, last))
    }

    fn user_room_count(&self, user: UserId, most: usize) -> Read<'_, usize> {
        Box::pin(async move { Ok(self.count_rooms(user.as_str(), most).await?) })
    }

    fn memberships(&self, users: Vec<UserId>) -> Read<'_, Vec<Option<Vec<Membership>>>> {
        Box::pin(async move {
            let reading = stream::iter(users).map(|user| self.rooms_listed(user)).buffered(AT_ONCE);
            Ok(reading.try_collect().await?)
        })
    }
}
