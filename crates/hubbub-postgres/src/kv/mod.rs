//! The key-value store on PostgreSQL.
//!
//! A batch is one transaction ([`apply`]): it takes the lock that all writers of keys take, loads the batch's keys,
//! decides in memory ([`hubbub_core::rules::keys`]), and writes the last state of each key and a row of
//! the log for each change. A batch of unconditional puts needs no decision: one statement does it, and the transaction
//! is one round trip ([`puts`]).
//! Reads of values that come together share a query ([`lists`], with lists and the log); few have one each ([`single`]).
//!
//! The log's newest row is the store's revision. Whoever writes holds the lock until the commit, so revisions are seen in
//! their order, by all servers, and without gaps but where a history begins ([`leasing`]). The revision that this server knows
//! ([`KeyPosition`]) follows own writes and reads at once, and those of other servers within [`REFRESH_EVERY`].

mod apply;
mod lease;
mod leasing;
mod lists;
mod puts;
mod single;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use hubbub_core::essential::supervise;
use hubbub_core::invariant::saturate;
use hubbub_core::store::{LeaseFigures, StoreFigures};
use hubbub_core::{Essential, Timestamp};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use crate::db::connect::OpenError;
use crate::db::query_batcher::QueryBatcher;
use crate::db::{DbError, PgTime, Result, Sql};
use crate::store::Context;
use lease::Lease;
use leasing::Leasing;
use lists::Values;
use single::Singles;

/// Time between two queries for what other servers did.
const REFRESH_EVERY: Duration = Duration::from_millis(100);
/// Keys counted exactly; beyond, the database's own estimate serves.
const COUNTED_MAX: i64 = 1_000;

pub(crate) struct Kv {
    context: Arc<Context>,
    position: Arc<KeyPosition>,
    values: Arc<QueryBatcher<Values>>,
    /// Reads of one value each.
    singles: Arc<Singles>,
    /// Changes up to here are forgotten.
    trimmed: AtomicU64,
    refreshing: JoinHandle<()>,
    /// Which servers may change keys.
    lease: Arc<Lease>,
    leasing: JoinHandle<()>,
}

const COUNT: Sql = Sql {
    what: "counting keys",
    text: "select (select count(*) from (select from kv limit $1) counted), reltuples::int8, \
           relpages < 10000 and pg_relation_size(oid) / current_setting('block_size')::int8 > 2 * relpages + 8 \
           from pg_class where oid = 'kv'::regclass",
};

const ANALYZE: Sql = Sql { what: "analyzing the table of keys", text: "analyze (skip_locked) kv" };

const POSITION: Sql = Sql {
    what: "reading the last revision of keys",
    text: "select coalesce((select max(revision) from kv_changes), 0), \
           (select min(expires_at) from kv where expires_at is not null)",
};

impl Kv {
    /// `own` names this server among all of the database.
    pub(crate) async fn open(context: Arc<Context>, own: u64) -> Result<Self, OpenError> {
        let position = Arc::new(KeyPosition::default());
        let broken = |fault: DbError| OpenError(fault.to_string());
        position.refresh(&context).await.map_err(broken)?;
        let trimmed = lists::trimmed(&context.db).await.map_err(broken)?.into();
        let values = Values { context: context.clone(), position: position.clone() };
        let values = QueryBatcher::new(values, context.runtime.clone(), context.db.patience());
        let singles = Singles::new(&context.options.pool);
        let lease = Arc::new(Lease::new(context.clock.clone(), own.cast_signed()));
        let mut leasing = Leasing::new(context.clone(), lease.clone());
        leasing.begin().await.map_err(broken)?;
        // Nothing fails from here on: a task would go on without the store, for ever and with all of its connections.
        let refreshing = {
            let (context, position, lease) = (context.clone(), position.clone(), lease.clone());
            async move {
                loop {
                    tokio::time::sleep(REFRESH_EVERY).await;
                    // Maintenance meets the same fault as this, and logs it.
                    if position.refresh(&context).await.is_ok_and(|went_back| went_back) {
                        lease.doubt_all();
                    }
                }
            }
        };
        let refreshing = tokio::spawn(supervise(Essential::new("database keys"), refreshing));
        let leasing = tokio::spawn(supervise(Essential::new("database lease of keys"), leasing.run()));
        Ok(Self { context, position, values, singles, trimmed, refreshing, lease, leasing })
    }

    pub(crate) fn lease_figures(&self) -> LeaseFigures {
        self.lease.figures()
    }

