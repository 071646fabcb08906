//! Writes what a batch changed: one statement for each table, all on their way at the same time.

use std::collections::HashMap;

use hubbub_core::invariant::saturate;

use super::decide::Written;
use super::state::{Membership, Room};
use super::{ids, messages};
use crate::db::{DbError, PgTime, Sql, Tx};

const ROOMS: Sql = Sql {
    what: "moving the heads of rooms",
    text: "update rooms r set head = new.head, messages = new.messages, members = new.members, \
               last_received_at = new.last_received_at, changes = r.changes + new.changes, \
               marks = r.marks + new.marks, deleted = false \
           from unnest($1, $2, $3, $4, $5, $6, $7) \
               as new (no, head, messages, members, last_received_at, changes, marks) \
           where r.no = new.no",
};

const MEMBERS: Sql = Sql {
    what: "inserting members",
    text: "insert into members (room, member, read_seq) select * from unnest($1, $2, $3) \
           on conflict (room, member) do update set read_seq = excluded.read_seq",
};

const FORMER_MEMBERS: Sql = Sql {
    what: "removing members",
    text: "delete from members m using unnest($1, $2) as former (room, member) \
           where m.room = former.room and m.member = former.member",
};

const COUNT_ERASED: Sql = Sql {
    what: "counting what is unread",
    text: "select wanted.place, \
               (select count(*) from erased e where e.room = wanted.room and e.seq > wanted.behind) \
           from unnest($1, $2, $3) as wanted (place, room, behind)",
};

/// Writes everything. Returns how many ids were new, and how many erased messages each outcome counts as unread.
pub(super) async fn write(
    tx: &Tx<'_>,
    written: &Written<'_>,
    are_free: bool,
) -> Result<(u64, Vec<(usize, u64)>), DbError> {
    let (inserted, stored, rooms, members, unread) = tokio::join!(
        ids::insert(tx, &written.stored, are_free),
        messages::insert(tx, &written.stored),
        write_rooms(tx, &written.rooms),
        write_members(tx, &written.members),
        count_erased(tx, &written.counts),
    );
    let mut faults = Vec::new();
    let (inserted, unread) = (kept(inserted, &mut faults), kept(unread, &mut faults));
    for written in [stored, rooms, members] {
        kept(written, &mut faults);
    }
    // Where one fails, the others fail because of it.
    let cause = faults.iter().position(|fault| !fault.is_follow_up()).unwrap_or(0);
    if cause < faults.len() { Err(faults.swap_remove(cause)) } else { Ok((inserted, unread)) }
}

fn kept<T: Default>(result: Result<T, DbError>, faults: &mut Vec<DbError>) -> T {
    result.unwrap_or_else(|fault| {
        faults.push(fault);
        T::default()
    })
}

async fn write_rooms(tx: &Tx<'_>, rooms: &[(i32, Room)]) -> Result<(), DbError> {
    if rooms.is_empty() {
        return Ok(());
    }
    let column = |of: fn(&Room) -> i64| rooms.iter().map(|(_, room)| of(room)).collect::<Vec<i64>>();
    let numbers: Vec<i32> = rooms.iter().map(|(no, _)| *no).collect();
    let times: Vec<Option<PgTime>> =
        rooms.iter().map(|(_, room)| room.last_received_at.map(PgTime)).collect();
    let flag = |of: fn(&Room) -> bool| rooms.iter().map(|(_, room)| i32::from(of(room))).collect::<Vec<_>>();
    let changes = flag(|room| room.is_changed || room.is_marked);
    let marks = flag(|room| room.is_marked && !room.is_changed);
    let (heads, messages) = (column(|room| room.head), column(|room| room.messages));
    let members = column(|room| room.members);
    tx.execute(&ROOMS, &[&numbers, &heads, &messages, &members, &times, &changes, &marks]).await?;
    Ok(())
}

/// Writes the members that are not as they were.
pub(super) async fn write_members(
    tx: &Tx<'_>,
    members: &HashMap<Membership, Option<i64>>,
) -> Result<(), DbError> {
    let (mut rooms, mut users, mut marks) = (Vec::new(), Vec::new(), Vec::new());
    let (mut former_rooms, mut former_users) = (Vec::new(), Vec::new());
    for ((room, user), mark) in members {
        match mark {
            Some(mark) => {
                rooms.push(*room);
                users.push(*user);
                marks.push(*mark);
            }
            None => {
                former_rooms.push(*room);
                former_users.push(*user);
            }
        }
    }
    let insert = async {
        if rooms.is_empty() { Ok(0) } else { tx.execute(&MEMBERS, &[&rooms, &users, &marks]).await }
    };
    let remove = async {
        if former_rooms.is_empty() {
            Ok(0)
        } else {
            tx.execute(&FORMER_MEMBERS, &[&former_rooms, &former_users]).await
        }
    };
    let (inserted, removed) = tokio::join!(insert, remove);
    inserted.and(removed).map(drop)
}

async fn count_erased(tx: &Tx<'_>, counts: &[(usize, i32, i64)]) -> Result<Vec<(usize, u64)>, DbError> {
    if counts.is_empty() {
        return Ok(Vec::new());
    }
    let places: Vec<i64> = counts.iter().map(|(place, ..)| saturate(*place)).collect();
    let rooms: Vec<i32> = counts.iter().map(|(_, room, _)| *room).collect();
    let behind: Vec<i64> = counts.iter().map(|(.., behind)| *behind).collect();
    let rows = tx.query(&COUNT_ERASED, &[&places, &rooms, &behind]).await?;
    let counted = rows.iter().filter_map(|row| {
        Some((usize::try_from(row.get::<_, i64>(0)).ok()?, row.get::<_, i64>(1).unsigned_abs()))
    });
    Ok(counted.collect())
}
