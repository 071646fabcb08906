//! Reads of keys, and the log of changes: a page of it, and forgetting what is too old.

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hubbub_core::Timestamp;
use hubbub_core::invariant::saturate;
use hubbub_core::kv::{
    CHANGES_KEPT, KEY_BYTES_MAX, KeyInfo, KeyPage, KvChange, KvChanged, KvChanges, KvChangesRead, KvEntry,
    has_expired,
};
use hubbub_core::store::{KvStore, Read, ReadError};
use tokio_postgres::Row;

use super::{KeyPosition, Kv};
use crate::db::query_batcher::BatchQuery;
use crate::db::{Db, DbError, Param, PgTime, Result, Tx, statements};
use crate::store::{Context, Postgres};

/// Changes that one page scans at most, whatever its limit.
const SCANNED_MAX: u64 = 10_000;
/// Fewer than [`NEXT_CHANGES`] returns.
const NEXT_MAX: usize = 31;
/// No key is before this one. The log has an empty one where a history begins, which is a change of none.
const FIRST_KEY: [u8; 1] = [0];
/// Changes forgotten with one statement, and statements in one tick.
const TRIMMED: u64 = 5_000;
const TRIMS: usize = 10;

statements! {
    // Behind `select`, so that the planner does not count the keys, and keeps its plan. Key by key, so that it is the plan
    // for one key: for the ten that the planner would assume it prefers to read the whole table for longer.
    VALUES("reading values of keys") =
        "select k.* from unnest((select $1)) as wanted (key) cross join lateral \
         (select key, value, revision, expires_at from kv where key = wanted.key offset 0) k";

    KEYS("listing keys") =
        "select head, k.* from (select coalesce(max(revision), 0) as head from kv_changes) h left join \
         (select key, revision, octet_length(value), expires_at from kv where key >= $1 and key < $2 \
         and (expires_at is null or expires_at > $3) order by key limit $4) k on true order by k.key";

    CHANGES("reading changes of keys") =
        "select head, c.* from (select coalesce(max(revision), 0) as head from kv_changes) h left join \
         (select revision, key, what from kv_changes where revision > $1 and revision <= $2 \
         and key >= $3 and key < $4 order by revision limit $5) c on true order by c.revision";

    // From the last change that the caller knows on: that it is there proves that nothing behind it was forgotten. Few, and
    // always as many, or the database would plan it anew each time, which costs more than to run it.
    NEXT_CHANGES("reading the next changes of keys") =
        "select 0::int8, revision, key, what from kv_changes where revision >= $1 order by revision limit 32";

    OLDEST("reading the oldest change of keys") = "select coalesce(min(revision), 1) from kv_changes";
    TRIM("forgetting old changes of keys") = "delete from kv_changes where revision > $1 and revision <= $2";
    NEXT("finding the next change of keys") = "select min(revision) from kv_changes where revision > $1";
}

/// A number for the database, which has none beyond `i64`.
pub(super) fn number(number: u64) -> i64 {
    saturate(number)
}

/// A revision, which is never below zero.
pub(super) fn revision(number: i64) -> u64 {
    saturate(number)
}

/// How the log writes what happened.
pub(super) const fn letter(what: KvChanged) -> i8 {
    match what {
        KvChanged::Put => b'P' as i8,
        KvChanged::Deleted => b'D' as i8,
        KvChanged::Expired => b'E' as i8,
    }
}

fn what(letter: i8) -> Result<KvChanged> {
    [KvChanged::Put, KvChanged::Deleted, KvChanged::Expired]
        .into_iter()
        .find(|what| self::letter(*what) == letter)
        .ok_or_else(|| DbError::UnexpectedRow {
            what: CHANGES.what,
            found: format!("a change of kind {letter}"),
        })
}

