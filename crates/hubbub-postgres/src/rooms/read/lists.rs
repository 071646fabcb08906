//! Reads single rooms, and lists of rooms, members, and the rooms of a user, by one statement each.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;

use hubbub_core::invariant::saturate;
use hubbub_core::store::{
    Access, Cursor, HistoryPage, HistoryQuery, LastMessages, MEMBERSHIPS_MAX, Member, Membership, Read,
    ReadError, RemoteChanges, RoomHead, RoomInfo, RoomStore, UserRoom, UserRooms,
};
use hubbub_core::{MessageId, RoomId, UserId};
use tokio_postgres::Row;

use super::columns::{
    ROOM_COLUMNS, access_of, count, message_columns, not_erased, push, room_columns, room_info,
};
use super::{history, limit_of};
use crate::db::{DbError, Result, Sql, column, statements};
use crate::rooms::versions::newest_version;
use crate::rooms::{Rooms, seq_of};
use crate::store::Postgres;

/// The rooms of a user, with what else is wanted of each.
macro_rules! rooms_of_user {
    ($columns:expr, $from:expr) => {
        concat!(
            "select ", room_columns!(),
            ", mine.read_seq, case when r.erased = 0 then 0 else (select count(*) from erased e \
                   where e.room = r.no and e.seq > greatest(mine.read_seq, r.oldest - 1)) end",
            $columns,
            " from members mine join users u on u.no = mine.member join rooms r on r.no = mine.room and not r.deleted ",
            $from,
            " where u.id = $1 and r.id > $2 order by r.id limit $3"
        )
    };
}

statements! {
    ROOM("reading a room") =
        concat!("select ", room_columns!(), " from (", newest_version!("*", "id", "$1"),
            ") r where r.id = $1 and not r.deleted");

    HEADS("reading the heads of rooms") = concat!(
        "select r.id, head, members_only, changes - marks from unnest($1) as wanted (id) cross join lateral (",
        newest_version!("*", "id", "wanted.id"),
        ") r where r.id = wanted.id and not r.deleted"
    );

    ROOMS("listing rooms") = concat!(
        "select ", room_columns!(), " from rooms r where r.id > $1 and not r.deleted order by r.id limit $2"
    );

    ACCESS("looking up a member") = concat!(
        "select r.members_only, m.read_seq from (",
        newest_version!("*", "id", "$1"),
        ") r left join members m on m.room = r.no and m.member = (select no from users where id = $2) \
         where r.id = $1 and not r.deleted"
    );

    MEMBERS("listing members") =
        concat!("select u.id, m.read_seq from (", newest_version!("*", "id", "$1"),
            ") r join members m on m.room = r.no join users u on u.no = m.member \
             where r.id = $1 and not r.deleted and u.id > $2 order by u.id limit $3");

    USER_ROOM_COUNT("counting a user's rooms") =
        "select count(*) from (select from members mine join users u on u.no = mine.member \
             join rooms r on r.no = mine.room and not r.deleted where u.id = $1 limit $2) counted";

    /// One search of the index for each user, however many there are.
    MEMBERSHIPS("listing memberships") =
        "select u.id, (select array_agg(mine.room) from \
         (select room from members where member = u.no limit $2) as mine) from users u where u.id = any($1)";

    /// The newest message of a room is nearly always the one at its head, and its partition follows from the room.
    USER_ROOMS_AND_LAST("listing a user's rooms with their last messages") = rooms_of_user!(
        concat!(", ", message_columns!("last")),
        concat!("left join lateral (select * from messages m where m.room = r.no and m.seq = r.head \
             and m.received_at = r.last_received_at and r.oldest <= r.head \
             and ", not_erased!("r.no", "r.head"), " limit 1) last on true")
    );

    USER_ROOMS("listing a user's rooms") = rooms_of_user!("", "");
}

/// Columns of [`USER_ROOMS_AND_LAST`] before those of the message.
const MESSAGE_AT: usize = ROOM_COLUMNS + 2;

impl RoomStore for Postgres {
    fn epoch(&self) -> Arc<str> {
        self.context.history.epoch.clone()
    }

