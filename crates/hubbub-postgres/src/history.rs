//! Which history the database holds. A promoted replica or a restored backup goes on elsewhere than what clients saw, so
//! it gets another epoch, and nothing that was remembered of the old one may be used with it.
//!
//! A history is known by the database's system identifier and timeline: each promotion and each recovery to a moment
//! begins a new timeline. Every new connection is checked before anything runs on it. Behind a pooler of transactions,
//! where the server changes unseen, every transaction is checked, also those that only read: the question goes out
//! together with the beginning, so it costs no round trip, and some 8 µs of the database's processor time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use deadpool_postgres::{Hook, HookError};
use hubbub_core::clock::RandomSource;
use tokio::sync::Notify;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error, SimpleQueryMessage};

use crate::db::Fault;

/// What this program was opened with.
#[derive(Debug)]
pub(crate) struct History {
    pub(crate) epoch: Arc<str>,
    system: String,
    timeline: i32,
    is_over: AtomicBool,
    over: Notify,
}

/// The name of the file being written begins with the timeline, also right after a promotion.
macro_rules! here {
    () => {
        "select system_identifier::text as system, \
         ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer as timeline from pg_control_system()"
    };
}

/// Answers one row, as text also: the system identifier and the timeline. Fails on a server that is a replica.
pub(crate) const HERE: &str = here!();

const MAKE: &str = concat!(
    "insert into history (epoch, system_identifier, timeline) select $1, system, timeline from (",
    here!(),
    ") here on conflict do nothing"
);
/// Of several that find another database one gives the name; the others wait for it and find nothing to do.
const RENEW: &str = concat!(
    "update history set epoch = $1, system_identifier = here.system, timeline = here.timeline from (",
    here!(),
    ") here where (history.system_identifier, history.timeline) <> (here.system, here.timeline)"
);
const READ: &str = "select epoch, system_identifier, timeline from history";

/// Why nothing may be done with this database before the store is opened anew.
const IS_OVER: &str =
    "the database was promoted or restored: its history is another one, which is being opened";

impl History {
    /// The history of the database, named if it has no name yet or went on as another one.
    pub(crate) async fn open(client: &Client, random: &dyn RandomSource) -> Result<Self, Error> {
        let fresh = format!("{:08x}", random.next_u64() >> 32);
        client.execute_typed(MAKE, &[(&fresh, Type::TEXT)]).await?;
        if client.execute_typed(RENEW, &[(&fresh, Type::TEXT)]).await? > 0 {
            tracing::warn!(
                epoch = fresh,
                "the database was promoted or restored: its history has a new epoch"
            );
        }
        let row = client.query_typed_one(READ, &[]).await?;
        Ok(Self {
            epoch: row.get::<_, &str>(0).into(),
            system: row.get(1),
            timeline: row.get(2),
            is_over: AtomicBool::new(false),
            over: Notify::new(),
        })
    }

    /// Refuses new connections to another database.
    pub(crate) fn hook(self: &Arc<Self>) -> Hook {
        let history = self.clone();
        Hook::async_fn(move |client, _| {
            let history = history.clone();
            Box::pin(async move {
                let here = client.query_typed_one(HERE, &[]).await.map_err(HookError::Backend)?;
                if history.is(here.get(0), here.get(1)) { Ok(()) } else { Err(HookError::message(IS_OVER)) }
            })
        })
    }

    /// Refuses a transaction in another database, by what it was answered to [`HERE`].
    pub(crate) fn check(&self, answer: &[SimpleQueryMessage]) -> Result<(), Fault> {
        let row = answer.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let here = row.and_then(|row| Some((row.get(0)?, row.get(1)?.parse().ok()?)));
        let Some((system, timeline)) = here else {
            let found = "no system identifier and timeline".to_owned();
            return Err(Fault::Nonsense { what: "asking which database it is", found });
        };
        if self.is(system, timeline) { Ok(()) } else { Err(Fault::Connection(IS_OVER.into())) }
    }

    /// Whether a replica copies this history, and not one that went on elsewhere. `timeline`: the highest that it is known
    /// to have reached; a lower one than ours has still to follow.
    pub(crate) fn is_replicated_by(&self, system: &str, timeline: Option<i32>) -> bool {
        system == self.system && timeline.is_none_or(|timeline| timeline <= self.timeline)
    }

    /// Whether the database is the one it was; remembers when it is not.
    fn is(&self, system: &str, timeline: i32) -> bool {
        let is_same = system == self.system && timeline == self.timeline;
        if !is_same {
            self.is_over.store(true, Ordering::SeqCst);
            self.over.notify_one();
        }
        is_same
    }

    /// Waits until the database turned out to be another one. For one task.
    pub(crate) async fn end(&self) {
        while !self.is_over.load(Ordering::SeqCst) {
            self.over.notified().await;
        }
    }
}