    /// Forgets old changes, and fills in `figures`.
    pub(crate) async fn tick(&self, figures: &mut StoreFigures) -> Result<()> {
        let row = self.context.db.read_one(&COUNT, &[&COUNTED_MAX]).await?;
        let (counted, estimated, has_grown): (i64, i64, bool) = (row.get(0), row.get(1), row.get(2));
        let keys = if counted < COUNTED_MAX { counted } else { counted.max(estimated) };
        figures.keys = saturate(keys);
        if has_grown {
            // The database would do it within a minute or more. Until then reads would go by plans for a small table.
            self.context.db.run(ANALYZE.what, async |tx| tx.execute(&ANALYZE, &[]).await).await?;
        }
        self.trim().await
    }

    /// Lets other servers change keys at once.
    pub(crate) async fn leave(&self) {
        self.leasing.abort();
        leasing::say_goodbye(&self.context, &self.lease).await;
    }

    pub(crate) fn close(&self) {
        self.refreshing.abort();
        self.leasing.abort();
        self.lease.close();
    }
}

impl Drop for Kv {
    fn drop(&mut self) {
        self.close();
    }
}

/// The last revision and the next expiry that this server knows. Neither goes back, unless the database does.
#[derive(Debug, Default)]
pub(super) struct KeyPosition {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The last revision that is known to be durable.
    revision: u64,
    /// When the first key expires, as of `due_as_of` or earlier than that.
    due: Option<Timestamp>,
    due_as_of: u64,
}

impl KeyPosition {
    pub(super) fn revision(&self) -> u64 {
        self.state.lock().revision
    }

    /// Records a revision that was read.
    pub(super) fn observe(&self, revision: u64) {
        let mut state = self.state.lock();
        state.revision = state.revision.max(revision);
    }

    /// Records when the first key expires, as read at `revision`.
    pub(super) fn observe_due(&self, revision: u64, due: Option<Timestamp>) {
        let mut state = self.state.lock();
        state.revision = state.revision.max(revision);
        if revision >= state.due_as_of {
            (state.due, state.due_as_of) = (due, revision);
        }
    }

    /// Records a commit by this server, and the first expiry that it set.
    pub(super) fn record_commit(&self, revision: u64, expires_at: Option<Timestamp>) {
        let mut state = self.state.lock();
        state.revision = state.revision.max(revision);
        if let Some(expires_at) = expires_at {
            state.due = Some(state.due.map_or(expires_at, |due| due.min(expires_at)));
            // A refresh that began before this commit does not see it.
            state.due_as_of = state.due_as_of.max(revision);
        }
    }

    pub(super) fn due_in(&self, now: Timestamp) -> Option<Duration> {
        let left = self.state.lock().due?.as_micros().saturating_sub(now.as_micros());
        Some(Duration::from_micros(saturate(left)))
    }

    /// Returns whether the database has lost what was known to be durable.
    pub(super) async fn refresh(&self, context: &Context) -> Result<bool> {
        let known = self.revision();
        let row = context.db.read_one(&POSITION, &[]).await?;
        let due: Option<PgTime> = row.get(1);
        let revision = lists::revision(row.get(0));
        Ok(self.record_refresh(known, revision, due.map(|due| due.0)))
    }

    /// Records what was read while this was at `known` or further. Returns whether the database has lost what was known to be
    /// durable. Then this begins anew with what it has, or nothing that is read would count until it is as far again.
    fn record_refresh(&self, known: u64, revision: u64, due: Option<Timestamp>) -> bool {
        let is_lost = revision < known;
        if is_lost {
            let mut state = self.state.lock();
            // Otherwise something was committed or read meanwhile; the next refresh tells.
            if state.revision == known {
                *state = State { revision, due, due_as_of: revision };
            }
        } else {
            self.observe_due(revision, due);
        }
        is_lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DUE: Timestamp = Timestamp::from_micros(5);

    fn known(position: &KeyPosition) -> (u64, Option<Timestamp>, u64) {
        let state = position.state.lock();
        (state.revision, state.due, state.due_as_of)
    }

    #[test]
    fn a_database_that_went_back_is_followed() {
        let position = KeyPosition::default();
        position.record_commit(1_000, Some(DUE));
        assert!(position.record_refresh(1_000, 900, None));
        assert_eq!(known(&position), (900, None, 900));
        assert!(!position.record_refresh(900, 901, Some(DUE)));
        assert_eq!(known(&position), (901, Some(DUE), 901));
    }

    #[test]
    fn a_refresh_that_something_overtook_changes_nothing() {
        let position = KeyPosition::default();
        position.observe(1_000);
        position.record_commit(1_001, Some(DUE));
        assert!(!position.record_refresh(1_000, 1_000, None));
        assert_eq!(known(&position), (1_001, Some(DUE), 1_001));
        assert!(position.record_refresh(1_000, 900, None), "the next one is to find the same");
        assert_eq!(known(&position), (1_001, Some(DUE), 1_001));
    }
}
