//! Deletes hidden messages: first from the counts, in large steps, then from the tables, in small ones.
//!
//! A row of `takeouts` is a pending delete: a range of numbers of a room, of one sender or of all. Once its messages are
//! uncounted, the row is marked; it stays until they are deleted. So at any moment, the counted messages are those in
//! `messages` up to the last counted number of their room, except those of marked rows.

use std::collections::BTreeSet;

use super::rollup;
use crate::db::{Db, PgTime, Result, Tx, WALKING, statements};
use crate::rooms::newest_version;
use crate::step_size::StepSize;

/// Most pending deletes of one step, and about how many messages they may cover together; larger ones are split.
const ROWS: i64 = 200;
const STEP: i64 = 200_000;

/// Most messages deleted in one step, during which writers of the room wait.
const DELETES_MAX: i64 = 1_000;

/// Most entries without messages deleted in one step.
const ENTRIES_MAX: i64 = 1_000;

statements! {
    /// Leaves the first part where it stands, so that it is chosen next: the other one may be as large as ever. Splits no more than
    /// can be chosen then.
    SPLIT("splitting pending deletes") =
        "with large as (select t.no, t.room, t.first_seq, t.last_seq, t.sender, t.partition from takeouts t \
             left join counted c on c.room = t.room and c.seq >= t.last_seq \
             where not t.counted_out and t.last_seq - t.first_seq >= $1 order by c.room is null, t.no limit $2), \
         cut as (update takeouts t set last_seq = l.first_seq + $1 - 1 from large l where t.no = l.no) \
         insert into takeouts (room, first_seq, last_seq, sender, partition) \
         select room, first_seq + $1, last_seq, sender, partition from large";

    /// Skips ranges that are not counted yet.
    CHOOSE("finding messages to uncount") =
        "select t.no, t.last_seq - t.first_seq + 1 from takeouts t \
             join counted c on c.room = t.room and c.seq >= t.last_seq \
         where not t.counted_out order by t.no limit $1";
}

/// Whether the row `t` of `takeouts` covers the message `m`.
macro_rules! matches_pending_delete {
    () => {
        "t.room = m.room and m.seq between t.first_seq and t.last_seq and (t.sender is null or t.sender = m.sender)"
    };
}
pub(super) use matches_pending_delete;

/// Counted messages of the user and the room of `pair`, behind those that nobody sees.
macro_rules! counted_messages {
    ($user:literal, $room:literal) => {
        concat!(
            "select m.received_at from messages m where m.sender", $user, " = pair.sender and m.room", $room, " = pair.room \
                 and m.seq between pair.low and pair.high and m.received_at between pair.since and pair.last \
                 and not exists (select from takeouts t where (t.counted_out or t.no = any($3)) and ",
            matches_pending_delete!(), ")"
        )
    };
}