    fn history(&self, room: RoomId, query: HistoryQuery) -> Read<'_, HistoryPage> {
        Box::pin(async move { history::read(&self.rooms, &self.rooms.primary, &room, &query).await })
    }

    fn seq_of(&self, room: RoomId, id: MessageId) -> Read<'_, Option<u64>> {
        Box::pin(async move { Ok(seq_of(&self.context.db, room.as_str(), id.as_str()).await?) })
    }

    fn room(&self, room: RoomId) -> Read<'_, Option<RoomInfo>> {
        Box::pin(async move {
            if let Some(recent) = &self.rooms.recent {
                return Ok(recent.room_state(&room).await?.map(|state| state.info.clone()));
            }
            let rows = self.context.db.read(&ROOM, &[&room.as_str()]).await?;
            Ok(rows.first().map(room_info).transpose()?)
        })
    }

    fn heads(&self, rooms: Vec<RoomId>) -> Read<'_, Vec<RoomHead>> {
        Box::pin(async move {
            let rows = self.context.db.read(&HEADS, &[&column(&rooms, RoomId::as_str)]).await?;
            let rooms: HashMap<&str, &RoomId> = rooms.iter().map(|room| (room.as_str(), room)).collect();
            let heads = rows.iter().filter_map(|row| Some((row, *rooms.get(row.get::<_, &str>(0))?)));
            Ok(heads.map(|(row, room)| room_head(row, room)).collect::<Result<_, _>>()?)
        })
    }

    fn remote_changes(&self) -> Pin<Box<dyn Future<Output = RemoteChanges> + Send + '_>> {
        Box::pin(async move {
            let Some(numbers) = self.context.notifications.changed().await else { return RemoteChanges::Any };
            match self.rooms.room_names.names(&self.context.db, numbers.into_iter()).await {
                Ok(names) => {
                    RemoteChanges::Rooms(names.values().filter_map(|name| RoomId::new(name).ok()).collect())
                }
                Err(_) => RemoteChanges::Any,
            }
        })
    }

    fn rooms(&self, after: Option<RoomId>, limit: usize) -> Read<'_, Vec<RoomInfo>> {
        Box::pin(async move {
            let after = after.as_ref().map_or("", RoomId::as_str);
            let rows = self.context.db.read(&ROOMS, &[&after, &limit_of(limit)]).await?;
            Ok(rows.iter().map(room_info).collect::<Result<_, _>>()?)
        })
    }

    fn access(&self, room: RoomId, user: UserId) -> Read<'_, Access> {
        Box::pin(async move {
            if let Some(recent) = &self.rooms.recent {
                let Some(state) = recent.room_state(&room).await? else { return Ok(Access::Unknown) };
                return Ok(recent.access(&state, &user).await?);
            }
            let rows = self.context.db.read(&ACCESS, &[&room.as_str(), &user.as_str()]).await?;
            Ok(rows.first().map(access_of).transpose()?.unwrap_or(Access::Unknown))
        })
    }

    fn members(&self, room: RoomId, after: Option<UserId>, limit: usize) -> Read<'_, Vec<Member>> {
        Box::pin(async move {
            let after = after.as_ref().map_or("", UserId::as_str);
            let rows = self.context.db.read(&MEMBERS, &[&room.as_str(), &after, &limit_of(limit)]).await?;
            Ok(rows.iter().map(member).collect::<Result<_, _>>()?)
        })
    }

    fn user_rooms(
        &self,
        user: UserId,
        after: Option<RoomId>,
        limit: usize,
        last: LastMessages,
    ) -> Read<'_, UserRooms> {
        Box::pin(async move {
            match last {
                LastMessages::Read => user_rooms_and_last(&self.rooms, &user, after.as_ref(), limit).await,
                LastMessages::Leave => {
                    let rows = rows_of_user(&self.rooms, &USER_ROOMS, &user, after.as_ref(), limit).await?;
                    let rooms = rows.iter().map(user_room).collect::<Result<_, _>>()?;
                    Ok(UserRooms { rooms, ..UserRooms::default() })
                }
            }
        })
    }

    fn user_room_count(&self, user: UserId, most: usize) -> Read<'_, usize> {
        Box::pin(async move {
            let rows = self.context.db.read(&USER_ROOM_COUNT, &[&user.as_str(), &limit_of(most)]).await?;
            Ok(saturate(rows.first().map_or(Ok(0), |row| count(row, 0))?))
        })
    }

    fn memberships(&self, users: Vec<UserId>) -> Read<'_, Vec<Option<Vec<Membership>>>> {
        Box::pin(async move { Ok(memberships(&self.rooms, &users).await?) })
    }
}

