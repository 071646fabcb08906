//! What decisions depend on: rooms, locked until the transaction ends, and those of their members who are concerned.

use std::collections::{BTreeSet, HashMap};

use hubbub_core::log_position::past_the_log;
use hubbub_core::rules::rooms::RoomState;
use hubbub_core::{LogPosition, Timestamp};

use super::Numbered;
use crate::db::{DbError, Param, PgTime, Result, RowPlace, Tx, statements};
use crate::log::Fence;
use crate::rooms::versions::newest_version;

/// A room as the operations so far left it.
#[derive(Debug, Clone)]
pub(super) struct Room {
    /// Where its row is, which is locked.
    pub(super) place: RowPlace,
    pub(super) head: i64,
    pub(super) oldest: i64,
    /// Messages from `oldest` on that are erased.
    pub(super) erased: i64,
    pub(super) messages: i64,
    pub(super) members: i64,
    pub(super) last_received_at: Option<Timestamp>,
    pub(super) members_only: bool,
    pub(super) exists: bool,
    /// Whether anything but messages and read marks changed.
    pub(super) is_changed: bool,
    /// Whether a read mark was moved by somebody.
    pub(super) is_marked: bool,
    /// Whether anything changed.
    pub(super) is_touched: bool,
}

impl Room {
    /// What decisions depend on.
    pub(super) fn state(&self) -> RoomState {
        RoomState {
            exists: self.exists,
            members_only: self.members_only,
            head: self.head.unsigned_abs(),
            last_received: self.last_received_at.unwrap_or(Timestamp::MIN),
        }
    }
}

/// A member of a room, both by number.
pub(super) type Membership = (i32, i32);

/// Rooms by number, read marks of members, and partitions of the log.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) fence: Fence,
    pub(super) rooms: HashMap<i32, Room>,
    pub(super) members: HashMap<Membership, i64>,
}

statements! {
    // One room after another, in the order given.
    LOCK("locking rooms") = concat!(
        "select r.no, head, oldest, erased, messages, members, last_received_at, members_only, deleted, \
             exists (select from attached_log), r.ctid \
          from unnest($1) as wanted (no) cross join lateral (",
        newest_version!("v.ctid, v.*", "no", "wanted.no"),
         " for update) r where r.no = wanted.no"
    );

    MEMBERS("looking up members") =
        "select m.room, m.member, m.read_seq from unnest($1, $2) as wanted (room, member) \
         join members m on m.room = wanted.room and m.member = wanted.member";

    LAST_TIMES("looking for the times of rooms") =
        "select distinct last_received_at from rooms where no = any($1) and last_received_at > $2";
}

/// Locks rooms to the end of the transaction, behind the partitions of the log that the operations come from. Refuses
/// operations without a position where a log is attached.
pub(super) async fn lock(
    tx: &Tx<'_>,
    positions: impl Iterator<Item = LogPosition>,
    rooms: impl Iterator<Item = i32>,
) -> Result<State> {
    let wanted: Vec<i32> = rooms.collect::<BTreeSet<_>>().into_iter().collect();
    let params: [Param<'_>; 1] = [&wanted];
    Fence::prepare(tx).await?;
    let (fence, rows) = tokio::try_join!(biased; Fence::lock(tx, positions), tx.query_for(&LOCK, &params))?;
    if fence.is_empty() && rows.first().is_some_and(|row| row.get(9)) {
        return Err(DbError::Refused(past_the_log()));
    }
    let rooms = rows.iter().map(|row| {
        let room = Room {
            place: row.get(10),
            head: row.get(1),
            oldest: row.get(2),
            erased: row.get(3),
            messages: row.get(4),
            members: row.get(5),
            last_received_at: row.get::<_, Option<PgTime>>(6).map(|time| time.0),
            members_only: row.get(7),
            exists: !row.get::<_, bool>(8),
            is_changed: false,
            is_marked: false,
            is_touched: false,
        };
        (row.get(0), room)
    });
    Ok(State { fence, rooms: rooms.collect(), members: HashMap::new() })
}

/// The read marks of those whom the operations name, where they are members.
pub(super) async fn read_members(
    tx: &Tx<'_>,
    state: &State,
    ops: &[Numbered<'_>],
) -> Result<HashMap<Membership, i64>> {
    let mut wanted = BTreeSet::new();
    for numbered in ops {
        let Some(room) = numbered.room else { continue };
        if state.rooms.get(&room).is_some_and(|found| found.members > 0) {
            wanted.extend([numbered.user, numbered.by].into_iter().flatten().map(|user| (room, user)));
        }
    }
    let (rooms, users): (Vec<i32>, Vec<i32>) = wanted.into_iter().unzip();
    let rows = tx.query_for(&MEMBERS, &[&rooms, &users]).await?;
    Ok(rows.iter().map(|row| ((row.get(0), row.get(1)), row.get(2))).collect())
}

/// The times of the last messages of rooms, where they are later than `now`.
pub(super) async fn last_times(tx: &Tx<'_>, rooms: &[i32], now: Timestamp) -> Result<Vec<Timestamp>> {
    let rows = tx.query(&LAST_TIMES, &[&rooms, &PgTime(now)]).await?;
    Ok(rows.iter().map(|row| row.get::<_, PgTime>(0).0).collect())
}
