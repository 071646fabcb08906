//! Retention: hides expired messages at once, then deletes them from the counts and the tables.
//!
//! Rooms with a retention of their own are trimmed exactly. Other rooms keep messages until their whole partition has
//! expired; then it is dropped. In both cases the rooms' `oldest` moves first, together with rows in `takeouts`, so the
//! counts follow as after any delete. A partition is dropped once nothing in it is visible or counted, and its ids are
//! deleted. If rooms that keep messages longer have some in it, the partition stays, and the others' messages are deleted
//! one by one.
//!
//! Messages are found first and hidden later. In between a room may be told to keep them after all, so what is found carries the
//! retention that it was found by, and is hidden only while the room still has it.
//!
//! Each step is bounded. A partition is detached and dropped in one transaction that gives up if it must wait longer than a
//! moment. `detach … concurrently` blocks nobody either, but it may wait for minutes, and leaves a half-detached table if
//! the server dies meanwhile.

use hubbub_core::Timestamp;
use hubbub_core::invariant::saturate;
use tokio_postgres::Row;

use super::LOCK;
use crate::db::{Db, Param, PgTime, Result, Sql, Tx, WALKING, statements};
use crate::rooms::next_version;
use crate::step_size::StepSize;
use crate::store::Context;

/// Most rooms searched in one step.
const ROOMS: i64 = 500;
/// Most messages of a room searched in one step.
const MESSAGES: i64 = 5_000;
/// Most pages of a partition whose ids are deleted in one step.
const PAGES: i64 = 100;
/// Most expired partitions searched in one step, including those that stay because of some rooms.
const PARTITIONS: i64 = 16;

statements! {
    /// The last expired message of rooms with a retention of their own. Looks at the oldest message first: most rooms have none that
    /// has expired, and nothing else of them is read.
    OWN("finding expired messages") =
        "select r.no, case when o.received_at < r.expired then (select max(m.seq) from ( \
                 select m.seq, m.received_at from messages m where m.room = r.no and m.seq >= r.oldest \
                 order by m.seq limit $3) m \
             where m.received_at < r.expired) end, r.retention_s \
         from (select no, oldest, retention_s, $1 - retention_s * interval '1 second' as expired from rooms \
             where retention_s is not null and not deleted and no > $2 order by no limit $4) r \
         left join lateral (select m.received_at from messages m where m.room = r.no and m.seq >= r.oldest \
             order by m.seq limit 1) o on true \
         order by r.no";

    EXPIRED("finding expired partitions") =
        "select begins, ends, name from partitions where ends <= $1 and begins > $2 order by begins limit $3";

    /// The last visible message in a partition, of rooms behind one that do not keep messages longer; and whether others have
    /// some in it. As of one moment: what neither of the two finds, behind no room, is nobody's.
    VISIBLE("finding expired messages") =
        "select exists (select from rooms r where r.retention_s > $3 and not r.deleted and exists ( \
             select from messages m where m.room = r.no and m.seq >= r.oldest \
                 and m.received_at >= $1 and m.received_at < $2)), v.no, v.last, v.retention_s \
         from (values (1)) one left join lateral ( \
             select r.no, m.last, r.retention_s from rooms r cross join lateral ( \
                 select max(m.seq) as last from messages m where m.room = r.no and m.seq >= r.oldest \
                     and m.received_at >= $1 and m.received_at < $2) m \
             where r.no > $5 and m.last is not null and (r.retention_s is null or r.retention_s <= $3) \
             order by r.no limit $4) v on true order by v.no";

    LOCK_ROOMS("locking rooms") = "select from rooms where no = any($1) order by no for update";

    /// Hides messages up to a number, unless the room has another retention by now. `oldest` becomes the next number that is not
    /// erased.
    HIDE("hiding expired messages") =
        concat!("with moved as materialized ( \
             select r.no, r.oldest as low, case \
                 when exists (select from erased e where e.room = r.no and e.seq = w.last + 1) then \
                     (select e.seq + 1 from erased e where e.room = r.no and e.seq > w.last and not exists ( \
                          select from erased next where next.room = e.room and next.seq = e.seq + 1) \
                      order by e.seq limit 1) \
                 else w.last + 1 end as high \
             from unnest($1, $2, $4) as w (room, last, retention_s) join rooms r on r.no = w.room \
                 and r.retention_s is not distinct from w.retention_s \
             where w.last >= r.oldest and w.last <= r.head), \
         gone as materialized ( \
             select m.no, m.low, m.high, (select count(*) from erased e \
                 where e.room = m.no and e.seq >= m.low and e.seq < m.high) as erased from moved m), \
         forgotten as (delete from erased e using gone g where e.room = g.no and e.seq < g.high), \
         noted as ( \
             insert into takeouts (room, first_seq, last_seq, partition) \
             select no, low, high - 1, $3 from gone), \
         changed as ( \
             update rooms r set ", next_version!(), ", oldest = g.high, erased = r.erased - g.erased, \
                 messages = r.messages - (g.high - g.low - g.erased), changes = r.changes + 1 \
             from gone g where r.no = g.no) \
         select count(*) from gone");

    /// Whether any hidden message is still counted, the pages of a partition, and those whose ids are deleted. Behind the lock, so
    /// a partition that is recorded is there.
    TO_REMOVE("looking at an expired partition") =
        "select exists (select from takeouts where not counted_out), \
             pg_relation_size(name::regclass) / current_setting('block_size')::int8, cleaned_pages \
         from partitions where begins = $1 and name = $2";

    /// Whether a partition has a visible message, or any hidden message is still counted.
    IN_USE("looking at an expired partition") =
        "select exists (select from takeouts where not counted_out) or exists (select from rooms r where exists ( \
             select from messages m where m.room = r.no and m.seq >= r.oldest \
                 and m.received_at >= $1 and m.received_at < $2))";

    DELETE_ENTRY("removing the record of a partition") = "delete from partitions where begins = $1";
}

