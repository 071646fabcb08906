//! Lists rooms, members, and the rooms of a user.

use std::collections::HashMap;

use hubbub_core::store::{
    Access, Cursor, HistoryQuery, Member, ReadError, RoomHead, RoomInfo, UserRoom, UserRooms,
};
use hubbub_core::{RoomId, UserId};
use tokio_postgres::Row;

use super::columns::{ROOM_COLUMNS, count, message_columns, push, room_columns, room_info};
use super::{history, limit_of};
use crate::db::row::non_negative;
use crate::db::{DbError, Sql};
use crate::rooms::Rooms;

const ROOM: Sql = Sql {
    what: "reading a room",
    text: concat!("select ", room_columns!(), " from rooms r where r.id = $1 and not r.deleted"),
};

const HEADS: Sql = Sql {
    what: "reading the heads of rooms",
    text: "select id, head, members_only, changes - marks from rooms where id = any($1) and not deleted",
};

const ROOMS: Sql = Sql {
    what: "listing rooms",
    text: concat!(
        "select ",
        room_columns!(),
        " from rooms r where r.id > $1 and not r.deleted order by r.id limit $2"
    ),
};

const ACCESS: Sql = Sql {
    what: "looking up a member",
    text: "select r.members_only, m.read_seq from rooms r \
           left join members m on m.room = r.no and m.member = (select no from users where id = $2) \
           where r.id = $1 and not r.deleted",
};

const MEMBERS: Sql = Sql {
    what: "listing members",
    text: "select u.id, m.read_seq from rooms r join members m on m.room = r.no join users u on u.no = m.member \
           where r.id = $1 and not r.deleted and u.id > $2 order by u.id limit $3",
};

/// The newest message of a room is nearly always the one at its head, and its partition follows from the room.
const USER_ROOMS: Sql = Sql {
    what: "listing a user's rooms",
    text: concat!(
        "select ",
        room_columns!(),
        ", mine.read_seq, case when r.erased = 0 then 0 else (select count(*) from erased e \
               where e.room = r.no and e.seq > greatest(mine.read_seq, r.oldest - 1)) end, ",
        message_columns!("last"),
        " from members mine join users u on u.no = mine.member join rooms r on r.no = mine.room and not r.deleted \
          left join lateral (select * from messages m where m.room = r.no and m.seq = r.head \
              and m.received_at = r.last_received_at and r.oldest <= r.head \
              and (r.erased = 0 or not exists (select from erased e where e.room = r.no and e.seq = r.head)) \
              limit 1) last on true \
          where u.id = $1 and r.id > $2 order by r.id limit $3"
    ),
};

/// Columns of [`USER_ROOMS`] before those of the message.
const MESSAGE_AT: usize = ROOM_COLUMNS + 2;

pub(super) async fn room(rooms: &Rooms, room: &RoomId) -> Result<Option<RoomInfo>, ReadError> {
    if let Some(recent) = &rooms.recent {
        return Ok(recent.room_state(room).await?.map(|state| state.info.clone()));
    }
    Ok(rooms.context.db.read(&ROOM, &[&room.as_str()]).await?.first().map(room_info).transpose()?)
}

pub(super) async fn heads(rooms: &Rooms, wanted: &[RoomId]) -> Result<Vec<RoomHead>, DbError> {
    let names: Vec<&str> = wanted.iter().map(RoomId::as_str).collect();
    let rows = rooms.context.db.read(&HEADS, &[&names]).await?;
    let wanted: HashMap<&str, &RoomId> = wanted.iter().map(|room| (room.as_str(), room)).collect();
    let heads = rows.iter().filter_map(|row| {
        let room = (*wanted.get(row.get::<_, &str>(0))?).clone();
        let head = |room| {
            Ok(RoomHead { room, head: count(row, 1)?, members_only: row.get(2), changes: count(row, 3)? })
        };
        Some(head(room))
    });
    heads.collect()
}

pub(super) async fn rooms(
    rooms: &Rooms,
    after: Option<&RoomId>,
    limit: usize,
) -> Result<Vec<RoomInfo>, DbError> {
    let after = after.map_or("", RoomId::as_str);
    rooms.context.db.read(&ROOMS, &[&after, &limit_of(limit)]).await?.iter().map(room_info).collect()
}

pub(super) async fn access(rooms: &Rooms, room: &RoomId, user: &UserId) -> Result<Access, ReadError> {
    if let Some(recent) = &rooms.recent {
        let Some(state) = recent.room_state(room).await? else { return Ok(Access::Unknown) };
        return Ok(recent.access(&state, user).await?);
    }
    let rows = rooms.context.db.read(&ACCESS, &[&room.as_str(), &user.as_str()]).await?;
    let Some(row) = rows.first() else { return Ok(Access::Unknown) };
    Ok(match row.get::<_, Option<i64>>(1) {
        Some(read_seq) => Access::Member { read_seq: non_negative(read_seq, ACCESS.what)? },
        None if row.get(0) => Access::Closed,
        None => Access::Open,
    })
}

pub(super) async fn members(
    rooms: &Rooms,
    room: &RoomId,
    after: Option<&UserId>,
    limit: usize,
) -> Result<Vec<Member>, DbError> {
    let after = after.map_or("", UserId::as_str);
    let rows = rooms.context.db.read(&MEMBERS, &[&room.as_str(), &after, &limit_of(limit)]).await?;
    let member = |row: &Row| {
        let user = UserId::new(row.get::<_, &str>(0)).map_err(|_| DbError::UnexpectedRow {
            what: MEMBERS.what,
            found: format!("the name {:?}", row.get::<_, &str>(0)),
        })?;
        Ok(Member { user, read_seq: count(row, 1)? })
    };
    rows.iter().map(member).collect()
}

pub(super) async fn user_rooms(
    rooms: &Rooms,
    user: &UserId,
    after: Option<&RoomId>,
    limit: usize,
) -> Result<UserRooms, ReadError> {
    let after = after.map_or("", RoomId::as_str);
    let rows = rooms.context.db.read(&USER_ROOMS, &[&user.as_str(), &after, &limit_of(limit)]).await?;
    let senders = rows.iter().filter_map(|row| row.get::<_, Option<i32>>(MESSAGE_AT + 2));
    let senders = rooms.user_names.names(&rooms.context.db, senders).await?;
    let mut answer = UserRooms::default();
    for row in &rows {
        let info = room_info(row)?;
        let read_seq = count(row, ROOM_COLUMNS)?;
        let unread = info
            .head
            .saturating_sub(read_seq.max(info.oldest - 1))
            .saturating_sub(count(row, ROOM_COLUMNS + 1)?);
        if row.get::<_, Option<i64>>(MESSAGE_AT).is_some() {
            push(&mut answer.last, (row, MESSAGE_AT), info.room.as_str(), &senders)?;
        } else if info.messages > 0 {
            let newest = HistoryQuery {
                cursor: Cursor::Before(u64::MAX),
                from: None,
                to: None,
                limit: 1,
                bytes_max: usize::MAX,
            };
            let page = history::read(rooms, &rooms.primary, &info.room, &newest).await?;
            page.messages.iter().for_each(|message| answer.last.push(&message));
        }
        answer.rooms.push(UserRoom { info, read_seq, unread });
    }
    Ok(answer)
}
