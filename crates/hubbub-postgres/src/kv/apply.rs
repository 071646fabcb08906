//! A batch as one transaction.

use std::collections::HashMap;
use std::convert::Infallible;

use futures_util::future::{try_join, try_join3};
use hubbub_core::kv::KvChanged;
use hubbub_core::rules::keys::{ExpiredKeys, KeyChange, KeyVersion, View, decide};
use hubbub_core::store::ApplyError;
use hubbub_core::{Clock, KvOp, Outcome, Timestamp};
use tokio_postgres::Row;

use super::Kv;
use super::lists::{letter, number, revision};
use super::puts::Puts;
use crate::db::{Failure, Param, PgTime, Result, Tx, column, statements};

/// Keys that one batch sweeps at most, so that no commit takes long.
const SWEPT_MAX: usize = 1_000;
/// Attempts at a batch while the lease changes hands.
const ATTEMPTS_MAX: usize = 16;

/// Held by whoever changes keys, until the commit. Sent as it is, because what follows may be sent before it is answered,
/// and must not overtake it.
pub(super) const LOCK: &str = "select pg_advisory_xact_lock(716161617, 3)";

statements! {
    READ("reading versions of keys") =
        // The head apart from the join: there the row of `kv_lease`, for which no index is, costs so much more than anything
        // else that the planner takes any way to the head for as good as another, and read all of `kv_changes`.
        "select (select coalesce(max(revision), 0) from kv_changes) as head, k.key, k.revision, k.expires_at, generation \
         from kv_lease left join kv k on k.key = any($1)";

    READ_EXPIRED("reading which keys have expired") =
        "select key, revision, expires_at from kv where expires_at <= $1 order by expires_at, revision limit $2";

    READ_DUE("reading when the next key expires") =
        "select min(expires_at) from kv where expires_at is not null";

    PUT("putting keys") =
        "insert into kv (key, value, revision, expires_at) select * from unnest($1, $2, $3, $4) \
         on conflict (key) do update \
         set value = excluded.value, revision = excluded.revision, expires_at = excluded.expires_at";

    DELETE("deleting keys") = "delete from kv where key = any($1)";

    LOG("logging changes of keys") =
        "insert into kv_changes (revision, key, what, knows_lease) select n.*, true from unnest($1, $2, $3) n";
}

/// What a transaction committed.
pub(super) struct Done {
    /// The last revision before it.
    pub(super) head: u64,
    pub(super) outcomes: Vec<Outcome>,
    pub(super) revision: u64,
    pub(super) expires_at: Option<Timestamp>,
    /// After a sweep: when the next key expires.
    pub(super) due: Option<Option<Timestamp>>,
}

