//! The way to the database: connections, statements, transactions, and what their failures mean.
//!
//! A face asks [`Db::get`] for a connection and runs its [`Sql`] on it; a change runs inside [`Db::transact`], which
//! repeats it where other transactions were in the way and classifies what failed.

pub(crate) mod clock;
mod conn;
pub(crate) mod connect;
pub(crate) mod fault;
mod keep;
pub(crate) mod refusal;
pub(crate) mod shared;
pub(crate) mod source;
pub(crate) mod time;
mod trips;
mod waits;

use std::ops::AsyncFn;
use std::sync::Arc;
use std::time::{Duration, Instant};

use deadpool_postgres::{HookError, Pool, PoolError, TimeoutType};
use futures_util::future::{join3, try_join};
use hubbub_core::store::{ApplyError, PoolFigures};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use crate::history::History;
use crate::options::Pooler;
use conn::{BEGIN, COMMITTING};
pub(crate) use conn::{Conn, Tx};
pub(crate) use fault::{Failure, Fault};
pub(crate) use time::PgTime;
use trips::{Asking, Trips};
use waits::Waits;

/// A statement. Its types are spelled out, so that it needs no preparing where sessions are not one's own.
#[derive(Debug)]
pub(crate) struct Sql {
    /// What it does, for messages: "reading a room".
    pub(crate) what: &'static str,
    pub(crate) text: &'static str,
    /// Types of its parameters.
    pub(crate) types: &'static [Type],
}

/// A parameter.
pub(crate) type Param<'a> = &'a (dyn ToSql + Sync);

/// Most tries of a transaction that met others.
const TRIES_MAX: u32 = 10;

/// A pool of connections to one database.
#[derive(Debug, Clone)]
pub(crate) struct Db {
    pool: Pool,
    pooler: Pooler,
    timeout: Duration,
    waits: Arc<Waits>,
    trips: Arc<Trips>,
    /// The history that every transaction must meet behind a pooler of transactions, whose servers change unseen;
    /// connections of one's own are checked once, when they are made.
    history: Option<Arc<History>>,
}

/// A try of a transaction that failed.
struct Failed {
    fault: Fault,
    is_committing: bool,
}

impl Db {
    pub(crate) fn new(pool: Pool, pooler: Pooler, timeout: Duration, history: Option<Arc<History>>) -> Self {
        let history = history.filter(|_| pooler == Pooler::Transaction);
        Self { pool, pooler, timeout, waits: Arc::default(), trips: Arc::default(), history }
    }

    /// A connection; waits for one as long as the pool is set to.
    pub(crate) async fn get(&self) -> Result<Conn, Fault> {
        let asked = Instant::now();
        let got = self.pool.get().await;
        self.waits.note(asked.elapsed(), matches!(got, Err(PoolError::Timeout(_))));
        match got {
            Ok(client) => {
                Ok(Conn::new(client, self.pooler, Asking::new(self.trips.clone()), self.history.clone()))
            }
            Err(PoolError::Timeout(TimeoutType::Wait)) => Err(Fault::Exhausted),
            Err(PoolError::Timeout(_)) => Err(Fault::Connection("the server does not answer".into())),
            Err(PoolError::Backend(error)) => Err(Fault::Connection(fault::describe(&error))),
            Err(PoolError::PostCreateHook(HookError::Message(words))) => Err(Fault::Connection(words.into())),
            Err(PoolError::PostCreateHook(HookError::Backend(error))) => {
                Err(Fault::Connection(fault::describe(&error)))
            }
            Err(error) => Err(Fault::Connection(error.to_string())),
        }
    }

