//! Changes that stand alone in their batch: making, changing and deleting a room, and erasing a user.

use hubbub_core::{Change, Outcome, Refusal, RoomSettings, What};
use tokio_postgres::types::Type;

use super::state::{self, Room};
use super::{Totals, erase};
use crate::db::{Failure, Fault, Sql, Tx};
use crate::rooms::Rooms;

const MEMBER: Sql = Sql {
    what: "looking up a member",
    text: "select from members where room = $1 and member = $2",
    types: &[Type::INT4, Type::INT4],
};

/// What is not given stays as it is; in a new room that is the default.
const PUT: Sql = Sql {
    what: "changing a room",
    text: "update rooms set deleted = false, changes = changes + 1, members = members + $5, \
               title = case when $2 is null then title else nullif($2, '') end, \
               members_only = coalesce($3, members_only), \
               retention_s = case when $4 is null then retention_s else nullif($4, 0) end \
           where no = $1",
    types: &[Type::INT4, Type::TEXT, Type::BOOL, Type::INT8, Type::INT8],
};

const FOUND: Sql = Sql {
    what: "entering a room's first member",
    text: "insert into members (room, member, read_seq) values ($1, $2, $3)",
    types: &[Type::INT4, Type::INT4, Type::INT8],
};

const DELETE: Sql = Sql {
    what: "deleting a room",
    text: "update rooms set oldest = head + 1, messages = 0, erased = 0, members = 0, changes = changes + 1, \
               title = null, members_only = false, retention_s = null, deleted = true \
           where no = $1",
    types: &[Type::INT4],
};

const DELETE_MEMBERS: Sql = Sql {
    what: "removing a room's members",
    text: "delete from members where room = $1",
    types: &[Type::INT4],
};

const DELETE_ERASED: Sql = Sql {
    what: "forgetting what was erased in a room",
    text: "delete from erased where room = $1",
    types: &[Type::INT4],
};

const TAKE_OUT: Sql = Sql {
    what: "having a room's messages removed",
    text: "insert into takeouts (room, first_seq, last_seq) select $1, $2, $3 where $2 <= $3",
    types: &[Type::INT4, Type::INT8, Type::INT8],
};

/// Makes a change that stands alone.
pub(super) async fn apply(rooms: &Rooms, change: &Change<'_>) -> Result<Outcome, Failure> {
    let db = &rooms.context.db;
    let (outcome, totals) = if let What::EraseUser { user } = change.what {
        let numbers = rooms.user_names.numbers(db, &[(user, false)]).await?;
        let Some(user) = numbers.first().copied().flatten() else {
            return Ok(Outcome::Erased { messages: 0, more: false });
        };
        db.transact("erasing a user", async |tx| erase::apply(tx, user).await).await?
    } else {
        let is_put = matches!(change.what, What::PutRoom { .. });
        let name = change.room().unwrap_or_default();
        let room = rooms.room_names.numbers(db, &[(name, is_put)]).await?.first().copied().flatten();
        let by = change.by.unwrap_or_default();
        let by_no = rooms.user_names.numbers(db, &[(by, is_put)]).await?.first().copied().flatten();
        let Some(room) = room else { return Ok(Outcome::Refused(Refusal::UnknownRoom)) };
        db.transact("changing a room", async |tx| change_room(tx, change, room, by_no).await).await?
    };
    rooms.totals.add(totals);
    Ok(outcome)
}

async fn change_room(
    tx: &Tx<'_>,
    change: &Change<'_>,
    no: i32,
    by: Option<i32>,
) -> Result<(Outcome, Totals), Fault> {
    let mut state = state::lock(tx, std::iter::once(no)).await?;
    let room = state.rooms.remove(&no);
    let room = room.ok_or_else(|| Fault::UnexpectedRow { what: "locking rooms", found: "no row".into() })?;
    if room.exists && change.by.is_some() {
        let is_member = match by {
            Some(by) => tx.query_opt(&MEMBER, &[&no, &by]).await?.is_some(),
            None => false,
        };
        if !is_member {
            return Ok((Outcome::Refused(Refusal::NotMember), Totals::default()));
        }
    }
    match change.what {
        What::PutRoom { settings, .. } => put(tx, (no, &room), by, &settings).await,
        What::DeleteRoom { .. } if room.exists => delete(tx, no, &room).await,
        _ => Ok((Outcome::Refused(Refusal::UnknownRoom), Totals::default())),
    }
}

async fn put(
    tx: &Tx<'_>,
    (no, room): (i32, &Room),
    by: Option<i32>,
    settings: &RoomSettings<'_>,
) -> Result<(Outcome, Totals), Fault> {
    let created = !room.exists;
    let founder = by.filter(|_| created);
    let retention = settings.retention_s.map(|seconds| i64::try_from(seconds).unwrap_or(i64::MAX));
    let members = i64::from(founder.is_some());
    tx.execute(&PUT, &[&no, &settings.title, &settings.members_only, &retention, &members]).await?;
    if let Some(founder) = founder {
        tx.execute(&FOUND, &[&no, &founder, &room.head]).await?;
    }
    Ok((Outcome::Room { created }, Totals { messages: 0, rooms: i64::from(created) }))
}

async fn delete(tx: &Tx<'_>, no: i32, room: &Room) -> Result<(Outcome, Totals), Fault> {
    for statement in [&DELETE, &DELETE_MEMBERS, &DELETE_ERASED] {
        tx.execute(statement, &[&no]).await?;
    }
    tx.execute(&TAKE_OUT, &[&no, &room.oldest, &room.head]).await?;
    Ok((Outcome::Changed { changed: true }, Totals { messages: -room.messages, rooms: -1 }))
}
