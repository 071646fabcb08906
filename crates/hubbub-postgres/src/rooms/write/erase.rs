//! Erasing messages of a user, a bounded number at a time, the oldest first.
//!
//! A record of a log erases in the rooms of its partition: what is stored of other partitions may be behind the erasure there.
//!
//! An erased message keeps its number and stays in `erased`, so that what is unread can be counted. Where those erased
//! are the oldest ones of a room, its `oldest` moves behind them instead.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use hubbub_core::invariant::saturate;
use hubbub_core::{LogPosition, Outcome, Timestamp, log_partition};

use super::Totals;
use super::state::{self, State};
use crate::db::{Param, PgTime, Result, Tx, column, statements};
use crate::log;
use crate::rooms::not_erased;
use crate::rooms::versions::next_version;

/// Messages erased by one operation.
const ERASED_MAX: usize = 5_000;

statements! {
    /// Behind a place, and without some rooms.
    MESSAGES("looking for a user's messages") =
        concat!("select m.room, r.id, m.seq, m.received_at \
         from messages m join rooms r on r.no = m.room and r.oldest <= m.seq \
         where m.sender = $1 and m.received_at >= $2 and (m.received_at, m.room, m.seq) > ($2, $3, $4) \
             and m.room <> all($5) and ", not_erased!("m.room", "m.seq"), " \
         order by m.received_at, m.room, m.seq limit $6");

    MEMBERSHIPS("looking for a user's rooms") =
        "select m.room, r.id from members m join room_names r on r.no = m.room where m.member = $1";

    ERASE("erasing messages") =
        "insert into erased (room, seq) select * from unnest($1, $2) on conflict do nothing returning room, seq";

    /// The number behind the run of erased ones that begins with a room's oldest.
    NEW_OLDEST("looking for the oldest messages") =
        "select wanted.room, (select e.seq + 1 from erased e \
             where e.room = wanted.room and e.seq >= wanted.oldest and not exists \
                 (select from erased next where next.room = e.room and next.seq = e.seq + 1) \
             order by e.seq limit 1) \
         from unnest($1, $2) as wanted (room, oldest)";

    FORGET("deleting erased numbers") =
        "delete from erased e using unnest($1, $2) as moved (room, oldest) \
         where e.room = moved.room and e.seq < moved.oldest";

    LEAVE("removing memberships") = "delete from members where member = $1 and room = any($2) returning room";

    ROOMS("changing rooms") =
        concat!("update rooms r set ", next_version!(), ", oldest = new.oldest, erased = new.erased, \
             messages = new.messages, members = new.members, changes = r.changes + 1 \
         from unnest($1, $2, $3, $4, $5) as new (no, oldest, erased, messages, members) where r.no = new.no");

    ADD_PENDING_DELETES("recording the pending deletes of a user") =
        "insert into takeouts (room, first_seq, last_seq, sender) \
         select room, first_seq, last_seq, $4 from unnest($1, $2, $3) as gone (room, first_seq, last_seq)";
}

/// The rooms that an erasure concerns: those of one partition of the log, and of how many; `None` = all.
struct Scope(Option<(u32, u32)>);

impl Scope {
    async fn of(tx: &Tx<'_>, position: Option<LogPosition>) -> Result<Self> {
        let Some(LogPosition { partition, .. }) = position else { return Ok(Self(None)) };
        Ok(Self(Some((partition, log::partitions(tx).await?))))
    }

    fn holds(&self, room: &str) -> bool {
        self.0.is_none_or(|(partition, partitions)| log_partition::of_room(room, partitions) == partition)
    }
}

/// What is erased of a room.
struct ErasedRange {
    first: i64,
    last: i64,
    count: i64,
}

/// Erases the next messages; with the last ones the user's memberships end.
pub(super) async fn apply(
    tx: &Tx<'_>,
    user: Option<i32>,
    position: Option<LogPosition>,
) -> Result<(Outcome, Totals)> {
    let Some(user) = user else {
        return Ok((Outcome::Erased { messages: 0, more: false }, Totals::default()));
    };
    let scope = Scope::of(tx, position).await?;
    let mut found = find(tx, user, &scope).await?;
    let more = found.len() > ERASED_MAX;
    found.truncate(ERASED_MAX);
    let memberships = if more { Vec::new() } else { tx.query(&MEMBERSHIPS, &[&user]).await? };
    let memberships =
        memberships.iter().filter(|row| scope.holds(row.get(1))).map(|row| row.get::<_, i32>(0));
    let concerned = found.iter().map(|(room, _)| *room).chain(memberships);
    let mut state = state::lock(tx, position.into_iter(), concerned).await?;
    // A room may have lost them before it was locked.
    found.retain(|(room, seq)| state.rooms.get(room).is_some_and(|room| room.oldest <= *seq));
    let gone = erase(tx, &mut state, &found).await?;
    let messages: i64 = gone.values().map(|gone| gone.count).sum();
    move_oldest(tx, &mut state, &gone).await?;
    if !more {
        leave(tx, &mut state, user).await?;
    }
    write_rooms(tx, &state).await?;
    add_pending_deletes(tx, &gone, user).await?;
    let outcome = Outcome::Erased { messages: messages.unsigned_abs(), more };
    Ok((outcome, Totals { messages: -messages, rooms: 0 }))
}