statements! {
    /// Subtracts messages from the counts. Returns what remains to each affected user in each room. `sender + 0` keeps the
    /// planner from looking for messages of a user by the index of users: that has all he wrote in any room. `offset 0` makes it
    /// look up ranges one by one, whatever it estimates.
    UNCOUNT("uncounting messages") = concat!(
        "with named as ( \
            select m.* from takeouts t cross join lateral ( \
                select m.room, m.seq, m.sender, m.kind, m.received_at from messages m \
                where m.room = t.room and m.seq between t.first_seq and t.last_seq offset 0) m \
            where t.no = any($1) and t.sender is null \
            union \
            select m.* from takeouts t cross join lateral ( \
                select m.room, m.seq, m.sender, m.kind, m.received_at from messages m \
                where m.room = t.room and m.seq between t.first_seq and t.last_seq \
                    and m.sender + 0 = t.sender offset 0) m \
            where t.no = any($1) and t.sender is not null), \
        gone as materialized ( \
            select m.room, m.sender, m.kind::int4 as kind, date_bin('1 hour', m.received_at, 'epoch') as hour \
            from named m where not exists (select from takeouts t where t.counted_out and ",
        matches_pending_delete!(), ")), \
        pair as (select sender, room, count(*) as messages from gone group by sender, room), \
        pairs_left as ( \
            update pair_counts c set messages = c.messages - g.messages from pair g \
            where c.sender = g.sender and c.room = g.room and c.messages > g.messages \
            returning c.sender, c.room, c.messages), \
        pairs_gone as ( \
            delete from pair_counts c using pair g \
            where c.sender = g.sender and c.room = g.room and c.messages <= g.messages \
            returning c.sender, c.room, 0::int8 as messages), \
        hour as ( \
            select hour, count(*) filter (where kind = 0) as texts, count(*) filter (where kind = 1) as joins, \
                count(*) filter (where kind = 2) as leaves, count(*) as messages from gone group by hour), \
        hours_left as ( \
            update hour_counts c set texts = c.texts - g.texts, joins = c.joins - g.joins, \
                leaves = c.leaves - g.leaves \
            from hour g where c.hour = g.hour and c.texts + c.joins + c.leaves > g.messages), \
        hours_gone as ( \
            delete from hour_counts c using hour g \
            where c.hour = g.hour and c.texts + c.joins + c.leaves <= g.messages), \
        hour_room as (select hour, room, count(*) as messages from gone group by hour, room), \
        hour_rooms_left as ( \
            update hour_room_counts c set messages = c.messages - g.messages from hour_room g \
            where c.hour = g.hour and c.room = g.room and c.messages > g.messages), \
        hour_rooms_gone as ( \
            delete from hour_room_counts c using hour_room g \
            where c.hour = g.hour and c.room = g.room and c.messages <= g.messages), \
        silent as ( \
            select hour, sender / 1024 as block, bit_or(set_bit(B'0'::bit(1024), sender % 1024, 1)) as users \
            from (select distinct hour, sender from gone) g \
            where not exists (select from messages m \
                where m.sender = g.sender and m.received_at >= g.hour and m.received_at < g.hour + interval '1 hour' \
                    and m.seq <= (select c.seq from counted c where c.room = m.room) \
                    and not exists (select from takeouts t where (t.counted_out or t.no = any($1)) and ",
        matches_pending_delete!(), ") offset 0) \
            group by hour, sender / 1024), \
        hour_users_left as ( \
            update hour_users c set users = c.users & ~g.users from silent g \
            where c.hour = g.hour and c.block = g.block) \
        select sender, room, messages from pairs_left union all select sender, room, messages from pairs_gone"
    );

    /// Sets the first and last times of the remaining messages of users in rooms.
    ///
    /// One user may have written millions of messages, a room may have millions of others', and thousands of such pairs may be
    /// looked at. So the first message is looked for among those of the user or those of the room, whichever are fewer, from
    /// where anything is left in the room; `+ 0` keeps the planner from the other index. Times follow numbers within a room.
    /// The last one is almost always the one that it was before.
    ENDS("finding first and last messages") = concat!(
        "with pair as materialized ( \
            select p.sender, p.room, p.last, b.low, c.seq as high, s.since, u.messages < n.messages as is_by_user \
            from unnest($1, $2) as k (sender, room) \
            join pair_counts p on p.sender = k.sender and p.room = k.room \
            join counted c on c.room = k.room \
            left join user_counts u on u.sender = k.sender \
            left join room_counts n on n.room = k.room \
            cross join lateral (", newest_version!("v.oldest", "no", "k.room"), ") r \
            cross join lateral (select least(r.oldest, (select min(t.first_seq) from takeouts t \
                where t.room = k.room and not t.counted_out and t.no <> all($3))) as low offset 0) b \
            cross join lateral (select greatest(p.first, m.received_at) as since from messages m \
                where m.room = k.room and m.seq >= b.low and m.received_at <= p.last order by m.seq limit 1) s), \
        found as materialized ( \
            select pair.sender, pair.room, \
                case when pair.is_by_user \
                    then (", counted_messages!("", " + 0"), " order by m.received_at limit 1) \
                    else (", counted_messages!(" + 0", ""), " order by m.seq limit 1) end as first, \
                (", counted_messages!("", " + 0"), " order by m.received_at desc limit 1) as last \
            from pair) \
        update pair_counts p set first = found.first, last = found.last from found \
        where p.sender = found.sender and p.room = found.room and found.first is not null"
    );

    ROOMS("recounting rooms") =
        "with gone as (delete from room_counts c where room = any($1) \
             and not exists (select from pair_counts p where p.room = c.room)) \
         insert into room_counts (room, messages, users, first, last) \
         select room, sum(messages), count(*), min(first), max(last) from pair_counts \
         where room = any($1) group by room \
         on conflict (room) do update set messages = excluded.messages, users = excluded.users, \
             first = excluded.first, last = excluded.last";

    USERS("recounting users") =
        "with gone as (delete from user_counts c where sender = any($1) \
             and not exists (select from pair_counts p where p.sender = c.sender)) \
         insert into user_counts (sender, messages, rooms, first, last) \
         select sender, sum(messages), count(*), min(first), max(last) from pair_counts \
         where sender = any($1) group by sender \
         on conflict (sender) do update set messages = excluded.messages, rooms = excluded.rooms, \
             first = excluded.first, last = excluded.last";

    MARK_UNCOUNTED("marking uncounted messages") =
        "update takeouts set counted_out = true where no = any($1)";

    PENDING("finding messages to uncount") = "select exists (select from takeouts where not counted_out)";

    /// Skips messages that are dropped with their partition.
    NEXT_ENTRY("finding pending deletes") =
        "select no, room, partition from takeouts t where counted_out and not exists ( \
             select from partitions p where p.begins = t.partition) order by no limit 1";

    /// Deletes entries whose messages went with their partition. Each room has one.
    DELETE_GONE("deleting messages") =
        "delete from takeouts where no in (select no from takeouts t \
             where no >= $1 and counted_out and partition = $2 and not exists ( \
                 select from messages m where m.room = t.room and m.seq between t.first_seq and t.last_seq) \
             order by no limit $3)";

    /// Makes writers of the room and its ids wait, so that no two lock the same rows in different orders.
    LOCK_ROOM("locking a room") = "select from rooms where no = $1 for no key update";

    /// Keeps an id that belongs to another message by now.
    DELETE_MESSAGES("deleting messages") =
        "with chosen as ( \
             select m.room, m.seq, m.received_at from takeouts t join messages m on m.room = t.room \
                 and m.seq between t.first_seq and t.last_seq and (t.sender is null or t.sender = m.sender) \
             where t.no = $1 limit $2), \
         gone as ( \
             delete from messages m using chosen \
             where m.room = chosen.room and m.seq = chosen.seq and m.received_at = chosen.received_at \
             returning m.room, m.seq, m.message_id), \
         ids as ( \
             delete from message_ids i using gone where i.room = gone.room and i.seq = gone.seq \
                 and i.id_hash = encode(substring(sha256(convert_to(gone.message_id, 'UTF8')) for 16), 'hex')::uuid) \
         select count(*) from gone";

    DELETE_ENTRY("deleting messages") = "delete from takeouts where no = $1";
}

