//! Takes operations of rooms from a log outside the process, each exactly once.
//!
//! The next offset of each partition is a row. A transaction locks the rows of its partitions first ([`Fence::lock`]), skips
//! what is executed already, and moves them with what it writes ([`advance`]). So a repeat, by whomever, changes nothing.
//! The fence needs no ownership of partitions, and numbers stay dense.
//!
//! Without positions, the statement that locks rooms also reads whether a log is attached. Attaching locks the table of
//! rooms, so it waits for transactions that did not see it, and those that wait for it do see it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use hubbub_core::invariant::saturate;
use hubbub_core::log_position::{Attached, NextOffset, not_attached, past_the_log};
use hubbub_core::store::{ApplyError, Read, ReadError};
use hubbub_core::{LogIdentity, LogPosition, LogStore};
use tokio_postgres::Row;

use crate::db::{Db, DbError, Result, Tx, statements};
use crate::store::Postgres;

statements! {
    ATTACHED("reading the attached log") = "select id, partitions from attached_log";
    PARTITIONS("reading the attached log") = "select partitions from attached_log";
    LOCK_ROOMS("waiting for the writers of rooms") = "lock table rooms in exclusive mode";
    ATTACH("attaching the log") = "insert into attached_log (id, partitions) values ($1, $2)";
    ADD_OFFSETS("adding the partitions of the log") =
        "insert into log_offsets (partition) select generate_series(0, $1 - 1)";

    OFFSETS("reading the next offsets of the log") =
        "select next_offset from attached_log l cross join generate_series(0, l.partitions - 1) n \
         left join log_offsets o on o.partition = n order by n";
    LOCK("locking partitions of the log") =
        "select partition, next_offset from log_offsets where partition = any($1) order by partition for update";
    ADVANCE("moving the next offsets of the log") =
        "update log_offsets o set next_offset = new.next_offset from unnest($1, $2) as new (partition, next_offset) \
         where o.partition = new.partition and o.next_offset < new.next_offset";
}

/// What this server knows of the attached log. A log is never detached.
#[derive(Debug, Default)]
pub(crate) struct LogState(AtomicU8);

/// No log is known. Another server may have attached one.
const UNKNOWN: u8 = 0;
/// A log is attached to the database.
const ATTACHED_BEFORE: u8 = 1;
/// This server attached it, or compared it.
const ATTACHED_HERE: u8 = 2;

impl LogState {
    pub(crate) async fn open(db: &Db) -> Result<Self> {
        let is_attached = !db.read(&ATTACHED, &[]).await?.is_empty();
        Ok(Self(AtomicU8::new(if is_attached { ATTACHED_BEFORE } else { UNKNOWN })))
    }

    /// Refuses operations that are known to be wrong without asking the database. The fence refuses the others.
    pub(crate) fn admit(&self, position: Option<LogPosition>) -> Result<(), ApplyError> {
        match (position, self.0.load(Ordering::Relaxed)) {
            (None, UNKNOWN) | (Some(_), ATTACHED_HERE) => Ok(()),
            (None, _) => Err(past_the_log()),
            (Some(_), _) => Err(not_attached()),
        }
    }
}

/// The locked partitions of a transaction.
#[derive(Debug, Default)]
pub(crate) struct Fence {
    next_offsets: BTreeMap<i32, Next>,
}

/// The next offset of a partition.
#[derive(Debug)]
struct Next {
    /// As the database has it.
    stored: i64,
    /// Behind what this transaction executes, too.
    wanted: i64,
}

impl Fence {
    /// Makes [`Self::lock`] send its statement when it is first polled, before any that is joined behind it.
    pub(crate) async fn prepare(tx: &Tx<'_>) -> Result<()> {
        tx.prepared(&LOCK, &[&Vec::<i32>::new()]).await
    }

    /// Locks the partitions to the end of the transaction, in the order of their numbers. Sends nothing without positions.
    pub(crate) async fn lock(tx: &Tx<'_>, positions: impl Iterator<Item = LogPosition>) -> Result<Self> {
        let wanted = ends(positions);
        let partitions: Vec<i32> = wanted.keys().copied().collect();
        let rows = tx.query_for(&LOCK, &[&partitions]).await?;
        let next = |row: &Row| Next { stored: row.get(1), wanted: row.get(1) };
        let next_offsets: BTreeMap<i32, Next> = rows.iter().map(|row| (row.get(0), next(row))).collect();
        match partitions.iter().find(|partition| !next_offsets.contains_key(partition)) {
            None => Ok(Self { next_offsets }),
            Some(partition) => {
                let reason = format!("the attached log has no partition {partition}");
                Err(DbError::Refused(ApplyError::Unavailable { reason }))
            }
        }
    }

    /// Whether the operations come from no log.
    pub(crate) fn is_empty(&self) -> bool {
        self.next_offsets.is_empty()
    }

