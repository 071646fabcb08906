//! The way to the database: connections, statements, transactions, and what their failures mean.
//!
//! A face asks [`Db::get`] for a connection and runs its [`Sql`] on it; a change runs inside [`Db::transact`], which
//! repeats it where other transactions were in the way and classifies what failed.

pub(crate) mod connect;
pub(crate) mod fault;
mod keep;
pub(crate) mod refusal;
pub(crate) mod shared;
pub(crate) mod time;
mod waits;

use std::ops::AsyncFn;
use std::sync::Arc;
use std::time::{Duration, Instant};

use deadpool_postgres::{HookError, Object, Pool, PoolError, TimeoutType, Transaction};
use hubbub_core::store::{ApplyError, PoolFigures};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use crate::history::History;
use crate::options::Pooler;
pub(crate) use fault::Fault;
pub(crate) use time::PgTime;
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
    /// The history that writers expect behind a pooler of transactions; connections of one's own are looked at once.
    history: Option<Arc<History>>,
}

/// A connection of the pool, given back when it is dropped.
pub(crate) struct Conn {
    client: Object,
    pooler: Pooler,
}

/// A transaction, rolled back when it is dropped.
pub(crate) struct Tx<'a> {
    inner: Transaction<'a>,
    pooler: Pooler,
}

/// A try of a transaction that failed.
struct Failed {
    fault: Fault,
    is_committing: bool,
}