/// Whether a hidden message is still counted.
pub(super) async fn are_pending(db: &Db) -> Result<bool> {
    Ok(db.read_one(&PENDING, &[]).await?.get(0))
}

/// Uncounts some pending deletes. Returns whether there were any.
pub(super) async fn uncount_step(db: &Db, size: &mut StepSize, waits_for_lock: bool) -> Result<bool> {
    let (rows, messages) = (size.of(ROWS), size.of(STEP));
    let uncounting = db.run(UNCOUNT.what, async |tx| {
        if !rollup::lock(tx, waits_for_lock).await? {
            return Ok(false);
        }
        tx.execute(&SPLIT, &[&messages, &rows]).await?;
        let chosen = choose(tx, rows, messages).await?;
        if !chosen.is_empty() {
            uncount(tx, &chosen).await?;
        }
        Ok(!chosen.is_empty())
    });
    let uncounted = uncounting.await;
    size.record(&uncounted);
    uncounted
}

/// Chooses so many pending deletes at most, of about so many messages together.
async fn choose(tx: &Tx<'_>, rows: i64, messages: i64) -> Result<Vec<i64>> {
    let mut chosen = Vec::new();
    let mut sum: i64 = 0;
    for row in tx.query(&CHOOSE, &[&rows]).await? {
        sum = sum.saturating_add(row.get(1));
        if sum > messages && !chosen.is_empty() {
            break;
        }
        chosen.push(row.get(0));
    }
    Ok(chosen)
}

async fn uncount(tx: &Tx<'_>, chosen: &[i64]) -> Result<()> {
    let (mut rooms, mut users) = (BTreeSet::new(), BTreeSet::new());
    let mut remaining = Vec::new();
    for row in tx.query(&UNCOUNT, &[&chosen]).await? {
        let (sender, room, left): (i32, i32, i64) = (row.get(0), row.get(1), row.get(2));
        rooms.insert(room);
        users.insert(sender);
        if left > 0 {
            remaining.push((sender, room));
        }
    }
    let (rooms, users): (Vec<i32>, Vec<i32>) = (rooms.into_iter().collect(), users.into_iter().collect());
    let (left_senders, left_rooms): (Vec<i32>, Vec<i32>) = remaining.into_iter().unzip();
    // What is looked up by keys is not searched for in other ways.
    tx.batch(ENDS.what, WALKING).await?;
    tx.execute_for(&ENDS, &[&left_senders, &left_rooms, &chosen]).await?;
    tx.execute(&ROOMS, &[&rooms]).await?;
    tx.execute(&USERS, &[&users]).await?;
    tx.execute(&MARK_UNCOUNTED, &[&chosen]).await.map(drop)
}

/// Deletes some uncounted messages. Returns whether there were any.
pub(super) async fn delete_messages(db: &Db, waits_for_lock: bool) -> Result<bool> {
    let deleting = db.run(DELETE_MESSAGES.what, async |tx| {
        if !rollup::lock(tx, waits_for_lock).await? {
            return Ok(false);
        }
        let Some(row) = tx.query_opt(&NEXT_ENTRY, &[]).await? else { return Ok(false) };
        let (no, room, partition): (i64, i32, Option<PgTime>) = (row.get(0), row.get(1), row.get(2));
        if let Some(partition) = partition
            && tx.execute(&DELETE_GONE, &[&no, &partition, &ENTRIES_MAX]).await? > 0
        {
            return Ok(true);
        }
        tx.execute(&LOCK_ROOM, &[&room]).await?;
        let gone: i64 = tx.query_one(&DELETE_MESSAGES, &[&no, &DELETES_MAX]).await?.get(0);
        if gone < DELETES_MAX {
            tx.execute(&DELETE_ENTRY, &[&no]).await?;
        }
        Ok(true)
    });
    deleting.await
}
