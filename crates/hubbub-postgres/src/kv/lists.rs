//! Lists of keys, and the log of changes: a page of it, and forgetting what is too old.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hubbub_core::kv::{CHANGES_KEPT, KEY_BYTES_MAX, KeyInfo, KvChange, KvChanged, KvChanges, KvHistory};

use super::Kv;
use crate::db::{Db, DbError, PgTime, Sql};

/// Changes that one page looks at, whatever it was asked for.
const LOOKED_AT: u64 = 10_000;
/// Changes forgotten with one statement, and statements in one beat.
const TRIMMED: u64 = 5_000;
const TRIMS: usize = 10;

const KEYS: Sql = Sql {
    what: "listing keys",
    text: "select head, k.* from (select coalesce(max(revision), 0) as head from kv_changes) h left join \
           (select key, revision, octet_length(value), expires_at from kv where key >= $1 and key < $2 \
           and (expires_at is null or expires_at > $3) order by key limit $4) k on true order by k.key",
};

const CHANGES: Sql = Sql {
    what: "reading changes of keys",
    text: "select head, c.* from (select coalesce(max(revision), 0) as head from kv_changes) h left join \
           (select revision, key, what from kv_changes where revision > $1 and revision <= $2 \
           and key >= $3 and key < $4 order by revision limit $5) c on true order by c.revision",
};

const OLDEST: Sql = Sql {
    what: "reading the oldest change of keys",
    text: "select coalesce(min(revision), 1) from kv_changes",
};

const TRIM: Sql = Sql {
    what: "forgetting old changes of keys",
    text: "delete from kv_changes where revision > $1 and revision <= $2",
};

/// A number for the database, which has none beyond `i64`.
pub(super) fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A revision, which is never below zero.
pub(super) fn revision(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// How the log writes what happened.
pub(super) const fn letter(what: KvChanged) -> i8 {
    match what {
        KvChanged::Put => b'P' as i8,
        KvChanged::Deleted => b'D' as i8,
        KvChanged::Expired => b'E' as i8,
    }
}

fn what(letter: i8) -> Result<KvChanged, DbError> {
    [KvChanged::Put, KvChanged::Deleted, KvChanged::Expired]
        .into_iter()
        .find(|what| self::letter(*what) == letter)
        .ok_or_else(|| DbError::UnexpectedRow {
            what: CHANGES.what,
            found: format!("a change of kind {letter}"),
        })
}

/// The first key that may begin with `prefix` and lies behind `after`, and the first one behind all that do.
pub(super) fn range(prefix: &[u8], after: Option<&[u8]>) -> (Vec<u8>, Vec<u8>) {
    // The next key behind one has a zero more.
    let behind = after.map(|after| [after, &[0]].concat());
    let first = behind.unwrap_or_default().max(prefix.to_vec());
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
pub(super) async fn trimmed(db: &Db) -> Result<u64, DbError> {
    Ok(revision(db.read_one(&OLDEST, &[]).await?.get(0)).saturating_sub(1))
}

impl Kv {
    /// Keys from `first` on, before `end`.
    pub(super) async fn keys(&self, first: &[u8], end: &[u8], limit: usize) -> Result<Vec<KeyInfo>, DbError> {
        let (now, limit) = (PgTime(self.context.clock.now()), number(limit as u64));
        let rows = self.context.db.read(&KEYS, &[&first, &end, &now, &limit]).await?;
        if let Some(row) = rows.first() {
            self.position.observe(revision(row.get(0)));
        }
        let infos = rows.iter().filter_map(|row| {
            Some(KeyInfo {
                key: row.get::<_, Option<&[u8]>>(1)?.into(),
                revision: revision(row.get(2)),
                bytes: revision(i64::from(row.get::<_, i32>(3))),
                expires_at: row.get::<_, Option<PgTime>>(4).map(|at| at.0),
            })
        });
        Ok(infos.collect())
    }

    /// Changes behind `after` of keys from `first` on, before `end`.
    pub(super) async fn changes(
        &self,
        first: &[u8],
        end: &[u8],
        after: u64,
        limit: usize,
    ) -> Result<KvHistory, DbError> {
        let through = after.saturating_add(LOOKED_AT);
        let most = number(limit as u64).saturating_add(1);
        let rows =
            self.context.db.read(&CHANGES, &[&number(after), &number(through), &first, &end, &most]).await?;
        let head = rows.first().map_or(0, |row| revision(row.get(0)));
        self.position.observe(head);
        let oldest = head.saturating_sub(CHANGES_KEPT as u64);
        if after < oldest || after > head {
            return Ok(KvHistory::Compacted { oldest, head });
        }
        let mut changes = Vec::with_capacity(rows.len());
        for row in &rows {
            let (Some(at), Some(key)) = (row.get::<_, Option<i64>>(1), row.get::<_, Option<&[u8]>>(2)) else {
                continue;
            };
            changes.push(KvChange { revision: revision(at), key: Arc::from(key), what: what(row.get(3))? });
        }
        let is_cut = changes.len() > limit;
        changes.truncate(limit);
        let through = match changes.last() {
            Some(last) if is_cut => last.revision,
            _ => through.min(head),
        };
        Ok(KvHistory::Changes(KvChanges { changes, through, more: through < head }))
    }

    /// Forgets changes that are not kept, as far as that does not take long. Begins behind what it forgot last, so as not
    /// to pass over the remains again.
    pub(super) async fn trim(&self) -> Result<(), DbError> {
        let oldest = self.position.revision().saturating_sub(CHANGES_KEPT as u64);
        for _ in 0..TRIMS {
            let after = self.trimmed.load(Ordering::Relaxed);
            if oldest.saturating_sub(after) < TRIMMED {
                break;
            }
            let through = after + TRIMMED;
            let trimming = self.context.db.within(TRIM.what, async {
                let mut conn = self.context.db.get().await?;
                let tx = conn.begin().await?;
                tx.execute(&TRIM, &[&number(after), &number(through)]).await?;
                tx.commit().await
            });
            trimming.await?;
            self.trimmed.store(through, Ordering::Relaxed);
        }
        Ok(())
    }
}
