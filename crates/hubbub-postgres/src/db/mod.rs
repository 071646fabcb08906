//! Access to the database: pooled connections, statements, transactions, and the meaning of errors.
//!
//! A subsystem runs its [`Sql`] alone ([`Db::read`]), or in a transaction ([`Db::run`], [`Db::snapshot`]). A batch runs inside
//! [`Db::transact`], which retries after conflicts and classifies errors.

mod abandoned;
pub(crate) mod clock;
mod conn;
pub(crate) mod connect;
pub(crate) mod error;
mod pool;
pub(crate) mod query_batcher;
mod round_trips;
pub(crate) mod sql;

use std::ops::AsyncFn;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use deadpool_postgres::{HookError, Pool, PoolError, TimeoutType};
use futures_util::future::{join3, poll_immediate, try_join};
use hubbub_core::backoff::Backoff;
use hubbub_core::clock::SeededRandom;
use hubbub_core::invariant::saturate;
use hubbub_core::store::{ApplyError, PoolFigures};
use tokio_postgres::Row;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::history::DatabaseHistory;
use crate::options::Pooler;
use abandoned::Abandoned;
use conn::{BEGIN, BEGIN_SNAPSHOT, BEGIN_WRITE, COMMITTING};
pub(crate) use conn::{Conn, Tx, WALKING, walking};
pub(crate) use error::{DbError, Failure, Result};
use pool::PoolMetrics;
use round_trips::{InFlight, RoundTrips};
pub(crate) use sql::{Param, PgTime, RowPlace, Sql, column, statements};

/// Timeout of a statement on a replica; then the primary answers.
const REPLICA_PATIENCE: Duration = Duration::from_secs(5);
/// Most attempts of a transaction that conflicts with others.
const TRIES_MAX: u32 = 10;
/// Pauses between them: two servers that deadlocked would otherwise meet again at once.
const PAUSE_FIRST: Duration = Duration::from_millis(5);
const PAUSE_LONGEST: Duration = Duration::from_millis(250);

/// A pool of connections to one database.
#[derive(Clone)]
pub(crate) struct Db {
    pool: Pool,
    pooler: Pooler,
    timeout: Duration,
    /// Connections older than this are not given back to the pool.
    max_lifetime: Duration,
    pool_metrics: Arc<PoolMetrics>,
    round_trips: Arc<RoundTrips>,
    abandoned: Abandoned,
    random: Arc<SeededRandom>,
    /// The history that every transaction must find, behind a transaction pooler; its servers may change unseen. `None`
    /// without one: then connections are checked once, when they are opened.
    history: Option<Arc<DatabaseHistory>>,
}

struct FailedAttempt {
    fault: DbError,
    is_committing: bool,
}

impl Db {
    /// Call it on the runtime that drives the connections. `seed` makes its pauses differ from those of other servers.
    pub(crate) fn new(
        (pool, tls): (Pool, MakeRustlsConnect),
        pooler: Pooler,
        (timeout, max_lifetime): (Duration, Duration),
        history: Option<Arc<DatabaseHistory>>,
        seed: u64,
    ) -> Self {
        let history = history.filter(|_| pooler == Pooler::Transaction);
        let (pool_metrics, round_trips) = (Arc::default(), Arc::default());
        let abandoned = Abandoned::new(pooler, tls, timeout.max(REPLICA_PATIENCE));
        let random = Arc::new(SeededRandom::new(seed));
        Self { pool, pooler, timeout, max_lifetime, pool_metrics, round_trips, abandoned, random, history }
    }

    /// The longest that one read takes, from the wait for a connection to the answer.
    pub(crate) fn patience(&self) -> Duration {
        self.pool.timeouts().wait.unwrap_or_default() + self.timeout
    }

    /// A connection. Waits for one for at most the pool's timeout.
    pub(crate) async fn get(&self) -> Result<Conn> {
        let mut getting = pin!(self.pool.get());
        let (got, waited) = match poll_immediate(&mut getting).await {
            Some(got) => (got, Duration::ZERO),
            None => {
                let begin = Instant::now();
                (getting.await, begin.elapsed())
            }
        };
        self.pool_metrics.record(waited, matches!(got, Err(PoolError::Timeout(_))));
        match got {
            Ok(client) => Ok(Conn::new(
                client,
                self.pooler,
                (InFlight::new(self.round_trips.clone()), self.abandoned.clone()),
                self.history.clone(),
                self.max_lifetime,
            )),
            Err(PoolError::Timeout(TimeoutType::Wait)) => Err(DbError::Exhausted),
            Err(PoolError::Timeout(_)) => Err(DbError::Connection("the server does not answer".into())),
            Err(PoolError::Backend(error)) => Err(DbError::Connection(error::describe(&error))),
            Err(PoolError::PostCreateHook(HookError::Message(words))) => {
                Err(DbError::Connection(words.into()))
            }
            Err(PoolError::PostCreateHook(HookError::Backend(error))) => {
                Err(DbError::Connection(error::describe(&error)))
            }
            Err(error) => Err(DbError::Connection(error.to_string())),
        }
    }

