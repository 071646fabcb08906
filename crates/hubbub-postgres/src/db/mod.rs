//! The way to the database: connections, statements, transactions, and what their failures mean.
//!
//! A face asks [`Db::get`] for a connection and runs its [`Sql`] on it; a change runs inside [`Db::transact`], which
//! repeats it where other transactions were in the way and classifies what failed.

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

use deadpool_postgres::{HookError, Object, Pool, PoolError, TimeoutType};
use futures_util::FutureExt;
use futures_util::future::{join3, try_join};
use hubbub_core::store::{ApplyError, PoolFigures};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use crate::history::History;
use crate::options::Pooler;
pub(crate) use fault::Fault;
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

/// Whatever a database or a user is set to: a lock must be had before a statement's snapshot is taken.
const BEGIN: &str = "begin isolation level read committed";

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
    /// The history that writers expect behind a pooler of transactions; connections of one's own are looked at once.
    history: Option<Arc<History>>,
}

/// A connection of the pool, given back when it is dropped.
pub(crate) struct Conn {
    client: Object,
    pooler: Pooler,
    asking: Asking,
}

/// A transaction, rolled back when it is dropped.
pub(crate) struct Tx<'a> {
    client: &'a Object,
    pooler: Pooler,
    is_over: bool,
    asking: &'a Asking,
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
            let _under_way = self.asking.begin();
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
            let _under_way = self.asking.begin();
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
        let tx = self.open();
        tx.begin(BEGIN).await?;
        Ok(tx)
    }

    /// Begins a transaction that changes nothing and sees one moment throughout.
    pub(crate) async fn begin_reading(&mut self) -> Result<Tx<'_>, Fault> {
        let tx = self.open();
        tx.begin("begin isolation level repeatable read read only").await?;
        Ok(tx)
    }

    /// A transaction that does not begin before [`Tx::begin`] is sent.
    fn open(&mut self) -> Tx<'_> {
        Tx { client: &self.client, pooler: self.pooler, is_over: false, asking: &self.asking }
    }

    /// Closes the connection instead of giving it back.
    pub(crate) fn discard(self) {
        drop(Object::take(self.client));
    }
}

/// A connection that is closed when it is dropped: whoever waited for the answer went away, and the statement may go on
/// for long, in the way of whoever has the connection next.
struct Lent(Option<Conn>);

impl Lent {
    async fn query(&self, sql: &Sql, params: &[Param<'_>]) -> Result<Vec<Row>, Fault> {
        match &self.0 {
            Some(conn) => conn.query(sql, params).await,
            None => Err(Fault::Connection("it was given back".into())),
        }
    }

    fn give_back(mut self) {
        drop(self.0.take());
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(conn) = self.0.take() {
            conn.discard();
        }
    }
}

impl Tx<'_> {
    statements!(client);

    async fn begin(&self, how: &str) -> Result<(), Fault> {
        self.batch("beginning a transaction", how).await
    }

    /// Statements without parameters, one after another.
    pub(crate) async fn batch(&self, what: &'static str, text: &str) -> Result<(), Fault> {
        let _under_way = self.asking.begin();
        self.client.batch_execute(text).await.map_err(|error| Fault::Statement { what, error })
    }

    /// Makes it durable.
    pub(crate) async fn commit(mut self) -> Result<(), Fault> {
        self.is_over = true;
        self.batch("committing", "commit").await
    }
}

