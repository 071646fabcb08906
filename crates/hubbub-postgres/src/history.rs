//! Detects that the database holds another history, after a promotion or a restore.
//!
//! Such a history diverges from what clients saw. So it gets a new epoch, and nothing cached of the old one may be used.
//!
//! The database's system identifier and timeline identify a history: each promotion and each recovery to a moment begins
//! a new timeline. A dump that was restored, or a copy of the database, differs by the oids of the database and of the table
//! `history`. All of that may come again, as two promotions of one primary begin the same timeline; so the epoch is compared,
//! too, which whoever finds another history first sets.
//!
//! Every new connection is checked before anything runs on it. Behind a transaction pooler, the server may change unseen, so
//! every transaction is checked, also read-only ones. That query is sent together with `begin`: it costs no round trip, and
//! some 15 µs of the database's processor time. It leaves out the database, which would cost as much again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use deadpool_postgres::{Hook, HookError};
use hubbub_core::clock::RandomSource;
use tokio::sync::Notify;
use tokio_postgres::types::{Oid, Type};
use tokio_postgres::{Client, Error, SimpleQueryMessage};

use crate::db::{DbError, Result};
use crate::durability::synchronous;

/// The history that the store was opened with.
#[derive(Debug)]
pub(crate) struct DatabaseHistory {
    pub(crate) epoch: Arc<str>,
    /// Whether it began with this server, in a database that had none.
    pub(crate) is_new: bool,
    system: String,
    timeline: i32,
    database: Oid,
    table: Oid,
    is_replaced: AtomicBool,
    replaced: Notify,
}

/// What a connection leads to.
struct Found<'a> {
    system: &'a str,
    timeline: i32,
    /// Unless it was not asked for.
    database: Option<Oid>,
    table: Oid,
    epoch: &'a str,
}

/// System identifier and timeline. The name of the current WAL file begins with the timeline, also right after a promotion.
macro_rules! server {
    () => {
        "control.system_identifier::text as system, \
         ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer as timeline"
    };
}

/// Of one row also before the history has a name. Whatever its transaction writes is on disk once it is committed.
macro_rules! here {
    () => {
        concat!(
            "(select ",
            server!(),
            ", (select oid from pg_database where datname = current_database()) as database_oid, \
             'history'::regclass::oid as table_oid, ",
            synchronous!(transaction),
            " from pg_control_system() control) here"
        )
    };
}

/// Of a new connection. Fails on a replica.
const IDENTITY: &str = concat!(
    "select here.system, here.timeline, here.table_oid, epoch, here.database_oid from history, ",
    here!()
);
/// The same in each transaction, as a simple query.
pub(crate) const IDENTITY_BRIEF: &str = concat!(
    "select ",
    server!(),
    ", history.tableoid, epoch, ",
    synchronous!(transaction),
    " from pg_control_system() control, history"
);

const INSERT: &str = concat! {
    "insert into history (epoch, system_identifier, timeline, database_oid, table_oid) \
     select $1, system, timeline, database_oid, table_oid from ", here!(), " on conflict do nothing"
};
/// If several servers find another history, one names it. The others wait for it and change nothing.
const RENEW: &str = concat! {
    "update history set epoch = $1, system_identifier = here.system, timeline = here.timeline, \
         database_oid = here.database_oid, table_oid = here.table_oid from ", here!(),
    " where (history.system_identifier, history.timeline, history.database_oid, history.table_oid) \
         <> (here.system, here.timeline, here.database_oid, here.table_oid)"
};
const READ: &str = "select epoch, system_identifier, timeline, database_oid, table_oid from history";

/// Why the store must be reopened.
const REPLACED: &str =
    "the database was promoted or restored, so its history is another one; the store is reopening it";
/// Why nothing is read or written: what is being restored may be there soon.
const UNNAMED: &str = "the table history of the database is empty; is the database being restored?";