    /// All rows of one statement that changes nothing. A connection of the pool that turns out to be broken is replaced.
    pub(crate) async fn read(&self, sql: &Sql, params: &[Param<'_>]) -> Result<Vec<Row>, Fault> {
        let mut is_first = true;
        loop {
            let mut conn = self.get().await?;
            match self.within(sql.what, conn.read(sql, params)).await {
                Err(fault) if is_first && fault.is_broken_connection() => is_first = false,
                read => return read,
            }
        }
    }

    /// The only row of such a statement.
    pub(crate) async fn read_one(&self, sql: &Sql, params: &[Param<'_>]) -> Result<Row, Fault> {
        let row = self.read(sql, params).await?.into_iter().next();
        row.ok_or_else(|| Fault::Nonsense { what: sql.what, found: "no row".into() })
    }

    /// Ends what takes longer than a batch may.
    pub(crate) async fn within<T>(
        &self,
        what: &'static str,
        work: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, Fault> {
        tokio::time::timeout(self.timeout, work).await.unwrap_or(Err(Fault::Timeout { what }))
    }

    /// Does `work` in one transaction and commits it. Work that met other transactions is done again; it must not
    /// remember anything of a try that failed. What it does before it waits for an answer goes out together with the
    /// beginning, and had better be locks and questions.
    pub(crate) async fn transact<T>(
        &self,
        what: &'static str,
        work: impl AsyncFn(&Tx<'_>) -> Result<T, Fault>,
    ) -> Result<T, Failure> {
        self.try_again(async |conn| self.attempt(what, conn, &work).await).await
    }

    /// Does one statement, behind `first` that has no parameters, in one transaction and one round trip: the commit is
    /// sent before anything is answered. A failed statement fails the commit, too, so there is nothing to be looked at
    /// in between.
    pub(crate) async fn transact_at_once(
        &self,
        first: Option<&str>,
        sql: &Sql,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, Failure> {
        if self.history.is_some() {
            // Which database it is must be known before the commit is sent.
            let work = async |tx: &Tx<'_>| match first {
                Some(first) => {
                    let ((), rows) = try_join(tx.batch(sql.what, first), tx.query(sql, params)).await?;
                    Ok(rows)
                }
                None => tx.query(sql, params).await,
            };
            return self.transact(sql.what, work).await;
        }
        let begin = format!("{BEGIN}; {}", first.unwrap_or_default());
        self.try_again(async |conn| self.attempt_at_once(&begin, conn, sql, params).await).await
    }

    async fn try_again<T>(
        &self,
        attempt: impl AsyncFn(&mut Conn) -> Result<T, Failed>,
    ) -> Result<T, Failure> {
        let mut tries = 0;
        loop {
            tries += 1;
            let mut conn = self.get().await.map_err(|fault| fault.before_commit())?;
            let Failed { fault, is_committing } = match attempt(&mut conn).await {
                Ok(value) => return Ok(value),
                Err(failed) => failed,
            };
            // A connection of the pool may have been broken for long without anybody knowing.
            let is_stale = tries == 1 && !is_committing && fault.is_broken_connection();
            if !(is_stale || fault.is_conflict() && tries < TRIES_MAX) {
                return Err(if is_committing { fault.at_commit().into() } else { fault.failed() });
            }
        }
    }

    async fn attempt<T>(
        &self,
        what: &'static str,
        conn: &mut Conn,
        work: &impl AsyncFn(&Tx<'_>) -> Result<T, Fault>,
    ) -> Result<T, Failed> {
        let worked = tokio::time::timeout(self.timeout, async {
            let tx = conn.open();
            // The first statements go with it: each is sent when it is first polled.
            let ((), value) = try_join(tx.begin(BEGIN), work(&tx)).await?;
            Ok((value, tx))
        });
        let worked = worked.await.unwrap_or(Err(Fault::Timeout { what }));
        let (value, tx) = worked.map_err(|fault| Failed { fault, is_committing: false })?;
        let committed = tokio::time::timeout(self.timeout, tx.commit()).await;
        let committed = committed.unwrap_or(Err(Fault::Timeout { what: COMMITTING }));
        committed.map(|()| value).map_err(|fault| Failed { fault, is_committing: true })
    }

    async fn attempt_at_once(
        &self,
        begin: &str,
        conn: &mut Conn,
        sql: &Sql,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, Failed> {
        let what = sql.what;
        let prepared = self.within(what, async {
            let under_way = conn.unchecked().asking.begin_uncounted();
            let prepared = conn.unchecked().prepare(sql).await;
            under_way.end(prepared.map_err(|error| Fault::Statement { what, error }))
        });
        prepared.await.map_err(|fault| Failed { fault, is_committing: false })?;
        let mut tx = conn.open();
        // The commit goes out with the rest.
        tx.is_over = true;
        let done = self.within(what, async {
            // Each is sent when it is first polled, so in this order.
            let done = join3(tx.begin(begin), tx.query(sql, params), tx.batch(COMMITTING, "commit"));
            match done.await {
                (Ok(()), Ok(rows), Ok(())) => Ok(rows),
                // It was a transaction of its own then, and stays.
                (Err(fault), Ok(_), _) => {
                    Err(Fault::Nonsense { what, found: format!("no transaction: {fault}") })
                }
                (Err(fault), Err(_), _) | (_, Err(fault), _) | (_, _, Err(fault)) => Err(fault),
            }
        });
        done.await.map_err(|fault| {
            let is_unknown = matches!(fault.at_commit(), ApplyError::Unconfirmed { .. });
            Failed { fault, is_committing: is_unknown }
        })
    }

    /// How the pool stands.
    pub(crate) fn figures(&self) -> PoolFigures {
        let status = self.pool.status();
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        PoolFigures {
            active: count(status.size.saturating_sub(status.available)),
            idle: count(status.available),
            waiting: count(status.waiting),
            statements: self.trips.statements(),
            round_trips: self.trips.round_trips(),
            ..self.waits.figures()
        }
    }

    pub(crate) fn close(&self) {
        self.pool.close();
    }
}
