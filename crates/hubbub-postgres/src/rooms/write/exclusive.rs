//! Exclusive changes: making, changing and deleting a room, and erasing a user.

use hubbub_core::invariant::saturate;
use hubbub_core::{Change, LogPosition, Outcome, Refusal, RoomChange, RoomOp, Timestamp};

use super::decide::WorkingSet;
use super::state;
use super::{Numbered, Totals, differences, erase, ids};
use crate::db::{DbError, Failure, Param, Result, Tx, statements};
use crate::log::Fence;
use crate::rooms::Rooms;
use crate::rooms::versions::next_version;

statements! {
    /// A setting that is not given keeps its value, which is the default in a new room.
    PUT("changing a room") =
        concat!("update rooms r set ", next_version!(), ", deleted = false, changes = changes + 1, \
             members = members + $5, title = case when $2 is null then title else nullif($2, '') end, \
             members_only = coalesce($3, members_only), \
             retention_s = case when $4 is null then retention_s else nullif($4, 0) end \
         where no = $1");

    DELETE("deleting a room") =
        concat!("update rooms r set ", next_version!(), ", oldest = head + 1, messages = 0, erased = 0, members = 0, \
             changes = changes + 1, title = null, members_only = false, retention_s = null, deleted = true \
         where no = $1");

    DELETE_MEMBERS("removing a room's members") = "delete from members where room = $1";
    DELETE_ERASED("deleting a room's erased numbers") = "delete from erased where room = $1";

    ADD_PENDING_DELETES("recording the pending deletes of a room") =
        "insert into takeouts (room, first_seq, last_seq) select $1, $2, $3 where $2 <= $3";
}

pub(super) async fn apply(
    rooms: &Rooms,
    change: &Change<'_>,
    position: Option<LogPosition>,
) -> Result<Outcome, Failure> {
    let db = &rooms.context.db;
    let (outcome, totals) = if let RoomChange::EraseUser { user } = change.what {
        let numbers = rooms.user_names.numbers(db, &[(user, false)]).await?;
        let user = numbers.first().copied().flatten();
        let work = async |tx: &Tx<'_>| once(tx, position, erase::apply(tx, user, position)).await;
        db.transact("erasing a user", work).await?
    } else {
        let is_put = matches!(change.what, RoomChange::PutRoom { .. });
        let name = change.room().unwrap_or_default();
        let room = rooms.room_names.numbers(db, &[(name, is_put)]).await?.first().copied().flatten();
        let by = change.by.unwrap_or_default();
        let by = rooms.user_names.numbers(db, &[(by, is_put)]).await?.first().copied().flatten();
        let numbered = Numbered { op: RoomOp::Change(*change), position, room, user: None, by };
        let now = rooms.context.clock.now();
        let work = async |tx: &Tx<'_>| once(tx, position, change_room(tx, change, &numbered, now)).await;
        db.transact("changing a room", work).await?
    };
    totals.add_to(&rooms.totals);
    Ok(outcome)
}

/// Makes a change unless it was made before. The log's offset moves with it, but not while an erasure has more to do: then
/// the same operation is repeated.
async fn once(
    tx: &Tx<'_>,
    position: Option<LogPosition>,
    change: impl Future<Output = Result<(Outcome, Totals)>>,
) -> Result<(Outcome, Totals)> {
    let mut fence = Fence::lock(tx, position.into_iter()).await?;
    if !fence.admit(position) {
        return Ok((Outcome::Accepted, Totals::default()));
    }
    let done = change.await?;
    if !matches!(done.0, Outcome::Erased { more: true, .. }) {
        fence.advance(tx, position.into_iter()).await?;
    }
    Ok(done)
}

async fn change_room(
    tx: &Tx<'_>,
    change: &Change<'_>,
    numbered: &Numbered<'_>,
    now: Timestamp,
) -> Result<(Outcome, Totals)> {
    let Some(no) = numbered.room else {
        return Ok((Outcome::Refused(Refusal::UnknownRoom), Totals::default()));
    };
    let missing = || DbError::UnexpectedRow { what: "locking rooms", found: "no row".into() };
    let mut state = state::lock(tx, numbered.position.into_iter(), std::iter::once(no)).await?;
    state.members = state::read_members(tx, &state, std::slice::from_ref(numbered)).await?;
    let before = state.rooms.get(&no).cloned().ok_or_else(missing)?;
    let mut set = WorkingSet::new(now, false, state, ids::UsedIds::default());
    let outcome = match set.change(numbered, change, 0) {
        Ok(outcome) => outcome,
        Err(refusal) => return Ok((Outcome::Refused(refusal), Totals::default())),
    };
    let after = set.room(no).ok_or_else(missing)?;
    let totals = Totals {
        messages: after.messages - before.messages,
        rooms: i64::from(after.exists) - i64::from(before.exists),
    };
    match change.what {
        RoomChange::PutRoom { settings, .. } => {
            let retention: Option<i64> = settings.retention_s.map(saturate);
            let more_members = after.members - before.members;
            let params: [Param<'_>; 5] =
                [&no, &settings.title, &settings.members_only, &retention, &more_members];
            tx.execute(&PUT, &params).await?;
            differences::write_members(tx, &set.into_written().0.members).await?;
        }
        _ => {
            for statement in [&DELETE, &DELETE_MEMBERS, &DELETE_ERASED] {
                tx.execute(statement, &[&no]).await?;
            }
            tx.execute(&ADD_PENDING_DELETES, &[&no, &before.oldest, &before.head]).await?;
        }
    }
    Ok((outcome, totals))
}
