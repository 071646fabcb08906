//! Batches of nothing but puts on no condition, the most frequent ones: which of their keys were there is learned from
//! writing them, so that one statement does it all.

use std::collections::{HashMap, HashSet};

use hubbub_core::kv::Condition;
use hubbub_core::rules::keys::expiry;
use hubbub_core::{KvOp, KvOutcome, Outcome, Timestamp};

use super::apply::{Done, LOCK};
use super::lists::{number, revision};
use crate::db::{Db, Failure, PgTime, Sql};

/// Only a new row has no `xmax`. No row, and no change, if the lease has another generation.
const PUT: Sql = Sql {
    what: "putting keys",
    text: "with head as (select (select coalesce(max(revision), 0) from kv_changes) as revision \
               from kv_lease where generation = $7), \
           put as (insert into kv (key, value, revision, expires_at) \
               select n.key, n.value, head.revision + n.place, n.expires_at \
               from head, unnest($1, $2, $3, $4) as n (key, value, place, expires_at) \
               on conflict (key) do update set value = excluded.value, revision = excluded.revision, \
                   expires_at = excluded.expires_at, replaced = kv.expires_at \
               returning key, xmax = 0 as is_new, replaced), \
           logged as (insert into kv_changes (revision, key, what, knows_lease) \
               select head.revision + n.place, n.key, 'P', true \
               from head, unnest($5) with ordinality as n (key, place)) \
           select head.revision, put.key from head left join put on put.is_new or put.replaced <= $6",
};

struct Put<'a> {
    key: &'a [u8],
    value: &'a [u8],
    expires_at: Option<Timestamp>,
}

pub(super) struct Puts<'a> {
    now: Timestamp,
    all: Vec<Put<'a>>,
}

impl<'a> Puts<'a> {
    /// `None` when there is anything else.
    pub(super) fn of(ops: &[KvOp<'a>], now: Timestamp) -> Option<Self> {
        let put = |op: &KvOp<'a>| match *op {
            KvOp::Put { key, value, ttl_ms, condition: Condition::Always } => {
                Some(Put { key, value, expires_at: ttl_ms.map(|ttl_ms| expiry(now, ttl_ms)) })
            }
            _ => None,
        };
        Some(Self { now, all: ops.iter().map(put).collect::<Option<_>>()? })
    }

    /// `None` = the lease has another generation; nothing was done.
    pub(super) async fn apply(&self, db: &Db, generation: i64) -> Result<Option<Done>, Failure> {
        let last: HashMap<&[u8], usize> = self.all.iter().map(|put| put.key).zip(1..).collect();
        let kept = self.all.iter().zip(1..).filter(|(put, place)| last.get(put.key) == Some(place));
        let (mut keys, mut values, mut places, mut times) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (put, place) in kept {
            keys.push(put.key);
            values.push(put.value);
            places.push(number(place as u64));
            times.push(put.expires_at.map(PgTime));
        }
        let logged: Vec<&[u8]> = self.all.iter().map(|put| put.key).collect();
        let now = PgTime(self.now);
        let params: [crate::db::Param<'_>; 7] = [&keys, &values, &places, &times, &logged, &now, &generation];
        let rows = db.transact_at_once(Some(LOCK), &PUT, &params).await?;
        let Some(head) = rows.first().map(|row| revision(row.get(0))) else { return Ok(None) };
        let mut created: HashSet<&[u8]> = rows.iter().filter_map(|row| row.get(1)).collect();
        let outcomes = self.all.iter().zip(head + 1..).map(|(put, revision)| {
            let (expires_at, created) = (put.expires_at, created.remove(put.key));
            Outcome::Kv(KvOutcome::Put { revision, expires_at, created })
        });
        Ok(Some(Done {
            head,
            outcomes: outcomes.collect(),
            revision: head + self.all.len() as u64,
            expires_at: times.iter().flatten().min().map(|first| first.0),
            due: None,
        }))
    }
}