struct ExpiredPartition {
    begins: PgTime,
    ends: PgTime,
    name: String,
}

/// Messages of a room that are too old, up to a number, and the room's retention that says so; `None` = it has none of its own.
struct ExpiredMessages {
    room: i32,
    last: i64,
    retention_s: Option<i64>,
}

/// Where a search continues that takes several steps: first in the rooms with a retention of their own, then in the expired
/// partitions. What it has passed is searched again by the next one.
#[derive(Debug, Default)]
pub(crate) struct SearchProgress {
    /// The last room searched, from which the search of rooms continues.
    room: i32,
    /// Whether all rooms were searched since something of a partition changed.
    has_all_rooms: bool,
    /// The beginning of the last partition searched.
    partition: Option<PgTime>,
    /// How far the rooms are gone through for the partition behind that.
    pass: Option<RoomPass>,
    /// The beginning of a partition in which nobody had a visible message: it is removed step by step.
    removing: Option<PgTime>,
    /// How many rooms are searched in a step.
    size: StepSize,
}

/// How far rooms are gone through that have visible messages in a partition.
#[derive(Debug, Clone, Copy)]
struct RoomPass {
    partition: PgTime,
    /// The last room.
    room: i32,
    has_changed: bool,
}

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SearchStep {
    /// Something was hidden or removed, and there may be more.
    Changed,
    /// Nothing was found so far.
    More,
    /// Nothing was found in the rest, either. The next step begins a new search.
    Done,
}

/// Runs one step.
pub(crate) async fn step(context: &Context, progress: &mut SearchProgress) -> Result<SearchStep> {
    let (db, mut size) = (&context.db, progress.size);
    // A drop cannot be undone, so it needs proven time.
    let now = context.clock.proven();
    let expiring = db.within("deleting expired messages", async {
        if !progress.has_all_rooms {
            let trimmed = trim_own(db, now, progress).await?;
            if trimmed != SearchStep::Done {
                return Ok(trimmed);
            }
        }
        let dropped = match context.options.retention {
            Some(kept) => drop_expired(db, now, saturate(kept.as_secs()), progress).await?,
            None => SearchStep::Done,
        };
        // Rooms do not wait until many partitions are removed.
        progress.has_all_rooms = dropped == SearchStep::More;
        Ok(dropped)
    });
    let done = expiring.await;
    size.record(&done);
    progress.size = size;
    done
}