async fn memberships(rooms: &Rooms, users: &[UserId]) -> Result<Vec<Option<Vec<Membership>>>> {
    let (ids, most) = (column(users, UserId::as_str), limit_of(MEMBERSHIPS_MAX + 1));
    let rows = rooms.context.db.read(&MEMBERSHIPS, &[&ids, &most]).await?;
    let numbers = rows.iter().map(|row| (row.get(0), row.get::<_, Option<Vec<i32>>>(1).unwrap_or_default()));
    let numbers: HashMap<&str, Vec<i32>> = numbers.collect();
    let mut listed: Vec<i32> = Vec::new();
    for numbers in numbers.values() {
        if numbers.len() <= MEMBERSHIPS_MAX {
            listed.extend(numbers);
        }
    }
    let names = rooms.listed_names.names(&rooms.context.db, listed.into_iter()).await?;
    let membership =
        |number: &i32| Some(Membership { room: RoomId::new(names.get(number)?).ok()?, version: None });
    let of_user = |user: &UserId| {
        let numbers = numbers.get(user.as_str()).map_or(&[][..], Vec::as_slice);
        (numbers.len() <= MEMBERSHIPS_MAX).then(|| numbers.iter().filter_map(membership).collect())
    };
    Ok(users.iter().map(of_user).collect())
}

fn room_head(row: &Row, room: &RoomId) -> Result<RoomHead> {
    let (head, changes) = (count(row, 1)?, count(row, 3)?);
    Ok(RoomHead { room: room.clone(), head, members_only: row.get(2), changes })
}

fn member(row: &Row) -> Result<Member> {
    let name: &str = row.get(0);
    let unexpected = |_| DbError::UnexpectedRow { what: MEMBERS.what, found: format!("the name {name:?}") };
    Ok(Member { user: UserId::new(name).map_err(unexpected)?, read_seq: count(row, 1)? })
}

async fn rows_of_user(
    rooms: &Rooms,
    statement: &Sql,
    user: &UserId,
    after: Option<&RoomId>,
    limit: usize,
) -> Result<Vec<Row>> {
    let after = after.map_or("", RoomId::as_str);
    rooms.context.db.read(statement, &[&user.as_str(), &after, &limit_of(limit)]).await
}

fn user_room(row: &Row) -> Result<UserRoom> {
    let info = room_info(row)?;
    let read_seq = count(row, ROOM_COLUMNS)?;
    let unread =
        info.head.saturating_sub(read_seq.max(info.oldest - 1)).saturating_sub(count(row, ROOM_COLUMNS + 1)?);
    Ok(UserRoom { info, read_seq, unread })
}

async fn user_rooms_and_last(
    rooms: &Rooms,
    user: &UserId,
    after: Option<&RoomId>,
    limit: usize,
) -> Result<UserRooms, ReadError> {
    let rows = rows_of_user(rooms, &USER_ROOMS_AND_LAST, user, after, limit).await?;
    let senders = rows.iter().filter_map(|row| row.get::<_, Option<i32>>(MESSAGE_AT + 2));
    let senders = rooms.user_names.names(&rooms.context.db, senders).await?;
    let mut answer = UserRooms::default();
    for row in &rows {
        let room = user_room(row)?;
        let info = &room.info;
        if row.get::<_, Option<i64>>(MESSAGE_AT).is_some() {
            push(&mut answer.last, (row, MESSAGE_AT), info.room.as_str(), &senders)?;
        } else if info.messages > 0 {
            let newest = HistoryQuery {
                cursor: Cursor::Before(info.head.saturating_add(1)),
                from: None,
                to: None,
                limit: 1,
                bytes_max: usize::MAX,
            };
            match history::read(rooms, &rooms.primary, &info.room, &newest).await {
                Ok(page) => page.messages.iter().for_each(|message| answer.last.push(&message)),
                // It was deleted since it was listed.
                Err(ReadError::UnknownRoom) => {}
                Err(error) => return Err(error),
            }
        }
        answer.rooms.push(room);
    }
    Ok(answer)
}