impl Kv {
    /// Does operations in their order, in one transaction.
    pub(crate) async fn apply(&self, ops: &[KvOp<'_>]) -> Result<Vec<Outcome>, Failure> {
        for _ in 0..ATTEMPTS_MAX {
            let generation = self.lease.writable(self.context.options.apply_timeout).await?;
            let known = self.position.revision();
            let done = self.apply_in(generation, ops).await.inspect_err(|failure| {
                if matches!(failure, Failure::Other(ApplyError::Unconfirmed { .. })) {
                    self.lease.mark_uncertain(generation);
                }
            });
            let Some(done) = done? else {
                self.lease.mark_superseded(generation);
                continue;
            };
            if done.head < known {
                self.lease.mark_uncertain(generation);
            }
            match done.due {
                Some(due) => self.position.observe_due(done.revision, due),
                None => self.position.record_commit(done.revision, done.expires_at),
            }
            return Ok(done.outcomes);
        }
        let reason = "servers take turns in being the only one that may change keys".into();
        Err(ApplyError::Unavailable { reason }.into())
    }

    /// `None` = the lease has another generation; nothing was done.
    async fn apply_in(&self, generation: i64, ops: &[KvOp<'_>]) -> Result<Option<Done>, Failure> {
        let clock = &*self.context.clock;
        let now = clock.now();
        let db = &self.context.db;
        if let Some(puts) = Puts::of(ops, now) {
            return puts.apply(db, generation).await;
        }
        db.transact("changing keys", async |tx: &Tx<'_>| work(tx, generation, ops, clock).await).await
    }
}

/// Sweeps what has expired by proven time; what is deleted is gone for good.
async fn work(tx: &Tx<'_>, generation: i64, ops: &[KvOp<'_>], clock: &dyn Clock) -> Result<Option<Done>> {
    let mut keys: Vec<&[u8]> = ops.iter().filter_map(KvOp::key).collect();
    keys.sort_unstable();
    keys.dedup();
    let is_sweeping = ops.iter().any(|op| matches!(op, KvOp::Sweep));
    // What is sent behind the lock sees all that others did who had it.
    let locking = tx.batch("waiting for others who change keys", LOCK);
    let ((), rows) = try_join(locking, tx.query(&READ, &[&keys])).await?;
    if rows.first().is_none_or(|row| row.get::<_, i64>(4) != generation) {
        return Ok(None);
    }
    // Behind the lock: whoever had it may have had it for long.
    let (now, proven) = (clock.now(), clock.proven());
    let expired = match is_sweeping {
        true => tx.query(&READ_EXPIRED, &[&PgTime(proven), &number(SWEPT_MAX as u64 + 1)]).await?,
        false => Vec::new(),
    };
    let mut set = working_set(&rows, &expired);
    let head = set.revision;
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
    Ok(Some(Done { head, outcomes, revision: set.revision, expires_at, due }))
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
async fn write(tx: &Tx<'_>, set: &WorkingSet<'_>) -> Result<Option<Timestamp>> {
    let (puts, gone) = set.written();
    let times = column(&puts, |put| put.expires_at.map(PgTime));
    let put: [Param<'_>; 4] = [
        &column(&puts, |put| put.key),
        &column(&puts, |put| put.value),
        &column(&puts, |put| number(put.revision)),
        &times,
    ];
    let delete: [Param<'_>; 1] = [&gone];
    let log: [Param<'_>; 3] = [
        &column(&set.changes, |change| number(change.revision)),
        &column(&set.changes, |change| change.key),
        &column(&set.changes, |change| letter(change.what)),
    ];
    try_join3(tx.execute_for(&PUT, &put), tx.execute_for(&DELETE, &delete), tx.execute_for(&LOG, &log))
        .await?;
    Ok(times.iter().flatten().min().map(|first| first.0))
}

/// The keys of a batch. Everything that it names was loaded before, so nothing is missing.
#[derive(Debug)]
struct WorkingSet<'a> {
    revision: u64,
    versions: HashMap<&'a [u8], KeyVersion>,
    expired: ExpiredKeys<'a>,
    /// What the operations changed, in the order of the revisions.
    changes: Vec<KeyChange<'a>>,
}

impl<'a> WorkingSet<'a> {
    /// The state after `revision`, with the versions of all keys that the batch names and of those that it sweeps.
    fn new(revision: u64, mut versions: HashMap<&'a [u8], KeyVersion>, expired: ExpiredKeys<'a>) -> Self {
        versions.extend(expired.keys.iter().copied());
        Self { revision, versions, expired, changes: Vec::new() }
    }

    /// Applies the changes of one operation.
    fn apply(&mut self, changes: &[KeyChange<'a>]) {
        for change in changes {
            self.revision = change.revision;
            match change.version() {
                Some(version) => self.versions.insert(change.key, version),
                None => self.versions.remove(change.key),
            };
        }
        self.changes.extend_from_slice(changes);
    }

    /// The last change of each key, divided into puts and deletions.
    fn written(&self) -> (Vec<&KeyChange<'a>>, Vec<&'a [u8]>) {
        let last: HashMap<&[u8], u64> =
            self.changes.iter().map(|change| (change.key, change.revision)).collect();
        let is_last = |change: &&KeyChange<'_>| last.get(change.key) == Some(&change.revision);
        let (puts, gone): (Vec<_>, Vec<_>) =
            self.changes.iter().filter(is_last).partition(|change| change.what == KvChanged::Put);
        (puts, gone.into_iter().map(|change| change.key).collect())
    }
}

impl<'a> View<'a> for WorkingSet<'a> {
    type LoadRequest = Infallible;

    fn version(&self, key: &[u8]) -> Result<Option<KeyVersion>, Infallible> {
        Ok(self.versions.get(key).copied())
    }

    fn revision(&self) -> u64 {
        self.revision
    }

    fn take_expired(&mut self) -> ExpiredKeys<'a> {
        let keys = std::mem::take(&mut self.expired.keys);
        ExpiredKeys { keys, has_more: self.expired.has_more }
    }
}