macro_rules! statements {
    ($client:ident) => {
        /// All rows of an answer.
        pub(crate) async fn query(&self, sql: &Sql, params: &[Param<'_>]) -> Result<Vec<Row>, Fault> {
            let fault = |error| Fault::Statement { what: sql.what, error };
            match self.pooler {
                Pooler::Session => {
                    let statement =
                        self.$client.prepare_typed_cached(sql.text, sql.types).await.map_err(fault)?;
                    self.$client.query(&statement, params).await.map_err(fault)
                }
                Pooler::Transaction => {
                    let typed: Vec<_> = params.iter().copied().zip(sql.types.iter().cloned()).collect();
                    self.$client.query_typed(sql.text, &typed).await.map_err(fault)
                }
            }
        }

        /// The first row of an answer.
        pub(crate) async fn query_opt(&self, sql: &Sql, params: &[Param<'_>]) -> Result<Option<Row>, Fault> {
            Ok(self.query(sql, params).await?.into_iter().next())
        }

        /// The only row of an answer.
        pub(crate) async fn query_one(&self, sql: &Sql, params: &[Param<'_>]) -> Result<Row, Fault> {
            let row = self.query_opt(sql, params).await?;
            row.ok_or_else(|| Fault::Nonsense { what: sql.what, found: "no row".into() })
        }

        /// How many rows were changed.
        pub(crate) async fn execute(&self, sql: &Sql, params: &[Param<'_>]) -> Result<u64, Fault> {
            let fault = |error| Fault::Statement { what: sql.what, error };
            match self.pooler {
                Pooler::Session => {
                    let statement =
                        self.$client.prepare_typed_cached(sql.text, sql.types).await.map_err(fault)?;
                    self.$client.execute(&statement, params).await.map_err(fault)
                }
                Pooler::Transaction => {
                    let typed: Vec<_> = params.iter().copied().zip(sql.types.iter().cloned()).collect();
                    self.$client.execute_typed(sql.text, &typed).await.map_err(fault)
                }
            }
        }
    };
}

impl Conn {
    statements!(client);

    /// Begins a transaction at read committed.
    pub(crate) async fn begin(&mut self) -> Result<Tx<'_>, Fault> {
        let pooler = self.pooler;
        let begun = self.client.transaction().await;
        let inner = begun.map_err(|error| Fault::Statement { what: "beginning a transaction", error })?;
        Ok(Tx { inner, pooler })
    }

    /// Begins a transaction that changes nothing and sees one moment throughout.
    pub(crate) async fn begin_reading(&mut self) -> Result<Tx<'_>, Fault> {
        use tokio_postgres::IsolationLevel;
        let pooler = self.pooler;
        let builder =
            self.client.build_transaction().isolation_level(IsolationLevel::RepeatableRead).read_only(true);
        let begun = builder.start().await;
        let inner = begun.map_err(|error| Fault::Statement { what: "beginning a transaction", error })?;
        Ok(Tx { inner, pooler })
    }

    /// Closes the connection instead of giving it back.
    pub(crate) fn discard(self) {
        drop(Object::take(self.client));
    }
}

impl Tx<'_> {
    statements!(inner);

    /// Statements without parameters, one after another.
    pub(crate) async fn batch(&self, what: &'static str, text: &str) -> Result<(), Fault> {
        self.inner.batch_execute(text).await.map_err(|error| Fault::Statement { what, error })
    }

    /// Makes it durable.
    pub(crate) async fn commit(self) -> Result<(), Fault> {
        self.inner.commit().await.map_err(|error| Fault::Statement { what: "committing", error })
    }
}

impl Db {
    pub(crate) fn new(pool: Pool, pooler: Pooler, timeout: Duration, history: Option<Arc<History>>) -> Self {
        let history = history.filter(|_| pooler == Pooler::Transaction);
        Self { pool, pooler, timeout, waits: Arc::default(), history }
    }

    /// A connection; waits for one as long as the pool is set to.
    pub(crate) async fn get(&self) -> Result<Conn, Fault> {
        let asked = Instant::now();
        let got = self.pool.get().await;
        self.waits.note(asked.elapsed(), matches!(got, Err(PoolError::Timeout(_))));
        match got {
            Ok(client) => Ok(Conn { client, pooler: self.pooler }),
            Err(PoolError::Timeout(TimeoutType::Wait)) => {
                Err(Fault::Connection("none became free in time (store.postgres.pool)".into()))
            }
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
            let conn = self.get().await?;
            let read = tokio::time::timeout(self.timeout, conn.query(sql, params)).await;
            let fault = match read.unwrap_or(Err(Fault::Timeout { what: sql.what })) {
                Ok(rows) => return Ok(rows),
                Err(fault) => fault,
            };
            let is_spoiled = fault.spoils_connection();
            if is_spoiled {
                conn.discard();
            }
            if !(is_spoiled && is_first) || matches!(fault, Fault::Timeout { .. }) {
                return Err(fault);
            }
            is_first = false;
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
    /// remember anything of a try that failed.
    pub(crate) async fn transact<T>(
        &self,
        what: &'static str,
        work: impl AsyncFn(&Tx<'_>) -> Result<T, Fault>,
    ) -> Result<T, ApplyError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let mut conn = self.get().await.map_err(|fault| fault.before_commit())?;
            let Failed { fault, is_committing } = match self.attempt(what, &mut conn, &work).await {
                Ok(value) => return Ok(value),
                Err(failed) => failed,
            };
            let is_spoiled = fault.spoils_connection();
            if is_spoiled {
                conn.discard();
            }
            // A connection of the pool may have been broken for long without anybody knowing.
            let is_stale =
                is_spoiled && tries == 1 && !is_committing && !matches!(fault, Fault::Timeout { .. });
            if !(is_stale || fault.is_conflict() && tries < TRIES_MAX) {
                return Err(if is_committing { fault.at_commit() } else { fault.before_commit() });
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
            let tx = conn.begin().await?;
            if let Some(history) = &self.history {
                history.check(&tx).await?;
            }
            Ok((work(&tx).await?, tx))
        });
        let worked = worked.await.unwrap_or(Err(Fault::Timeout { what }));
        let (value, tx) = worked.map_err(|fault| Failed { fault, is_committing: false })?;
        let committed = tokio::time::timeout(self.timeout, tx.commit()).await;
        let committed = committed.unwrap_or(Err(Fault::Timeout { what: "committing" }));
        committed.map(|()| value).map_err(|fault| Failed { fault, is_committing: true })
    }

    /// How the pool stands.
    pub(crate) fn figures(&self) -> PoolFigures {
        let status = self.pool.status();
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        PoolFigures {
            active: count(status.size.saturating_sub(status.available)),
            idle: count(status.available),
            waiting: count(status.waiting),
            ..self.waits.figures()
        }
    }

    pub(crate) fn close(&self) {
        self.pool.close();
    }
}
