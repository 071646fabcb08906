//! Keys.
//!
//! A batch is one transaction ([`apply`]): it takes the lock that all writers of keys take, reads how the batch's keys
//! stand, judges in memory ([`judge`]), and writes the last state of each key and a row of the log for each change. Where
//! nothing is to be judged, one statement does it, and the transaction is one round trip ([`puts`]).
//! Reads of values that come together share a query ([`values`]); lists and the log are in [`lists`].
//!
//! The log's newest row is the store's revision. Whoever writes holds the lock until the commit, so revisions are seen in
//! their order and without gaps, by all servers. What is known of it here without asking ([`known`]) follows own writes
//! and reads at once, and others' within [`LOOK_EVERY`].

mod apply;
mod judge;
mod known;
mod lists;
mod puts;
mod values;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use hubbub_core::Essential;
use hubbub_core::essential::supervise;
use hubbub_core::kv::{KeyInfo, KvEntry, KvHistory};
use hubbub_core::store::{KvStore, Read, StoreFigures};
use tokio::task::JoinHandle;

use crate::db::connect::OpenError;
use crate::db::query_batcher::QueryBatcher;
use crate::db::{Fault, Sql};
use crate::store::{Context, Postgres};
use known::Known;
use values::Values;

/// Time between two looks at what other servers did.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Keys counted exactly; beyond, the database's own estimate serves.
const COUNTED_MAX: i64 = 1_000;

/// Keys.
pub(crate) struct Kv {
    context: Arc<Context>,
    known: Arc<Known>,
    values: Arc<QueryBatcher<Values>>,
    /// Changes up to here are forgotten.
    trimmed: AtomicU64,
    looking: JoinHandle<()>,
}

const COUNT: Sql = Sql {
    what: "counting keys",
    text: "select count(*), (select reltuples::bigint from pg_class where oid = 'kv'::regclass) \
           from (select from kv limit $1) counted",
    types: &[tokio_postgres::types::Type::INT8],
};

impl Kv {
    pub(crate) async fn open(context: Arc<Context>) -> Result<Self, OpenError> {
        let known = Arc::new(Known::default());
        let broken = |fault: Fault| OpenError(fault.to_string());
        known.look(&context).await.map_err(broken)?;
        let trimmed = lists::trimmed(&context.db).await.map_err(broken)?.into();
        let values = Values { context: context.clone(), known: known.clone() };
        let values = QueryBatcher::new(values, context.runtime.clone());
        let looking = {
            let (context, known) = (context.clone(), known.clone());
            async move {
                loop {
                    tokio::time::sleep(LOOK_EVERY).await;
                    // The beat meets the same fault, and says so.
                    let _ = known.look(&context).await;
                }
            }
        };
        let looking = tokio::spawn(supervise(Essential::new("database keys"), looking));
        Ok(Self { context, known, values, trimmed, looking })
    }

    /// Does what is due, and enters what is known into `figures`.
    pub(crate) async fn beat(&self, figures: &mut StoreFigures) -> Result<(), Fault> {
        let row = self.context.db.read_one(&COUNT, &[&COUNTED_MAX]).await?;
        let (counted, estimated): (i64, i64) = (row.get(0), row.get(1));
        let keys = if counted < COUNTED_MAX { counted } else { counted.max(estimated) };
        figures.keys = u64::try_from(keys).unwrap_or(0);
        self.trim().await
    }

    /// Ends what is done in the background.
    pub(crate) fn close(&self) {
        self.looking.abort();
    }
}

impl Drop for Kv {
    fn drop(&mut self) {
        self.close();
    }
}

impl KvStore for Postgres {
    fn value(&self, key: &[u8]) -> Read<'_, Option<KvEntry>> {
        Box::pin(self.kv.values.get(key.to_vec()))
    }

    fn keys(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Read<'_, Vec<KeyInfo>> {
        let (first, end) = lists::range(prefix, after);
        Box::pin(async move { Ok(self.kv.keys(&first, &end, limit).await?) })
    }

    fn changes(&self, prefix: &[u8], after: u64, limit: usize) -> Read<'_, KvHistory> {
        let (first, end) = lists::range(prefix, None);
        Box::pin(async move { Ok(self.kv.changes(&first, &end, after, limit).await?) })
    }

    fn revision(&self) -> u64 {
        self.kv.known.revision()
    }

    fn kv_due_in(&self) -> Option<Duration> {
        // By the time that a sweep goes by.
        self.kv.known.due_in(self.context.clock.proven())
    }
}