    /// All rows of one read-only statement. A broken pooled connection is replaced once.
    ///
    /// Whoever drops it, or any other work here, may do so at any time ([`abandoned`]).
    pub(crate) async fn read(&self, sql: &Sql, params: &[Param<'_>]) -> Result<Vec<Row>> {
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
    pub(crate) async fn read_one(&self, sql: &Sql, params: &[Param<'_>]) -> Result<Row> {
        sql.only(self.read(sql, params).await?)
    }

    /// Times out work that takes longer than a batch may.
    pub(crate) async fn within<T>(
        &self,
        what: &'static str,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        tokio::time::timeout(self.timeout, work).await.unwrap_or(Err(DbError::Timeout { what }))
    }

    /// Runs `work` in one transaction and commits it, once. For maintenance.
    pub(crate) async fn run<T>(
        &self,
        what: &'static str,
        work: impl AsyncFnOnce(&Tx<'_>) -> Result<T>,
    ) -> Result<T> {
        self.within(what, self.run_once(BEGIN, false, work)).await
    }

    /// Runs `work` in one read-only transaction, whose statements share a snapshot.
    pub(crate) async fn snapshot<T>(
        &self,
        what: &'static str,
        work: impl AsyncFnOnce(&Tx<'_>) -> Result<T>,
    ) -> Result<T> {
        self.within(what, self.run_once(BEGIN_SNAPSHOT, true, work)).await
    }

    /// The same without a timeout.
    pub(crate) async fn long_snapshot<T>(&self, work: impl AsyncFnOnce(&Tx<'_>) -> Result<T>) -> Result<T> {
        self.run_once(BEGIN_SNAPSHOT, false, work).await
    }

    /// Runs `work` in one transaction, which begins so, and commits it. `is_limited` = with the limit for reads.
    async fn run_once<T>(
        &self,
        begin: &str,
        is_limited: bool,
        work: impl AsyncFnOnce(&Tx<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut conn = self.get().await?;
        let tx = conn.open();
        let limit = tx.read_limit().filter(|_| is_limited);
        // The first statements travel with it: each is sent when first polled.
        let ((), done) = try_join(tx.begin(begin, limit), work(&tx)).await?;
        tx.commit().await?;
        Ok(done)
    }

    /// Runs `work` in one transaction and commits it. Retries after conflicts; `work` must not keep anything of a failed
    /// attempt. Statements it sends before it awaits an answer travel with `begin`, so they should be locks and queries.
    pub(crate) async fn transact<T>(
        &self,
        what: &'static str,
        work: impl AsyncFn(&Tx<'_>) -> Result<T>,
    ) -> Result<T, Failure> {
        self.retry(async |conn| self.attempt(what, conn, &work).await).await
    }

    /// Runs `first`, which has no parameters, then one statement, in one transaction and one round trip. The commit is sent
    /// before any answer arrives. That is safe: if the statement fails, so does the commit.
    pub(crate) async fn transact_at_once(
        &self,
        first: Option<&str>,
        sql: &Sql,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, Failure> {
        if self.history.is_some() {
            // The history must be checked before the commit is sent.
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
        self.retry(async |conn| self.attempt_at_once(&begin, conn, sql, params).await).await
    }

    async fn retry<T>(
        &self,
        attempt: impl AsyncFn(&mut Conn) -> Result<T, FailedAttempt>,
    ) -> Result<T, Failure> {
        let (mut tries, mut backoff) = (0, Backoff::new(PAUSE_FIRST, PAUSE_LONGEST));
        loop {
            tries += 1;
            let mut conn = self.get().await.map_err(|fault| fault.before_commit())?;
            let FailedAttempt { fault, is_committing } = match attempt(&mut conn).await {
                Ok(value) => return Ok(value),
                Err(failed) => failed,
            };
            // A pooled connection may have broken unnoticed, long ago.
            let is_stale = tries == 1 && !is_committing && fault.is_broken_connection();
            if !(is_stale || fault.is_conflict() && tries < TRIES_MAX) {
                return Err(if is_committing { fault.at_commit().into() } else { fault.failed() });
            }
            drop(conn);
            if fault.is_interference() {
                tokio::time::sleep(backoff.pause(&*self.random)).await;
            }
        }
    }

    async fn attempt<T>(
        &self,
        what: &'static str,
        conn: &mut Conn,
        work: &impl AsyncFn(&Tx<'_>) -> Result<T>,
    ) -> Result<T, FailedAttempt> {
        let worked = tokio::time::timeout(self.timeout, async {
            let tx = conn.open();
            // The first statements travel with it: each is sent when first polled.
            let ((), value) = try_join(tx.begin(BEGIN_WRITE, None), work(&tx)).await?;
            Ok((value, tx))
        });
        let worked = worked.await.unwrap_or(Err(DbError::Timeout { what }));
        let (value, tx) = worked.map_err(|fault| FailedAttempt { fault, is_committing: false })?;
        let committed = tokio::time::timeout(self.timeout, tx.commit()).await;
        let committed = committed.unwrap_or(Err(DbError::Timeout { what: COMMITTING }));
        committed.map(|()| value).map_err(|fault| FailedAttempt { fault, is_committing: true })
    }

    async fn attempt_at_once(
        &self,
        begin: &str,
        conn: &mut Conn,
        sql: &Sql,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, FailedAttempt> {
        let what = sql.what;
        let prepared = self.within(what, async {
            let statement = conn.unchecked().in_flight.begin_uncounted();
            let prepared = conn.unchecked().prepare(sql, params).await;
            statement.end(prepared.map_err(|error| DbError::Statement { what, error }))
        });
        prepared.await.map_err(|fault| FailedAttempt { fault, is_committing: false })?;
        let mut tx = conn.open();
        // The commit is sent with the rest.
        tx.is_over = true;
        tx.in_flight.set_committing(true);
        let done = self.within(what, async {
            // Each is sent when first polled, so in this order.
            let done = join3(tx.begin(begin, None), tx.query(sql, params), tx.batch(COMMITTING, "commit"));
            match done.await {
                (Ok(()), Ok(rows), Ok(())) => Ok(rows),
                // The statement ran without a transaction, and its change stays.
                (Err(fault), Ok(_), _) => {
                    Err(DbError::UnexpectedRow { what, found: format!("no transaction: {fault}") })
                }
                (Err(fault), Err(_), _) | (_, Err(fault), _) | (_, _, Err(fault)) => Err(fault),
            }
        });
        done.await.map_err(|fault| {
            let is_unknown = matches!(fault.at_commit(), ApplyError::Unconfirmed { .. });
            FailedAttempt { fault, is_committing: is_unknown }
        })
    }

    pub(crate) fn figures(&self) -> PoolFigures {
        let status = self.pool.status();
        PoolFigures {
            active: saturate(status.size.saturating_sub(status.available)),
            idle: saturate(status.available),
            waiting: saturate(status.waiting),
            statements: self.round_trips.statements(),
            round_trips: self.round_trips.round_trips(),
            ..self.pool_metrics.figures()
        }
    }

    pub(crate) fn close(&self) {
        self.pool.close();
    }
}

/// Answers a read, which may take several statements: the primary, or one connection of a replica.
#[derive(Clone)]
pub(crate) enum ReadSource {
    Primary(Db),
    /// This connection to a replica only: its position was checked.
    Replica(Arc<Conn>),
}

impl ReadSource {
    /// All rows of one read-only statement.
    pub(crate) async fn read(&self, sql: &Sql, params: &[Param<'_>]) -> Result<Vec<Row>> {
        match self {
            Self::Primary(db) => db.read(sql, params).await,
            Self::Replica(conn) => {
                let read = tokio::time::timeout(REPLICA_PATIENCE, conn.unchecked().query(sql, params)).await;
                read.unwrap_or(Err(DbError::Timeout { what: sql.what }))
            }
        }
    }

    /// The only row of such a statement.
    pub(crate) async fn read_one(&self, sql: &Sql, params: &[Param<'_>]) -> Result<Row> {
        sql.only(self.read(sql, params).await?)
    }
}