impl DatabaseHistory {
    /// Reads the history of the database. Names it if it is new.
    pub(crate) async fn open(client: &Client, random: &dyn RandomSource) -> Result<Self, Error> {
        let fresh = format!("{:08x}", random.next_u64() >> 32);
        let is_new = client.execute_typed(INSERT, &[(&fresh, Type::TEXT)]).await? > 0;
        if client.execute_typed(RENEW, &[(&fresh, Type::TEXT)]).await? > 0 {
            tracing::warn!(
                epoch = fresh,
                "the database was promoted or restored; its history gets a new epoch"
            );
        }
        let row = client.query_typed_one(READ, &[]).await?;
        Ok(Self {
            epoch: row.get::<_, &str>(0).into(),
            is_new,
            system: row.get(1),
            timeline: row.get(2),
            database: row.get(3),
            table: row.get(4),
            is_replaced: AtomicBool::new(false),
            replaced: Notify::new(),
        })
    }

    /// Where the database is. A promotion does not change it.
    pub(crate) fn place(&self) -> Arc<str> {
        format!("{}-{}-{}", self.system, self.database, self.table).into()
    }

    /// Runs `setup` on each new connection, and refuses those to another history.
    pub(crate) fn connection_check(self: &Arc<Self>, setup: Option<String>) -> Hook {
        let history = self.clone();
        let setup: Option<Arc<str>> = setup.map(Into::into);
        Hook::async_fn(move |client, _| {
            let (history, setup) = (history.clone(), setup.clone());
            Box::pin(async move {
                if let Some(setup) = setup {
                    client.batch_execute(&setup).await.map_err(HookError::Backend)?;
                }
                let here = client.query_typed(IDENTITY, &[]).await.map_err(HookError::Backend)?;
                let Some(here) = here.first() else { return Err(HookError::message(UNNAMED)) };
                let found = Found {
                    system: here.get(0),
                    timeline: here.get(1),
                    table: here.get(2),
                    epoch: here.get(3),
                    database: Some(here.get(4)),
                };
                history.compare(&found).map_err(HookError::message)
            })
        })
    }

    /// Refuses a transaction in another history. `answer` is the result of [`IDENTITY_BRIEF`].
    pub(crate) fn check(&self, answer: &[SimpleQueryMessage]) -> Result<()> {
        let row = answer.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let row = row.ok_or_else(|| DbError::Connection(UNNAMED.into()))?;
        let found = || {
            let (timeline, table) = (row.get(1)?.parse().ok()?, row.get(2)?.parse().ok()?);
            Some(Found { system: row.get(0)?, timeline, table, epoch: row.get(3)?, database: None })
        };
        let Some(found) = found() else {
            let found = "no system identifier, timeline and epoch".to_owned();
            return Err(DbError::UnexpectedRow { what: "identifying the database", found });
        };
        self.compare(&found).map_err(|words| DbError::Connection(words.into()))
    }

    /// Whether a replica copies this history and has not diverged. `timeline` is the highest that it is known to have
    /// reached; a lower one than the primary's has yet to follow.
    pub(crate) fn is_replicated_by(&self, system: &str, timeline: Option<i32>) -> bool {
        system == self.system && timeline.is_none_or(|timeline| timeline <= self.timeline)
    }

    /// Fails unless the history is still the same. If it is another one, wakes [`Self::wait_until_replaced`].
    fn compare(&self, found: &Found<'_>) -> Result<(), &'static str> {
        let is_same = *found.epoch == *self.epoch
            && found.system == self.system
            && found.timeline == self.timeline
            && found.table == self.table
            && found.database.is_none_or(|database| database == self.database);
        if is_same {
            return Ok(());
        }
        self.is_replaced.store(true, Ordering::SeqCst);
        self.replaced.notify_one();
        Err(REPLACED)
    }

    /// Waits until another history was found. For one task only.
    pub(crate) async fn wait_until_replaced(&self) {
        while !self.is_replaced.load(Ordering::SeqCst) {
            self.replaced.notified().await;
        }
    }
}
