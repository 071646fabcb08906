//! Detects that the database holds another history, after a promotion or a restore.
//!
//! Such a history diverges from what clients saw. So it gets a new epoch, and nothing cached of the old one may be used.
//!
//! The database's system identifier and timeline identify a history: each promotion and each recovery to a moment begins
//! a new timeline. Every new connection is checked before anything runs on it. Behind a transaction pooler, the server may
//! change unseen, so every transaction is checked, also read-only ones. That query is sent together with `begin`: it costs
//! no round trip, and some 8 µs of the database's processor time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use deadpool_postgres::{Hook, HookError};
use hubbub_core::clock::RandomSource;
use tokio::sync::Notify;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error, SimpleQueryMessage};

use crate::db::{DbError, Result};

/// The history that the store was opened with.
#[derive(Debug)]
pub(crate) struct History {
    pub(crate) epoch: Arc<str>,
    /// Whether it began with this server, in a database that had none.
    pub(crate) is_new: bool,
    system: String,
    timeline: i32,
    is_replaced: AtomicBool,
    replaced: Notify,
}

/// The name of the current WAL file begins with the timeline, also right after a promotion.
macro_rules! here {
    () => {
        "select system_identifier::text as system, \
         ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer as timeline from pg_control_system()"
    };
}

/// Returns one row: system identifier and timeline. Works as a simple query, too. Fails on a replica.
pub(crate) const IDENTITY: &str = here!();

const INSERT: &str = concat! {
    "insert into history (epoch, system_identifier, timeline) select $1, system, timeline from (", here!(),
    ") here on conflict do nothing"
};
/// If several servers find another history, one names it. The others wait for it and change nothing.
const RENEW: &str = concat! {
    "update history set epoch = $1, system_identifier = here.system, timeline = here.timeline from (",
    here!(), ") here where (history.system_identifier, history.timeline) <> (here.system, here.timeline)"
};
const READ: &str = "select epoch, system_identifier, timeline from history";

/// Why the store must be reopened.
const REPLACED: &str =
    "the database was promoted or restored, so its history is another one; the store is reopening it";

impl History {
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
            is_replaced: AtomicBool::new(false),
            replaced: Notify::new(),
        })
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
                let here = client.query_typed_one(IDENTITY, &[]).await.map_err(HookError::Backend)?;
                if history.matches(here.get(0), here.get(1)) {
                    Ok(())
                } else {
                    Err(HookError::message(REPLACED))
                }
            })
        })
    }

    /// Refuses a transaction in another history. `answer` is the result of [`IDENTITY`].
    pub(crate) fn check(&self, answer: &[SimpleQueryMessage]) -> Result<()> {
        let row = answer.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let here = row.and_then(|row| Some((row.get(0)?, row.get(1)?.parse().ok()?)));
        let Some((system, timeline)) = here else {
            let found = "no system identifier and timeline".to_owned();
            return Err(DbError::UnexpectedRow { what: "identifying the database", found });
        };
        if self.matches(system, timeline) { Ok(()) } else { Err(DbError::Connection(REPLACED.into())) }
    }

    /// Whether a replica copies this history and has not diverged. `timeline` is the highest that it is known to have
    /// reached; a lower one than the primary's has yet to follow.
    pub(crate) fn is_replicated_by(&self, system: &str, timeline: Option<i32>) -> bool {
        system == self.system && timeline.is_none_or(|timeline| timeline <= self.timeline)
    }

    /// Whether the history is still the same. If not, wakes [`Self::wait_until_replaced`].
    fn matches(&self, system: &str, timeline: i32) -> bool {
        let is_same = system == self.system && timeline == self.timeline;
        if !is_same {
            self.is_replaced.store(true, Ordering::SeqCst);
            self.replaced.notify_one();
        }
        is_same
    }

    /// Waits until another history was found. For one task only.
    pub(crate) async fn wait_until_replaced(&self) {
        while !self.is_replaced.load(Ordering::SeqCst) {
            self.replaced.notified().await;
        }
    }
}