/// The first key that may begin with `prefix` and lies behind `after`, and the first one behind all that do.
fn range(prefix: &[u8], after: Option<&[u8]>) -> (Vec<u8>, Vec<u8>) {
    // The next key behind one has a zero more.
    let behind = after.map(|after| [after, &[0]].concat());
    let first = behind.unwrap_or_default().max(prefix.to_vec()).max(FIRST_KEY.to_vec());
    let mut end = prefix.to_vec();
    while end.pop_if(|byte| *byte == u8::MAX).is_some() {}
    match end.last_mut() {
        Some(byte) => *byte += 1,
        // No key is as long as that.
        None => end = vec![u8::MAX; KEY_BYTES_MAX + 1],
    }
    (first, end)
}

/// Up to where changes are forgotten.
pub(super) async fn trimmed(db: &Db) -> Result<u64> {
    Ok(revision(db.read_one(&OLDEST, &[]).await?.get(0)).saturating_sub(1))
}

impl KvStore for Postgres {
    fn value(&self, key: &[u8]) -> Read<'_, Option<KvEntry>> {
        self.kv.value(key.to_vec())
    }

    fn keys(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Read<'_, KeyPage> {
        let (first, end) = range(prefix, after);
        Box::pin(async move {
            let (now, limit) = (PgTime(self.context.clock.now()), number(limit as u64));
            let rows = self.context.db.read(&KEYS, &[&first, &end, &now, &limit]).await?;
            let revision = self.kv.observe(&rows);
            let infos = rows.iter().filter_map(|row| {
                Some(KeyInfo {
                    key: row.get::<_, Option<&[u8]>>(1)?.into(),
                    revision: self::revision(row.get(2)),
                    bytes: saturate(row.get::<_, i32>(3)),
                    expires_at: row.get::<_, Option<PgTime>>(4).map(|at| at.0),
                })
            });
            Ok(KeyPage { keys: infos.collect(), revision })
        })
    }

    fn changes(&self, prefix: &[u8], after: u64, limit: usize) -> Read<'_, KvChangesRead> {
        let ((first, end), prefix_is_empty) = (range(prefix, None), prefix.is_empty());
        Box::pin(async move {
            if prefix_is_empty && let Some(changes) = self.kv.next_changes(after, limit).await? {
                return Ok(KvChangesRead::Changes(changes));
            }
            let through = after.saturating_add(SCANNED_MAX);
            let most = number(limit as u64).saturating_add(1);
            let params: [Param<'_>; 5] = [&number(after), &number(through), &first, &end, &most];
            let rows = self.context.db.read(&CHANGES, &params).await?;
            let head = self.kv.observe(&rows);
            let oldest = head.saturating_sub(CHANGES_KEPT as u64);
            if after < oldest || after > head {
                return Ok(KvChangesRead::Compacted { oldest, head });
            }
            let mut changes = rows.iter().filter_map(change).collect::<Result<Vec<_>, _>>()?;
            let is_cut = changes.len() > limit;
            changes.truncate(limit);
            let through = match changes.last() {
                Some(last) if is_cut => last.revision,
                _ => through.min(head),
            };
            Ok(KvChangesRead::Changes(KvChanges { changes, through, more: through < head }))
        })
    }

    fn revision(&self) -> u64 {
        self.kv.position.revision()
    }

    fn kv_now(&self) -> Option<Timestamp> {
        Some(self.context.clock.now())
    }

    fn kv_lease(&self) -> Option<NonZeroU64> {
        self.kv.lease.number()
    }

    fn kv_due_in(&self) -> Option<Duration> {
        // By the time that a sweep goes by.
        self.kv.position.due_in(self.context.clock.proven())
    }
}

/// The change in a row; `None` in the row that stands for none.
fn change(row: &Row) -> Option<Result<KvChange>> {
    let (revision, key) = (revision(row.get::<_, Option<i64>>(1)?), Arc::from(row.get::<_, &[u8]>(2)));
    Some(what(row.get(3)).map(|what| KvChange { revision, key, what }))
}