/// The rooms and numbers of the user's next messages, one more than are erased at once. Rooms out of scope are passed over by
/// the database, once they are known.
async fn find(tx: &Tx<'_>, user: i32, scope: &Scope) -> Result<Vec<(i32, i64)>> {
    let most = ERASED_MAX + 1;
    let limit: i64 = saturate(most);
    let (mut found, mut others) = (Vec::new(), BTreeSet::new());
    let mut after = (PgTime(Timestamp::MIN), 0_i32, 0_i64);
    loop {
        let passed: Vec<i32> = others.iter().copied().collect();
        let (time, room, seq) = &after;
        let rows = tx.query(&MESSAGES, &[&user, time, room, seq, &passed, &limit]).await?;
        for row in &rows {
            let (room, seq): (i32, i64) = (row.get(0), row.get(2));
            if scope.holds(row.get(1)) {
                found.push((room, seq));
            } else {
                others.insert(room);
            }
        }
        match rows.last() {
            Some(last) if rows.len() == most && found.len() < most => {
                after = (last.get(3), last.get(0), last.get(2));
            }
            _ => break,
        }
    }
    found.truncate(most);
    Ok(found)
}

async fn erase(tx: &Tx<'_>, state: &mut State, found: &[(i32, i64)]) -> Result<BTreeMap<i32, ErasedRange>> {
    let (rooms, seqs): (Vec<i32>, Vec<i64>) = found.iter().copied().unzip();
    let mut gone: BTreeMap<i32, ErasedRange> = BTreeMap::new();
    for row in tx.query_for(&ERASE, &[&rooms, &seqs]).await? {
        let (room, seq): (i32, i64) = (row.get(0), row.get(1));
        let gone = gone.entry(room).or_insert(ErasedRange { first: seq, last: seq, count: 0 });
        gone.first = gone.first.min(seq);
        gone.last = gone.last.max(seq);
        gone.count += 1;
    }
    for (room, gone) in &gone {
        if let Some(room) = state.rooms.get_mut(room) {
            room.messages -= gone.count;
            room.erased += gone.count;
            room.is_touched = true;
        }
    }
    Ok(gone)
}

/// Restores that a room's oldest number is not an erased one's.
async fn move_oldest(tx: &Tx<'_>, state: &mut State, gone: &BTreeMap<i32, ErasedRange>) -> Result<()> {
    let is_oldest =
        |no: &i32, gone: &ErasedRange| state.rooms.get(no).is_some_and(|room| room.oldest == gone.first);
    let begun = gone.iter().filter(|(no, gone)| is_oldest(no, gone)).map(|(no, gone)| (*no, gone.first));
    let (rooms, oldest): (Vec<i32>, Vec<i64>) = begun.unzip();
    let rows = tx.query_for(&NEW_OLDEST, &[&rooms, &oldest]).await?;
    let moved: HashMap<i32, i64> =
        rows.iter().filter_map(|row| Some((row.get(0), row.get::<_, Option<i64>>(1)?))).collect();
    for (no, oldest) in &moved {
        if let Some(room) = state.rooms.get_mut(no) {
            room.erased -= oldest - room.oldest;
            room.oldest = *oldest;
        }
    }
    let (rooms, oldest): (Vec<i32>, Vec<i64>) = moved.into_iter().unzip();
    tx.execute_for(&FORGET, &[&rooms, &oldest]).await.map(drop)
}

async fn leave(tx: &Tx<'_>, state: &mut State, user: i32) -> Result<()> {
    let rooms: Vec<i32> = state.rooms.keys().copied().collect();
    for row in tx.query(&LEAVE, &[&user, &rooms]).await? {
        if let Some(room) = state.rooms.get_mut(&row.get(0)) {
            room.members -= 1;
            room.is_touched = true;
        }
    }
    Ok(())
}

async fn write_rooms(tx: &Tx<'_>, state: &State) -> Result<u64> {
    let touched: Vec<_> = state.rooms.iter().filter(|(_, room)| room.is_touched).collect();
    let params: [Param<'_>; 5] = [
        &column(&touched, |(no, _)| **no),
        &column(&touched, |(_, room)| room.oldest),
        &column(&touched, |(_, room)| room.erased),
        &column(&touched, |(_, room)| room.messages),
        &column(&touched, |(_, room)| room.members),
    ];
    tx.execute_for(&ROOMS, &params).await
}

async fn add_pending_deletes(tx: &Tx<'_>, gone: &BTreeMap<i32, ErasedRange>, user: i32) -> Result<u64> {
    let gone: Vec<_> = gone.iter().collect();
    let (rooms, firsts) = (column(&gone, |(no, _)| **no), column(&gone, |(_, gone)| gone.first));
    let lasts = column(&gone, |(_, gone)| gone.last);
    tx.execute_for(&ADD_PENDING_DELETES, &[&rooms, &firsts, &lasts, &user]).await
}
