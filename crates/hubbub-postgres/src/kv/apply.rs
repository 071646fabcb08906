//! A batch as one transaction.

use std::collections::HashMap;

use futures_util::future::{try_join, try_join3};
use hubbub_core::{KvOp, Outcome, Timestamp};
use tokio_postgres::types::Type;

use super::Kv;
use super::judge::{Judging, State};
use super::lists::{letter, number, revision};
use super::puts::Puts;
use crate::db::{Failure, Fault, PgTime, Sql, Tx};

/// Keys that one batch sweeps at most, so that no commit takes long.
const SWEPT_MAX: usize = 1_000;

/// Held by whoever changes keys, until the commit. Sent as it is, because what follows may be sent before it is answered,
/// and must not overtake it.
pub(super) const LOCK: &str = "select pg_advisory_xact_lock(716161617, 3)";

const READ: Sql = Sql {
    what: "reading how keys stand",
    text: "select head, k.key, k.revision, k.expires_at \
           from (select coalesce(max(revision), 0) as head from kv_changes) h left join kv k on k.key = any($1)",
    types: &[Type::BYTEA_ARRAY],
};

const READ_OVER: Sql = Sql {
    what: "reading which keys have run out",
    text: "select key, revision, expires_at from kv where expires_at <= $1 order by expires_at, revision limit $2",
    types: &[Type::TIMESTAMPTZ, Type::INT8],
};

const READ_DUE: Sql = Sql {
    what: "reading when the next key runs out",
    text: "select min(expires_at) from kv where expires_at is not null",
    types: &[],
};

const PUT: Sql = Sql {
    what: "putting keys",
    text: "insert into kv (key, value, revision, expires_at) select * from unnest($1, $2, $3, $4) \
           on conflict (key) do update \
           set value = excluded.value, revision = excluded.revision, expires_at = excluded.expires_at",
    types: &[Type::BYTEA_ARRAY, Type::BYTEA_ARRAY, Type::INT8_ARRAY, Type::TIMESTAMPTZ_ARRAY],
};

const DELETE: Sql =
    Sql { what: "deleting keys", text: "delete from kv where key = any($1)", types: &[Type::BYTEA_ARRAY] };

const LOG: Sql = Sql {
    what: "logging changes of keys",
    text: "insert into kv_changes (revision, key, what) select * from unnest($1, $2, $3)",
    types: &[Type::INT8_ARRAY, Type::BYTEA_ARRAY, Type::CHAR_ARRAY],
};

/// What a transaction came to.
pub(super) struct Done {
    pub(super) outcomes: Vec<Outcome>,
    pub(super) revision: u64,
    /// The first of the times that were set.
    pub(super) expires_at: Option<Timestamp>,
    /// After a sweep: when the next key runs out.
    pub(super) due: Option<Option<Timestamp>>,
}

/// Keeps others who change keys waiting until the commit. What is sent behind it sees all that they did.
async fn lock(tx: &Tx<'_>) -> Result<(), Fault> {
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
            Some(due) => self.known.saw_due(done.revision, due),
            None => self.known.wrote(done.revision, done.expires_at),
        }
        Ok(done.outcomes)
    }
}

/// Sweeps what has run out by `proven`; what is deleted is gone for good.
async fn work(tx: &Tx<'_>, ops: &[KvOp<'_>], (now, proven): (Timestamp, Timestamp)) -> Result<Done, Fault> {
    let mut keys: Vec<&[u8]> = ops.iter().filter_map(KvOp::key).collect();
    keys.sort_unstable();
    keys.dedup();
    let is_sweeping = ops.iter().any(|op| matches!(op, KvOp::Sweep));
    let ((), rows) = try_join(lock(tx), tx.query(&READ, &[&keys])).await?;
    let over = match is_sweeping {
        true => tx.query(&READ_OVER, &[&PgTime(proven), &number(SWEPT_MAX as u64 + 1)]).await?,
        false => Vec::new(),
    };

    let mut states = HashMap::with_capacity(rows.len());
    for row in &rows {
        if let Some(key) = row.get::<_, Option<&[u8]>>(1) {
            states.insert(key, state(row.get(2), row.get(3)));
        }
    }
    let head = rows.first().map_or(0, |row| revision(row.get(0)));
    let mut judging = Judging::new(now, head, states);
    for (at, row) in over.iter().enumerate() {
        if at == SWEPT_MAX {
            judging.is_more_over();
            break;
        }
        judging.is_over(row.get(0), state(row.get(1), row.get(2)));
    }
    let outcomes = ops.iter().map(|op| judging.judge(op)).collect();
    let expires_at = write(tx, &judging).await?;
    let due = match is_sweeping {
        true => Some(tx.query_one(&READ_DUE, &[]).await?.get::<_, Option<PgTime>>(0).map(|due| due.0)),
        false => None,
    };
    Ok(Done { outcomes, revision: judging.revision, expires_at, due })
}

fn state<'a>(at: i64, expires_at: Option<PgTime>) -> State<'a> {
    State { revision: revision(at), expires_at: expires_at.map(|at| at.0), value: None }
}

/// Writes what changed. Answers the first of the times that were set.
async fn write(tx: &Tx<'_>, judging: &Judging<'_>) -> Result<Option<Timestamp>, Fault> {
    if judging.changes.is_empty() {
        return Ok(None);
    }
    let (mut keys, mut values, mut revisions, mut times) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut gone = Vec::new();
    for (key, state) in judging.written() {
        // A key that changed is gone, or has a value of the batch.
        let Some(State { revision, expires_at, value: Some(value) }) = state else {
            gone.push(key);
            continue;
        };
        keys.push(key);
        values.push(value);
        revisions.push(number(revision));
        times.push(expires_at.map(PgTime));
    }
    let logged: Vec<i64> = judging.changes.iter().map(|(revision, ..)| number(*revision)).collect();
    let changed: Vec<&[u8]> = judging.changes.iter().map(|(_, key, _)| *key).collect();
    let whats: Vec<i8> = judging.changes.iter().map(|(.., what)| letter(*what)).collect();
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
