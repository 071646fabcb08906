//! Counts new messages.
//!
//! Numbers are assigned under the lock of a room's row. So everything up to a visible head is committed, and counting from the
//! last counted number to the head misses nothing, however late a writer commits. A step counts a bounded number of
//! messages of any rooms, under a lock: it reads heads, and counts up to them in another statement. In the same one, messages
//! of a partition made meanwhile could be missing, since the snapshot of a statement is newer than its plan.
//!
//! Most of the cost is rows of counts. Messages of one room share many of them, those of different rooms few: 200 messages
//! of each of 25 rooms take a tenth of the time of five messages of each of 1,000. So, unless a query needs it, a room is
//! counted once it has enough new messages, or if it was not counted for a while ([`RollupScope::Due`]).

use std::time::Duration;

use hubbub_core::Timestamp;
use hubbub_core::invariant::saturate;

use crate::db::{Db, PgTime, Result, Tx, WALKING, statements};

/// Most messages counted in one step. More would occupy a core and the disk for too long.
const STEP: i64 = 5_000;

/// A room with so many uncounted messages is due.
const ROOM_DUE: i64 = 200;

/// A room with any uncounted message is due if its newest counted message is older than this.
const DUE_AFTER: Duration = Duration::from_secs(30);

/// Most uncounted messages of all rooms. Beyond that, the rooms that waited longest are due. A query waits for them: up to two
/// seconds if few are of the same room and user.
const WAITING_MAX: i64 = 30_000;

/// Chooses ranges of numbers by the heads of `$rooms`, those first that waited longest. Rooms with pending deletes do not wait:
/// messages stay on disk until they are counted.
macro_rules! choose_messages {
    ($with:literal, $rooms:literal) => {
        concat!(
            $with,
            " waiting as ( \
      select r.no as room, coalesce(c.seq, 0) as low, r.head as head, \
          coalesce(c.received_at, '-infinity') as since, \
          sum(r.head - coalesce(c.seq, 0)) over \
              (order by coalesce(c.received_at, '-infinity') desc, r.no desc) as no_longer \
      from ",
            $rooms,
            " r left join counted c on c.room = r.no where r.head > coalesce(c.seq, 0)), \
  behind as materialized ( \
      select room, low, head, since, (sum(head - low) over (order by since, room))::int8 as total \
      from waiting where head - low >= $2 or since < $3 or no_longer > $4 \
          or room in (select room from takeouts where not counted_out)), \
  span as ( \
      select room, low, least(head, low + $1 - (total - (head - low))) as high, since from behind \
      where total - (head - low) < $1) \
  select (select coalesce(max(total), 0) from behind), coalesce(array_agg(room), '{}'), coalesce(array_agg(low), '{}'), \
      coalesce(array_agg(high), '{}'), coalesce(array_agg(nullif(since, '-infinity')), '{}') from span"
        )
    };
}

statements! {
    /// Everybody who changes counts holds this lock until the end of the transaction. The number is arbitrary.
    LOCK("waiting for others who count") = "select pg_advisory_xact_lock(7161616176)";

    TRY_LOCK("counting") = "select pg_try_advisory_xact_lock(7161616176)";

    /// Whether going from room to room takes less than reading the table, which beside an open snapshot is full of replaced
    /// versions: it has more pages than rooms, whose numbers are consecutive.
    IS_CROWDED("looking at the size of the table of rooms") = "select pg_relation_size('rooms') / 8192 \
        > 64 + coalesce((select no from rooms order by no desc limit 1), 0)";

    CHOOSE("choosing messages to count") = choose_messages!("with", "rooms");

    /// The same where the table is crowded. The newest version of a room is its last one in the index.
    CHOOSE_OF_CROWDED("choosing messages to count") = choose_messages!(
        "with recursive newest (no, head) as ( \
      (select v.no, v.head from rooms v order by v.no desc, v.turn desc limit 1) \
      union all select v.no, v.head from newest n cross join lateral ( \
          select v.no, v.head from rooms v where v.no < n.no order by v.no desc, v.turn desc limit 1) v),",
        "newest"
    );

    /// `offset 0` makes the planner look up the messages range by range, whatever it estimates.
    COUNT_NEW("counting messages") = "with span as materialized ( \
      select room, low, high, coalesce(since, '-infinity') as since \
      from unnest($1, $2, $3, $4) as chosen (room, low, high, since)), \
  new as materialized ( \
      select m.room, m.sender, m.kind, m.received_at, m.hour from span s cross join lateral ( \
          select m.room, m.sender, m.kind::int4 as kind, m.received_at, \
              date_bin('1 hour', m.received_at, 'epoch') as hour \
          from messages m where m.room = s.room and m.seq > s.low and m.seq <= s.high \
              and m.received_at >= s.since offset 0) m), \
  pairs as ( \
      insert into pair_counts as c (sender, room, messages, first, last) \
      select sender, room, count(*), min(received_at), max(received_at) from new \
      group by sender, room order by sender, room \
      on conflict (sender, room) do update set messages = c.messages + excluded.messages, \
          first = least(c.first, excluded.first), last = greatest(c.last, excluded.last) \
      returning c.sender, c.room, c.xmax = 0 as is_new), \
  by_room as ( \
      insert into room_counts as c (room, messages, users, first, last) \
      select n.room, n.messages, coalesce(p.users, 0), n.first, n.last from ( \
          select room, count(*) as messages, min(received_at) as first, max(received_at) as last \
          from new group by room) n \
      left join (select room, count(*) as users from pairs where is_new group by room) p using (room) \
      on conflict (room) do update set messages = c.messages + excluded.messages, \
          users = c.users + excluded.users, \
          first = least(c.first, excluded.first), last = greatest(c.last, excluded.last)), \
  by_user as ( \
      insert into user_counts as c (sender, messages, rooms, first, last) \
      select n.sender, n.messages, coalesce(p.rooms, 0), n.first, n.last from ( \
          select sender, count(*) as messages, min(received_at) as first, max(received_at) as last \
          from new group by sender) n \
      left join (select sender, count(*) as rooms from pairs where is_new group by sender) p using (sender) \
      on conflict (sender) do update set messages = c.messages + excluded.messages, \
          rooms = c.rooms + excluded.rooms, \
          first = least(c.first, excluded.first), last = greatest(c.last, excluded.last)), \
  by_hour as ( \
      insert into hour_counts as c (hour, texts, joins, leaves) \
      select hour, count(*) filter (where kind = 0), count(*) filter (where kind = 1), \
          count(*) filter (where kind = 2) from new group by hour \
      on conflict (hour) do update set texts = c.texts + excluded.texts, \
          joins = c.joins + excluded.joins, leaves = c.leaves + excluded.leaves), \
  by_hour_room as ( \
      insert into hour_room_counts as c (hour, room, messages) \
      select hour, room, count(*) from new group by hour, room \
      on conflict (hour, room) do update set messages = c.messages + excluded.messages), \
  by_hour_user as ( \
      insert into hour_users as c (hour, block, users) \
      select hour, sender / 1024, bit_or(set_bit(B'0'::bit(1024), sender % 1024, 1)) \
      from (select distinct hour, sender from new) n group by hour, sender / 1024 \
      on conflict (hour, block) do update set users = c.users | excluded.users \
          where c.users <> c.users | excluded.users), \
  marks as ( \
      insert into counted as c (room, seq, received_at) \
      select s.room, s.high, coalesce(n.last, s.since) from span s \
      left join (select room, max(received_at) as last from new group by room) n using (room) \
      on conflict (room) do update set seq = excluded.seq, received_at = excluded.received_at) \
  select from span limit 0";
}