    /// Whether the operation that stands there is to be executed; from then on it counts as executed. A batch may hold it
    /// twice, where a server submitted it again after it had lost the partition.
    pub(crate) fn admit(&mut self, position: Option<LogPosition>) -> bool {
        let Some(position) = position else { return true };
        let Some(next) = self.next_offsets.get_mut(&saturate(position.partition)) else { return true };
        let is_new = position.offset >= next.wanted.unsigned_abs();
        if is_new {
            next.wanted = saturate(position.offset.saturating_add(1));
        }
        is_new
    }

    /// Moves the partitions behind these positions. Sends nothing where all of them were executed before.
    pub(crate) async fn advance(
        &self,
        tx: &Tx<'_>,
        positions: impl Iterator<Item = LogPosition>,
    ) -> Result<()> {
        let is_further = |(partition, end): &(i32, i64)| {
            self.next_offsets.get(partition).is_none_or(|next| next.stored < *end)
        };
        let (partitions, ends): (Vec<i32>, Vec<i64>) = ends(positions).into_iter().filter(is_further).unzip();
        tx.execute_for(&ADVANCE, &[&partitions, &ends]).await.map(drop)
    }
}

/// The offset behind the last position of each partition.
fn ends(positions: impl Iterator<Item = LogPosition>) -> BTreeMap<i32, i64> {
    let mut ends = BTreeMap::new();
    for position in positions {
        let end = ends.entry(saturate(position.partition)).or_default();
        *end = saturate::<u64, i64>(position.offset.saturating_add(1)).max(*end);
    }
    ends
}

/// Number of partitions of the attached log.
pub(crate) async fn partitions(tx: &Tx<'_>) -> Result<u32> {
    let row = tx.query_one(&PARTITIONS, &[]).await?;
    Ok(saturate(row.get::<_, i32>(0)))
}

/// Records that operations were executed which no transaction could hold: they are refused for their content.
pub(crate) async fn pass_over(db: &Db, positions: &[LogPosition]) -> Result<(), ApplyError> {
    let passing = db.transact("passing over refused operations of the log", async |tx| {
        let fence = Fence::lock(tx, positions.iter().copied()).await?;
        fence.advance(tx, positions.iter().copied()).await
    });
    Ok(passing.await?)
}

impl LogStore for Postgres {
    fn attach(&self, log: LogIdentity) -> Read<'_, Attached> {
        Box::pin(async move {
            let attached = attach(&self.context.db, &log).await?;
            if !matches!(attached, Attached::Other(_)) {
                self.context.log.0.store(ATTACHED_HERE, Ordering::Relaxed);
            }
            Ok(attached)
        })
    }

    fn attached(&self) -> Read<'_, Option<LogIdentity>> {
        Box::pin(async move { Ok(self.context.db.read(&ATTACHED, &[]).await?.first().map(identity)) })
    }

    fn next_offsets(&self) -> Read<'_, Vec<NextOffset>> {
        Box::pin(async move {
            let rows = self.context.db.read(&OFFSETS, &[]).await?;
            let next = rows.iter().zip(0..).map(|(row, partition)| {
                let reason = || format!("log_offsets has no row for partition {partition}");
                let next = row.get::<_, Option<i64>>(0).map(i64::unsigned_abs);
                next.ok_or_else(|| ReadError::Unavailable { reason: reason() })
            });
            Ok(next.collect())
        })
    }

    fn place(&self) -> Arc<str> {
        self.context.history.place()
    }
}

fn identity(row: &Row) -> LogIdentity {
    LogIdentity { id: row.get(0), partitions: saturate(row.get::<_, i32>(1)) }
}

async fn attach(db: &Db, log: &LogIdentity) -> Result<Attached, ReadError> {
    let partitions = i32::try_from(log.partitions).ok().filter(|partitions| *partitions > 0);
    let Some(partitions) = partitions else {
        let reason = format!("attaching the log: {} is no number of partitions", log.partitions);
        return Err(ReadError::Unavailable { reason });
    };
    let compare = |row: &Row| {
        let found = identity(row);
        if found == *log { Attached::Same } else { Attached::Other(found) }
    };
    let attaching = db.run(ATTACH.what, async |tx| {
        if let Some(row) = tx.query_opt(&ATTACHED, &[]).await? {
            return Ok(compare(&row));
        }
        tx.execute(&LOCK_ROOMS, &[]).await?;
        // Another server may have attached one meanwhile.
        if let Some(row) = tx.query_opt(&ATTACHED, &[]).await? {
            return Ok(compare(&row));
        }
        tx.execute(&ATTACH, &[&log.id, &partitions]).await?;
        tx.execute(&ADD_OFFSETS, &[&partitions]).await?;
        Ok(Attached::New)
    });
    Ok(attaching.await?)
}