impl Drop for Tx<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            // Sent when it is first polled, before whatever the connection is used for next; nobody needs the answer.
            drop(self.client.batch_execute("rollback").now_or_never());
        }
    }
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
            Ok(client) => Ok(Conn { client, pooler: self.pooler, asking: Asking::new(self.trips.clone()) }),
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
            let conn = Lent(Some(self.get().await?));
            let read = tokio::time::timeout(self.timeout, conn.query(sql, params)).await;
            let fault = match read.unwrap_or(Err(Fault::Timeout { what: sql.what })) {
                Ok(rows) => {
                    conn.give_back();
                    return Ok(rows);
                }
                Err(fault) => fault,
            };
            let is_spoiled = fault.spoils_connection();
            if !is_spoiled {
                conn.give_back();
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
    /// remember anything of a try that failed. What it does before it waits for an answer goes out together with the
    /// beginning, and had better be locks and questions.
    pub(crate) async fn transact<T>(
        &self,
        what: &'static str,
        work: impl AsyncFn(&Tx<'_>) -> Result<T, Fault>,
    ) -> Result<T, ApplyError> {
        self.try_again(async |conn| self.attempt(what, conn, &work).await).await
    }

    /// Does one statement behind `first`, which has no parameters, in one transaction and one round trip: the commit is
    /// sent before anything is answered. A failed statement fails the commit, too, so there is nothing to be looked at
    /// in between.
    pub(crate) async fn transact_at_once(
        &self,
        first: &str,
        sql: &Sql,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, ApplyError> {
        if self.history.is_some() {
            // Which database it is must be known before the commit is sent.
            let work = async |tx: &Tx<'_>| {
                let ((), rows) = try_join(tx.batch(sql.what, first), tx.query(sql, params)).await?;
                Ok(rows)
            };
            return self.transact(sql.what, work).await;
        }
        let begin = format!("{BEGIN}; {first}");
        self.try_again(async |conn| self.attempt_at_once(&begin, conn, sql, params).await).await
    }

    async fn try_again<T>(
        &self,
        attempt: impl AsyncFn(&mut Conn) -> Result<T, Failed>,
    ) -> Result<T, ApplyError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let mut conn = self.get().await.map_err(|fault| fault.before_commit())?;
            let Failed { fault, is_committing } = match attempt(&mut conn).await {
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
            let tx = conn.open();
            let value = match &self.history {
                // Which database it is must be known before anything is done.
                Some(history) => {
                    tx.begin(BEGIN).await?;
                    history.check(&tx).await?;
                    work(&tx).await?
                }
                // The first statements go with it: each is sent when it is first polled.
                None => try_join(tx.begin(BEGIN), work(&tx)).await?.1,
            };
            Ok((value, tx))
        });
        let worked = worked.await.unwrap_or(Err(Fault::Timeout { what }));
        let (value, tx) = worked.map_err(|fault| Failed { fault, is_committing: false })?;
        let committed = tokio::time::timeout(self.timeout, tx.commit()).await;
        let committed = committed.unwrap_or(Err(Fault::Timeout { what: "committing" }));
        committed.map(|()| value).map_err(|fault| Failed { fault, is_committing: true })
    }

    async fn attempt_at_once(
        &self,
        begin: &str,
        conn: &Conn,
        sql: &Sql,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, Failed> {
        let (what, client) = (sql.what, &conn.client);
        let prepared = self.within(what, async {
            let prepared = client.prepare_typed_cached(sql.text, sql.types).await;
            prepared.map_err(|error| Fault::Statement { what, error })
        });
        let statement = prepared.await.map_err(|fault| Failed { fault, is_committing: false })?;
        let done = self.within(what, async {
            // Three statements that share a round trip.
            let _under_way = [conn.asking.begin(), conn.asking.begin(), conn.asking.begin()];
            // Each is sent when it is first polled, so in this order.
            let done = join3(
                client.batch_execute(begin),
                client.query(&statement, params),
                client.batch_execute("commit"),
            );
            match done.await {
                (Ok(()), Ok(rows), Ok(())) => Ok(rows),
                // It was a transaction of its own then, and stays.
                (Err(error), Ok(_), _) => Err(Fault::Nonsense {
                    what,
                    found: format!("no transaction: {}", fault::describe(&error)),
                }),
                (Err(error), Err(_), _) | (_, Err(error), _) | (_, _, Err(error)) => {
                    Err(Fault::Statement { what, error })
                }
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