statements! {
    /// Up to when nothing is missing: a room that was never counted has messages since the oldest partition at most. Nobody knows
    /// while hidden messages are still counted.
    COUNTED_TO("looking up to when messages are counted") =
        "select case when not exists (select from takeouts where not counted_out) then ( \
             select min(coalesce(c.received_at, (select min(begins) from partitions))) \
             from rooms r left join counted c on c.room = r.no where r.head > coalesce(c.seq, 0)) end";
}

/// Which messages a step counts.
#[derive(Debug, Clone, Copy)]
pub(super) enum RollupScope {
    /// Everything.
    All,
    /// Those of rooms that are due at this time.
    Due(Timestamp),
}

/// What a step left to count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RollupStep {
    /// Nothing in scope that was committed when the step began.
    Done,
    More,
    /// Nothing was done: another transaction holds the lock.
    Busy,
}

/// Takes the lock for changing counts. Returns whether it has it.
pub(super) async fn lock(tx: &Tx<'_>, waits_for_lock: bool) -> Result<bool> {
    if waits_for_lock {
        tx.execute(&LOCK, &[]).await?;
        return Ok(true);
    }
    Ok(tx.query_one(&TRY_LOCK, &[]).await?.get(0))
}

/// Until when everything that was received is counted, where something is left to count; long ago, if that is not known.
pub(super) async fn counted_to(db: &Db) -> Result<Timestamp> {
    let row = db.read_one(&COUNTED_TO, &[]).await?;
    // Others may have been received in the same microsecond.
    let before = |time: PgTime| Timestamp::from_micros(time.0.as_micros().saturating_sub(1));
    Ok(row.get::<_, Option<PgTime>>(0).map_or(Timestamp::default(), before))
}

/// Counts a bounded number of messages.
pub(super) async fn step(db: &Db, scope: RollupScope, waits_for_lock: bool) -> Result<RollupStep> {
    let (room_due, due_since) = match scope {
        RollupScope::All => (1, Timestamp::default()),
        RollupScope::Due(now) => {
            let waited: i64 = saturate(DUE_AFTER.as_micros());
            (ROOM_DUE, Timestamp::from_micros(now.as_micros().saturating_sub(waited)))
        }
    };
    let counting = db.run(COUNT_NEW.what, async |tx| {
        if !lock(tx, waits_for_lock).await? {
            return Ok(RollupStep::Busy);
        }
        let choosing = if tx.query_one(&IS_CROWDED, &[]).await?.get(0) {
            tx.batch(CHOOSE_OF_CROWDED.what, WALKING).await?;
            &CHOOSE_OF_CROWDED
        } else {
            &CHOOSE
        };
        let row = tx.query_one(choosing, &[&STEP, &room_due, &PgTime(due_since), &WAITING_MAX]).await?;
        let due: i64 = row.get(0);
        let (rooms, after, through): (Vec<i32>, Vec<i64>, Vec<i64>) = (row.get(1), row.get(2), row.get(3));
        let sinces: Vec<Option<PgTime>> = row.get(4);
        tx.execute_for(&COUNT_NEW, &[&rooms, &after, &through, &sinces]).await?;
        let counted: i64 =
            through.iter().zip(&after).map(|(through, after)| through.saturating_sub(*after)).sum();
        Ok(if counted < due { RollupStep::More } else { RollupStep::Done })
    });
    counting.await
}
