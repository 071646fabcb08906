//! Writes what a batch changed: one statement for each table, all on their way at the same time.

use std::collections::HashMap;

use hubbub_core::invariant::saturate;
use hubbub_core::{Send, Timestamp};
use tokio_postgres::error::SqlState;
use uuid::Uuid;

use super::decide::Written;
use super::ids;
use super::state::{Membership, Room};
use crate::db::{DbError, Param, PgTime, Result, Tx, column, statements};
use crate::rooms::versions::next_version;

/// A message that has its number.
#[derive(Debug, Clone, Copy)]
pub(super) struct NewMessage<'a> {
    pub(super) room: i32,
    pub(super) sender: i32,
    pub(super) seq: i64,
    pub(super) received_at: Timestamp,
    pub(super) hash: Uuid,
    pub(super) send: Send<'a>,
}

statements! {
    MESSAGES("inserting messages") =
        "insert into messages (room, sender, seq, received_at, sent_at, kind, message_id, username, body) \
         select * from unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)";

    // The rows are locked, so they are still where they were found. A search by number would walk over all versions of
    // them where few rooms are moved. It is planned each time for few rooms, and must be: a plan that was kept from when the
    // table was small reads all of it, while a snapshot makes it grow.
    ROOMS("moving the heads of rooms") =
        concat!("update rooms r set ", next_version!(), ", head = new.head, messages = new.messages, \
             members = new.members, last_received_at = new.last_received_at, changes = r.changes + new.changes, \
             marks = r.marks + new.marks, deleted = false \
         from unnest($1, $2, $3, $4, $5, $6, $7) \
             as new (place, head, messages, members, last_received_at, changes, marks) \
         where r.ctid = new.place");

    MEMBERS("inserting members") =
        "insert into members (room, member, read_seq) select * from unnest($1, $2, $3) \
         on conflict (room, member) do update set read_seq = excluded.read_seq";

    FORMER_MEMBERS("removing members") =
        "delete from members m using unnest($1, $2) as former (room, member) \
         where m.room = former.room and m.member = former.member";

    COUNT_ERASED("counting what is unread") =
        "select wanted.place, \
             (select count(*) from erased e where e.room = wanted.room and e.seq > wanted.behind) \
         from unnest($1, $2, $3) as wanted (place, room, behind)";
}

/// Writes everything. Returns how many ids were new, and how many erased messages each outcome counts as unread.
pub(super) async fn write(
    tx: &Tx<'_>,
    written: &Written<'_>,
    are_free: bool,
) -> Result<(u64, Vec<(usize, u64)>)> {
    let (inserted, stored, rooms, members, unread) = tokio::join!(
        ids::insert(tx, &written.stored, are_free),
        insert_messages(tx, &written.stored),
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

fn kept<T: Default>(result: Result<T>, faults: &mut Vec<DbError>) -> T {
    result.unwrap_or_else(|fault| {
        faults.push(fault);
        T::default()
    })
}

async fn write_rooms(tx: &Tx<'_>, rooms: &[(i32, Room)]) -> Result<u64> {
    let params: [Param<'_>; 7] = [
        &column(rooms, |(_, room)| room.place),
        &column(rooms, |(_, room)| room.head),
        &column(rooms, |(_, room)| room.messages),
        &column(rooms, |(_, room)| room.members),
        &column(rooms, |(_, room)| room.last_received_at.map(PgTime)),
        &column(rooms, |(_, room)| i32::from(room.is_changed || room.is_marked)),
        &column(rooms, |(_, room)| i32::from(room.is_marked && !room.is_changed)),
    ];
    let moved = tx.execute_for(&ROOMS, &params).await?;
    if moved != rooms.len() as u64 {
        let found = format!("{moved} of {} locked rooms could be moved", rooms.len());
        return Err(DbError::UnexpectedRow { what: ROOMS.what, found });
    }
    Ok(moved)
}

/// Writes the members that are not as they were.
pub(super) async fn write_members(tx: &Tx<'_>, members: &HashMap<Membership, Option<i64>>) -> Result<u64> {
    let (current, former): (Vec<_>, Vec<_>) = members.iter().partition(|(_, mark)| mark.is_some());
    let rooms = |members: &[(&Membership, &Option<i64>)]| column(members, |((room, _), _)| *room);
    let users = |members: &[(&Membership, &Option<i64>)]| column(members, |((_, user), _)| *user);
    let marks: Vec<i64> = current.iter().filter_map(|(_, mark)| **mark).collect();
    let inserted: [Param<'_>; 3] = [&rooms(&current), &users(&current), &marks];
    let removed: [Param<'_>; 2] = [&rooms(&former), &users(&former)];
    let (inserted, removed) =
        tokio::join!(tx.execute_for(&MEMBERS, &inserted), tx.execute_for(&FORMER_MEMBERS, &removed));
    inserted.and(removed)
}

async fn count_erased(tx: &Tx<'_>, counts: &[(usize, i32, i64)]) -> Result<Vec<(usize, u64)>> {
    let params: [Param<'_>; 3] = [
        &column(counts, |(place, ..)| saturate::<_, i64>(*place)),
        &column(counts, |(_, room, _)| *room),
        &column(counts, |(.., behind)| *behind),
    ];
    let rows = tx.query_for(&COUNT_ERASED, &params).await?;
    let counted = rows.iter().map(|row| (saturate(row.get::<_, i64>(0)), saturate(row.get::<_, i64>(1))));
    Ok(counted.collect())
}

async fn insert_messages(tx: &Tx<'_>, stored: &[NewMessage<'_>]) -> Result<u64> {
    // Room by room: so pages of the index fill up before the next ones begin, and a room's messages lie together.
    let mut stored = stored.to_vec();
    stored.sort_unstable_by_key(|new| (new.room, new.seq));
    let params: [Param<'_>; 9] = [
        &column(&stored, |new| new.room),
        &column(&stored, |new| new.sender),
        &column(&stored, |new| new.seq),
        &column(&stored, |new| PgTime(new.received_at)),
        &column(&stored, |new| PgTime(new.send.timestamp)),
        &column(&stored, |new| saturate::<u8, i8>(new.send.kind as u8)),
        &column(&stored, |new| new.send.id),
        &column(&stored, |new| new.send.username.unwrap_or_default()),
        &column(&stored, |new| new.send.text),
    ];
    tx.execute_for(&MESSAGES, &params).await
}

/// Whether a message was refused because no partition holds its time.
pub(super) fn lacks_partition(fault: &DbError) -> bool {
    match fault {
        DbError::Statement { what, error } => {
            *what == MESSAGES.what && error.code() == Some(&SqlState::CHECK_VIOLATION)
        }
        _ => false,
    }
}