async fn trim_own(db: &Db, now: Timestamp, progress: &mut SearchProgress) -> Result<SearchStep> {
    let most = progress.size.of(ROOMS);
    let rows = read(db, &OWN, &[&PgTime(now), &progress.room, &MESSAGES, &most]).await?;
    let is_last = saturate::<usize, i64>(rows.len()) < most;
    progress.room = if is_last { 0 } else { rows.last().map_or(0, |row| row.get(0)) };
    let found = rows.iter().filter_map(|row| {
        Some(ExpiredMessages {
            room: row.get(0),
            last: row.get::<_, Option<i64>>(1)?,
            retention_s: row.get(2),
        })
    });
    Ok(match hide(db, found, None).await? {
        true => SearchStep::Changed,
        false if is_last => SearchStep::Done,
        false => SearchStep::More,
    })
}

/// Rows of a query that goes from room to room. What is looked up by keys is not searched for in other ways.
async fn read(db: &Db, sql: &Sql, params: &[Param<'_>]) -> Result<Vec<Row>> {
    let reading = db.run(sql.what, async |tx| {
        tx.batch(sql.what, WALKING).await?;
        tx.query(sql, params).await
    });
    reading.await
}

/// Hides messages of rooms. They are deleted one by one, or with their partition.
async fn hide(
    db: &Db,
    found: impl Iterator<Item = ExpiredMessages>,
    partition: Option<PgTime>,
) -> Result<bool> {
    let (mut rooms, mut lasts, mut retentions) = (Vec::new(), Vec::new(), Vec::new());
    for ExpiredMessages { room, last, retention_s } in found {
        rooms.push(room);
        lasts.push(last);
        retentions.push(retention_s);
    }
    if rooms.is_empty() {
        return Ok(false);
    }
    let hiding = db.run(HIDE.what, async |tx| {
        tx.execute(&LOCK_ROOMS, &[&rooms]).await?;
        tx.query_one(&HIDE, &[&rooms, &lasts, &partition, &retentions]).await
    });
    Ok(hiding.await?.get::<_, i64>(0) > 0)
}

async fn drop_expired(
    db: &Db,
    now: Timestamp,
    kept_s: i64,
    progress: &mut SearchProgress,
) -> Result<SearchStep> {
    let cutoff = Timestamp::from_micros(now.as_micros().saturating_sub(kept_s.saturating_mul(1_000_000)));
    let after = progress.partition.unwrap_or(PgTime(Timestamp::MIN));
    let rows = db.read(&EXPIRED, &[&PgTime(cutoff), &after, &PARTITIONS]).await?;
    let is_last = saturate::<usize, i64>(rows.len()) < PARTITIONS;
    for row in rows {
        let old = ExpiredPartition { begins: row.get(0), ends: row.get(1), name: row.get(2) };
        let expired = expire_partition(db, &old, kept_s, progress).await?;
        if expired != SearchStep::Done {
            return Ok(expired);
        }
        progress.partition = Some(old.begins);
    }
    if is_last {
        progress.partition = None;
        return Ok(SearchStep::Done);
    }
    Ok(SearchStep::More)
}

/// Hides some messages of a partition, or removes some of it. [`SearchStep::Done`] = this partition stays as it is.
async fn expire_partition(
    db: &Db,
    old: &ExpiredPartition,
    kept_s: i64,
    progress: &mut SearchProgress,
) -> Result<SearchStep> {
    // Going through all rooms takes long, and removing the partition many steps. Whether somebody wrote to it is asked at the end.
    if progress.removing.take() == Some(old.begins) {
        return remove_next(db, old, progress).await;
    }
    let begin = RoomPass { partition: old.begins, room: 0, has_changed: false };
    let pass = progress.pass.take().filter(|pass| pass.partition == old.begins).unwrap_or(begin);
    let most = progress.size.of(ROOMS);
    let rows = read(db, &VISIBLE, &[&old.begins, &old.ends, &kept_s, &most, &pass.room]).await?;
    let is_kept = rows.iter().any(|row| row.get(0));
    let seen: Vec<ExpiredMessages> = rows
        .iter()
        .filter_map(|row| {
            let room = row.get::<_, Option<i32>>(1)?;
            Some(ExpiredMessages { room, last: row.get(2), retention_s: row.get(3) })
        })
        .collect();
    match seen.last().map(|seen| seen.room) {
        Some(last) => {
            let has_hidden = hide(db, seen.into_iter(), (!is_kept).then_some(old.begins)).await?;
            let has_changed = pass.has_changed || has_hidden;
            progress.pass = Some(RoomPass { room: last, has_changed, ..pass });
            Ok(if has_hidden { SearchStep::Changed } else { SearchStep::More })
        }
        // The rooms that were passed may have others by now.
        None if pass.has_changed => Ok(SearchStep::More),
        None if pass.room > 0 || is_kept => Ok(SearchStep::Done),
        None => remove_next(db, old, progress).await,
    }
}

/// Removes some of a partition in which nobody has a visible message, and goes on with that next.
async fn remove_next(db: &Db, old: &ExpiredPartition, progress: &mut SearchProgress) -> Result<SearchStep> {
    if !remove_partition_step(db, old).await? {
        return Ok(SearchStep::Done);
    }
    progress.removing = Some(old.begins);
    Ok(SearchStep::Changed)
}

/// Deletes some ids of a partition without visible messages, or drops the partition if all are deleted.
async fn remove_partition_step(db: &Db, old: &ExpiredPartition) -> Result<bool> {
    let removing = db.run("removing an expired partition", async |tx| {
        tx.execute(&LOCK, &[]).await?;
        // Another server may have dropped it.
        let Some(row) = tx.query_opt(&TO_REMOVE, &[&old.begins, &old.name]).await? else { return Ok(true) };
        let (is_counted, pages, cleaned): (bool, i64, i64) = (row.get(0), row.get(1), row.get(2));
        if is_counted {
            return Ok(false);
        }
        if cleaned >= pages {
            return drop_partition(tx, old).await;
        }
        remove_ids(tx, old, cleaned).await?;
        Ok(true)
    });
    removing.await
}

async fn remove_ids(tx: &Tx<'_>, old: &ExpiredPartition, from: i64) -> Result<()> {
    let name = &old.name;
    let to = from.saturating_add(PAGES);
    // Keeps an id that belongs to another message by now, and those of messages that came meanwhile.
    let text = format!(
        "delete from message_ids i using (select m.room, m.seq, m.message_id from {name} m \
             join rooms r on r.no = m.room and r.oldest > m.seq \
             where m.ctid >= '({from},0)' and m.ctid < '({to},0)') gone \
         where i.room = gone.room and i.seq = gone.seq \
             and i.id_hash = encode(substring(sha256(convert_to(gone.message_id, 'UTF8')) for 16), 'hex')::uuid; \
         update partitions set cleaned_pages = {to} where name = '{name}'"
    );
    tx.batch("deleting ids of expired messages", &text).await
}

/// Drops a partition, unless somebody is using it, or has written to it since it was looked at: what a log brings may be older
/// than what is kept.
async fn drop_partition(tx: &Tx<'_>, old: &ExpiredPartition) -> Result<bool> {
    let (what, name) = ("dropping an expired partition", &old.name);
    // Whoever writes to it has committed then, and others wait. Hardly anybody does so to what has expired; but a vacuum of the
    // database's own may be at work there, and gives way only to who has waited for `deadlock_timeout`.
    let lock = format!(
        "select set_config('lock_timeout', (setting::int8 + 500)::text, true) from pg_settings \
             where name = 'deadlock_timeout'; \
         lock table {name} in share mode; set local lock_timeout = '100ms'"
    );
    match tx.batch(what, &lock).await {
        Err(fault) if fault.is_lock_timeout() => return Ok(false),
        locked => locked?,
    }
    if tx.query_one(&IN_USE, &[&old.begins, &old.ends]).await?.get(0) {
        return Ok(false);
    }
    let text = format!("alter table messages detach partition {name}; drop table {name}");
    match tx.batch(what, &text).await {
        Err(fault) if fault.is_lock_timeout() => return Ok(false),
        dropped => dropped?,
    }
    tx.execute(&DELETE_ENTRY, &[&old.begins]).await?;
    tracing::info!(partition = name, "dropped a partition of expired messages");
    Ok(true)
}