impl Kv {
    /// The value of a key: by a statement of its own if there are few of them, and nobody waits for those that others share.
    fn value(&self, key: Vec<u8>) -> Read<'_, Option<KvEntry>> {
        let single = if self.values.has_waiting() { None } else { self.singles.begin() };
        let Some(single) = single else { return Box::pin(self.values.get(key)) };
        let values = self.values.clone();
        Box::pin(async move { values.batch_query().read_one(single, &key).await })
    }

    /// Observes the revision with which each row begins.
    pub(super) fn observe(&self, rows: &[Row]) -> u64 {
        let head = rows.first().map_or(0, |row| revision(row.get(0)));
        self.position.observe(head);
        head
    }

    /// All changes behind a revision that is not the first, by one short search; `None` if they are not few, or if this
    /// cannot tell whether some were forgotten.
    async fn next_changes(&self, after: u64, limit: usize) -> Result<Option<KvChanges>> {
        let rows = self.context.db.read(&NEXT_CHANGES, &[&number(after)]).await?;
        let mut changes = rows.iter().filter_map(change).collect::<Result<Vec<_>, _>>()?;
        if changes.first().is_none_or(|first| first.revision != after) || changes.len() > limit.min(NEXT_MAX)
        {
            return Ok(None);
        }
        let through = changes.last().map_or(after, |last| last.revision);
        // Behind a gap another history begins, of which the caller knows nothing.
        if through - after >= changes.len() as u64 {
            return Ok(None);
        }
        changes.remove(0);
        self.position.observe(through);
        Ok(Some(KvChanges { changes, through, more: false }))
    }

    /// Forgets changes that are not kept, as far as that does not take long. Begins behind what it forgot last, so as not
    /// to pass over the remains again.
    pub(super) async fn trim(&self) -> Result<()> {
        let oldest = self.position.revision().saturating_sub(CHANGES_KEPT as u64);
        for _ in 0..TRIMS {
            let after = self.trimmed.load(Ordering::Relaxed);
            if oldest.saturating_sub(after) < TRIMMED {
                break;
            }
            let through = after + TRIMMED;
            let (from, to) = (number(after), number(through));
            let trim = async |tx: &Tx<'_>| tx.execute(&TRIM, &[&from, &to]).await;
            let is_gap = self.context.db.run(TRIM.what, trim).await? == 0;
            let through = if is_gap { self.before_next(through).await?.min(oldest) } else { through };
            self.trimmed.store(through, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The last revision behind `through` before that of the next change: where a history begins, those between are of no
    /// change. `through` itself if there is no change behind it.
    async fn before_next(&self, through: u64) -> Result<u64> {
        let next: Option<i64> = self.context.db.read_one(&NEXT, &[&number(through)]).await?.get(0);
        Ok(next.map_or(through, |next| revision(next).saturating_sub(1)))
    }
}

/// Reads values of keys, by one query for all who wait.
pub(super) struct Values {
    pub(super) context: Arc<Context>,
    pub(super) position: Arc<KeyPosition>,
}

impl BatchQuery for Values {
    type Key = Vec<u8>;
    type Value = KvEntry;

    const SUBJECT: &'static str = "keys";
    // Few, because their values are in memory together.
    const KEYS_MAX: usize = 128;

    async fn query(&self, keys: &[Vec<u8>]) -> Result<HashMap<Vec<u8>, KvEntry>, ReadError> {
        let rows = self.context.db.read(&VALUES, &[&keys]).await?;
        let now = self.context.clock.now();
        let found = rows
            .iter()
            .filter_map(|row| Some((row.get::<_, &[u8]>(0).to_vec(), entry(row, 1, &self.position, now)?)));
        Ok(found.collect())
    }
}

/// The value, the revision and the expiry in a row, from column `first` on; `None` if it has expired.
pub(super) fn entry(row: &Row, first: usize, position: &KeyPosition, now: Timestamp) -> Option<KvEntry> {
    let revision = revision(row.get(first + 1));
    position.observe(revision);
    let expires_at = row.get::<_, Option<PgTime>>(first + 2).map(|at| at.0);
    let is_there = !has_expired(expires_at, now);
    is_there.then(|| KvEntry { value: row.get::<_, &[u8]>(first).into(), revision, expires_at })
}
