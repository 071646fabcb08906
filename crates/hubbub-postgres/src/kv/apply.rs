//! A batch as one transaction.

use futures_util::future::{try_join, try_join3};
use hubbub_core::rules::keys::{ExpiredKeys, KeyVersion, decide};
use hubbub_core::{KvOp, Outcome, Timestamp};
use tokio_postgres::Row;

use super::Kv;
use super::lists::{letter, number, revision};
use super::puts::Puts;
use super::working_set::WorkingSet;
use crate::db::{DbError, Failure, PgTime, Sql, Tx};

/// Keys that one batch sweeps at most, so that no commit takes long.
const SWEPT_MAX: usize = 1_000;

/// Held by whoever changes keys, until the commit. Sent as it is, because what follows may be sent before it is answered,
/// and must not overtake it.
pub(super) const LOCK: &str = "select pg_advisory_xact_lock(716161617, 3)";

const READ: Sql = Sql {
    what: "reading versions of keys",
    text: "select head, k.key, k.revision, k.expires_at \
           from (select coalesce(max(revision), 0) as head from kv_changes) h left join kv k on k.key = any($1)",
};

const READ_EXPIRED: Sql = Sql {
    what: "reading which keys have expired",
    text: "select key, revision, expires_at from kv where expires_at <= $1 order by expires_at, revision limit $2",
};

const READ_DUE: Sql = Sql {
    what: "reading when the next key expires",
    text: "select min(expires_at) from kv where expires_at is not null",
};

const PUT: Sql = Sql {
    what: "putting keys",
    text: "insert into kv (key, value, revision, expires_at) select * from unnest($1, $2, $3, $4) \
           on conflict (key) do update \
           set value = excluded.value, revision = excluded.revision, expires_at = excluded.expires_at",
};

const DELETE: Sql = Sql { what: "deleting keys", text: "delete from kv where key = any($1)" };

const LOG: Sql = Sql {
    what: "logging changes of keys",
    text: "insert into kv_changes (revision, key, what) select * from unnest($1, $2, $3)",
};

/// What a transaction committed.
pub(super) struct Done {
    pub(super) outcomes: Vec<Outcome>,
    pub(super) revision: u64,
    /// The first expiry that was set.
    pub(super) expires_at: Option<Timestamp>,
    /// After a sweep: when the next key expires.
    pub(super) due: Option<Option<Timestamp>>,
}

/// Keeps others who change keys waiting until the commit. What is sent behind it sees all that they did.
async fn lock(tx: &Tx<'_>) -> Result<(), DbError> {
    tx.batch("waiting for others who change keys", LOCK).await
}

impl Kv {
    /// Does operations in their order, in one transaction.
    pub(crate) async fn apply(&self, ops: &[KvOp<'_>]) -> Result<Vec<Outcome>, Failure> {
        let clock = &*self.context.clock;
        let now = clock.now();
        let db = &self.context.db;
        let done = match Puts::of(ops, now) {
            Some(puts) => puts.apply(db).await?,
            None => {
                db.transact("changing keys", async |tx: &Tx<'_>| work(tx, ops, (now, clock.proven())).await)
                    .await?
            }
        };
        match done.due {
            Some(due) => self.position.observe_due(done.revision, due),
            None => self.position.record_commit(done.revision, done.expires_at),
        }
        Ok(done.outcomes)
    }
}

/// Sweeps what has expired by `proven`; what is deleted is gone for good.
async fn work(tx: &Tx<'_>, ops: &[KvOp<'_>], (now, proven): (Timestamp, Timestamp)) -> Result<Done, DbError> {
    let mut keys: Vec<&[u8]> = ops.iter().filter_map(KvOp::key).collect();
    keys.sort_unstable();
    keys.dedup();
    let is_sweeping = ops.iter().any(|op| matches!(op, KvOp::Sweep));
    let ((), rows) = try_join(lock(tx), tx.query(&READ, &[&keys])).await?;
    let expired = match is_sweeping {
        true => tx.query(&READ_EXPIRED, &[&PgTime(proven), &number(SWEPT_MAX as u64 + 1)]).await?,
        false => Vec::new(),
    };
    let mut set = working_set(&rows, &expired);
    let outcomes = ops
        .iter()
        .map(|op| {
            let Ok(decision) = decide(&mut set, op, now);
            set.apply(decision.changes.as_slice());
            decision.outcome
        })
        .collect();
    let expires_at = write(tx, &set).await?;
    let due = match is_sweeping {
        true => Some(tx.query_one(&READ_DUE, &[]).await?.get::<_, Option<PgTime>>(0).map(|due| due.0)),
        false => None,
    };
    Ok(Done { outcomes, revision: set.revision, expires_at, due })
}

/// From the rows of [`READ`] and [`READ_EXPIRED`].
fn working_set<'a>(rows: &'a [Row], over: &'a [Row]) -> WorkingSet<'a> {
    let head = rows.first().map_or(0, |row| revision(row.get(0)));
    let version = |at: i64, expires_at: Option<PgTime>| KeyVersion {
        revision: revision(at),
        expires_at: expires_at.map(|at| at.0),
    };
    let stored = rows.iter().filter_map(|row| {
        let key = row.get::<_, Option<&[u8]>>(1)?;
        Some((key, version(row.get(2), row.get(3))))
    });
    let swept = over.iter().take(SWEPT_MAX).map(|row| (row.get(0), version(row.get(1), row.get(2))));
    let expired = ExpiredKeys { keys: swept.collect(), has_more: over.len() > SWEPT_MAX };
    WorkingSet::new(head, stored.collect(), expired)
}

/// Writes what changed. Returns the first expiry that was set.
async fn write(tx: &Tx<'_>, set: &WorkingSet<'_>) -> Result<Option<Timestamp>, DbError> {
    if set.changes.is_empty() {
        return Ok(None);
    }
    let (puts, gone) = set.written();
    let keys: Vec<&[u8]> = puts.iter().map(|put| put.key).collect();
    let values: Vec<&[u8]> = puts.iter().map(|put| put.value).collect();
    let revisions: Vec<i64> = puts.iter().map(|put| number(put.revision)).collect();
    let times: Vec<Option<PgTime>> = puts.iter().map(|put| put.expires_at.map(PgTime)).collect();
    let logged: Vec<i64> = set.changes.iter().map(|change| number(change.revision)).collect();
    let changed: Vec<&[u8]> = set.changes.iter().map(|change| change.key).collect();
    let whats: Vec<i8> = set.changes.iter().map(|change| letter(change.what)).collect();
    let put = async {
        if !keys.is_empty() {
            tx.execute(&PUT, &[&keys, &values, &revisions, &times]).await?;
        }
        Ok(())
    };
    let delete = async {
        if !gone.is_empty() {
            tx.execute(&DELETE, &[&gone]).await?;
        }
        Ok(())
    };
    try_join3(put, delete, tx.execute(&LOG, &[&logged, &changed, &whats])).await?;
    Ok(times.iter().flatten().min().map(|first| first.0))
}
