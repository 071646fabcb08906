//! A pooled connection, its statements, and its transactions.
//!
//! Behind a transaction pooler, each transaction may reach another server. So nothing is sent outside of a transaction,
//! and each one begins by querying the history of the server ([`Tx::begin`]), also for a single read ([`Conn::read`]).

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::Object;
use futures_util::FutureExt;
use futures_util::future::join3;
use scopeguard::ScopeGuard;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Error, Row, Statement};

use super::abandoned::{Abandoned, ReadLimit};
use super::round_trips::{InFlight, Usability};
use super::{DbError, Param, Result, Sql};
use crate::history::{DatabaseHistory, IDENTITY_BRIEF};
use crate::options::Pooler;

/// Overrides the defaults of database and user: a statement must take its snapshot after it has its locks.
pub(super) const BEGIN: &str = "begin isolation level read committed";
/// Settings of a transaction whose statements find rows by keys. Beside an open snapshot a vacuum may count no row that
/// lives, and the planner then expects to find one by any plan; those left here go through an index in its order, and so end
/// at the first row.
macro_rules! walking {
    () => {
        "set local enable_bitmapscan = off; set local enable_seqscan = off"
    };
}
pub(crate) use walking;
pub(crate) const WALKING: &str = walking!();
/// For transactions that write.
pub(super) const BEGIN_WRITE: &str = concat!("begin isolation level read committed; ", walking!());
/// For one statement.
const BEGIN_READ: &str = "begin isolation level read committed read only";
/// For several statements that share one snapshot.
pub(super) const BEGIN_SNAPSHOT: &str = "begin isolation level repeatable read read only";

const BEGINNING: &str = "beginning a transaction";
pub(super) const COMMITTING: &str = "committing";

/// A pooled connection. Dropping it returns it to the pool once all its statements have ended, or closes it if it is unusable or
/// too old.
pub(crate) struct Conn {
    link: ScopeGuard<Link, fn(Link)>,
}

/// Runs statements: in the open transaction, or each in its own.
pub(crate) struct Link {
    client: Object,
    pooler: Pooler,
    pub(super) in_flight: InFlight,
    abandoned: Abandoned,
    /// The history each transaction must find; `None` if the connection was checked when it was opened.
    history: Option<Arc<DatabaseHistory>>,
    /// Age at which it is closed after its use.
    max_lifetime: Duration,
}

/// A transaction. Dropping it rolls it back.
///
/// Statements may be in flight together. They run in the order in which they are sent: when first polled, or once
/// prepared. So join them in that order, with `biased`. The first that fails is then the cause.
pub(crate) struct Tx<'a> {
    link: &'a Link,
    /// Whether its end was sent.
    pub(super) is_over: bool,
}

impl Link {
    pub(super) async fn prepare(&self, sql: &Sql, params: &[Param<'_>]) -> Result<Statement, Error> {
        let types: Vec<Type> = params.iter().map(|param| param.sql_type()).collect();
        self.in_flight.begin_preparing();
        let prepared = self.client.prepare_typed_cached(sql.text, &types).await;
        self.in_flight.end_preparing();
        prepared
    }

    /// Awaits an answer, and records whether the connection remains usable.
    async fn send<T>(&self, what: &'static str, answer: impl Future<Output = Result<T, Error>>) -> Result<T> {
        let statement = self.in_flight.begin();
        statement.end(answer.await.map_err(|error| DbError::Statement { what, error }))
    }

    /// All rows of an answer.
    pub(crate) async fn query(&self, sql: &Sql, params: &[Param<'_>]) -> Result<Vec<Row>> {
        let rows = async {
            match self.pooler {
                Pooler::Session => {
                    self.client.query(&self.prepare(sql, params).await?, &values(params)).await
                }
                Pooler::Transaction => self.client.query_typed(sql.text, &typed(params)).await,
            }
        };
        self.send(sql.what, rows).await
    }

    /// Prepares a statement, so that it is sent when it is first polled. Costs nothing where it is prepared, or need not be.
    pub(crate) async fn prepared(&self, sql: &Sql, params: &[Param<'_>]) -> Result<()> {
        match self.pooler {
            Pooler::Session => self.send(sql.what, async { self.prepare(sql, params).await.map(drop) }).await,
            Pooler::Transaction => Ok(()),
        }
    }

    /// [`Self::query`] for the elements of the first parameter. Sends nothing if there are none.
    pub(crate) async fn query_for(&self, sql: &Sql, params: &[Param<'_>]) -> Result<Vec<Row>> {
        if has_elements(params) { self.query(sql, params).await } else { Ok(Vec::new()) }
    }

    /// [`Self::execute`] for the elements of the first parameter. Sends nothing if there are none.
    pub(crate) async fn execute_for(&self, sql: &Sql, params: &[Param<'_>]) -> Result<u64> {
        if has_elements(params) { self.execute(sql, params).await } else { Ok(0) }
    }

    /// The first row of an answer.
    pub(crate) async fn query_opt(&self, sql: &Sql, params: &[Param<'_>]) -> Result<Option<Row>> {
        Ok(self.query(sql, params).await?.into_iter().next())
    }

    /// The only row of an answer.
    pub(crate) async fn query_one(&self, sql: &Sql, params: &[Param<'_>]) -> Result<Row> {
        sql.only(self.query(sql, params).await?)
    }

    /// Runs a statement. Returns how many rows it changed.
    pub(crate) async fn execute(&self, sql: &Sql, params: &[Param<'_>]) -> Result<u64> {
        let changed = async {
            match self.pooler {
                Pooler::Session => {
                    self.client.execute(&self.prepare(sql, params).await?, &values(params)).await
                }
                Pooler::Transaction => self.client.execute_typed(sql.text, &typed(params)).await,
            }
        };
        self.send(sql.what, changed).await
    }

    /// Runs statements without parameters, one after another.
    pub(crate) async fn batch(&self, what: &'static str, text: &str) -> Result<()> {
        self.send(what, self.client.batch_execute(text)).await
    }
}

impl Deref for Tx<'_> {
    type Target = Link;

    fn deref(&self) -> &Link {
        self.link
    }
}

fn has_elements(params: &[Param<'_>]) -> bool {
    params.first().is_some_and(|first| !first.is_empty_array())
}

fn values<'a>(params: &[Param<'a>]) -> Vec<&'a (dyn ToSql + Sync)> {
    params.iter().map(|param| *param as &(dyn ToSql + Sync)).collect()
}

fn typed<'a>(params: &[Param<'a>]) -> Vec<(&'a (dyn ToSql + Sync), Type)> {
    values(params).into_iter().zip(params.iter().map(|param| param.sql_type())).collect()
}

impl Conn {
    pub(super) fn new(
        client: Object,
        pooler: Pooler,
        (in_flight, abandoned): (InFlight, Abandoned),
        history: Option<Arc<DatabaseHistory>>,
        max_lifetime: Duration,
    ) -> Self {
        let give_back: fn(Link) = |link| {
            let is_old = Object::metrics(&link.client).age() >= link.max_lifetime;
            match link.in_flight.usability() {
                Usability::Usable if !is_old => {}
                Usability::Unanswered { is_last } => link.abandoned.settle(link.client, is_last || is_old),
                Usability::Usable | Usability::Unusable => drop(Object::take(link.client)),
            }
        };
        let link = Link { client, pooler, in_flight, abandoned, history, max_lifetime };
        Self { link: scopeguard::guard(link, give_back) }
    }

    /// All rows of one read-only statement, in one round trip.
    pub(super) async fn read(&mut self, sql: &Sql, params: &[Param<'_>]) -> Result<Vec<Row>> {
        if self.link.history.is_none() {
            return self.link.query(sql, params).await;
        }
        // On the heap, so that it does not enlarge reads without it.
        Box::pin(self.read_in_transaction(sql, params)).await
    }

    async fn read_in_transaction(&mut self, sql: &Sql, params: &[Param<'_>]) -> Result<Vec<Row>> {
        let mut tx = self.open();
        // The commit is sent with the rest.
        tx.is_over = true;
        // Each is sent when it is first polled, so in this order.
        let (begun, rows, committed) = join3(
            tx.begin(BEGIN_READ, tx.read_limit()),
            tx.query(sql, params),
            tx.batch(COMMITTING, "commit"),
        )
        .await;
        begun?;
        let rows = rows?;
        committed.map(|()| rows)
    }

    /// Statements outside of transactions, for callers that check the history themselves.
    pub(crate) fn unchecked(&self) -> &Link {
        &self.link
    }

    /// Begins a transaction around statements of [`Self::unchecked`] that one server must answer, where each alone may reach
    /// another one. It ends with the value.
    pub(crate) async fn pinned(&self) -> Result<Option<Tx<'_>>> {
        if self.link.pooler == Pooler::Session {
            return Ok(None);
        }
        let tx = Tx { link: &self.link, is_over: false };
        let limit = self.link.abandoned.read_limit().map_or("", ReadLimit::text);
        tx.batch(BEGINNING, &format!("{BEGIN_READ}; {limit}")).await?;
        Ok(Some(tx))
    }

    /// A transaction that begins when [`Tx::begin`] is sent.
    pub(super) fn open(&mut self) -> Tx<'_> {
        Tx { link: &self.link, is_over: false }
    }
}

impl Tx<'_> {
    /// The limit for reads whose callers wait for a limited time.
    pub(super) const fn read_limit(&self) -> Option<&ReadLimit> {
        self.link.abandoned.read_limit()
    }

    /// Sends `begin`, and with it the query of the history if the connection was not checked. Behind a transaction pooler,
    /// `limit` is set for its statements.
    pub(super) async fn begin(&self, how: &str, limit: Option<&ReadLimit>) -> Result<()> {
        let what = BEGINNING;
        let Some(history) = &self.link.history else { return self.batch(what, how).await };
        // The first row is the one that is checked.
        let text = format!("{how}; {IDENTITY_BRIEF}; {}", limit.map_or("", ReadLimit::text));
        // On the heap, so that it does not enlarge transactions that check nothing.
        history.check(&Box::pin(self.send(what, self.client.simple_query(&text))).await?)
    }

    pub(crate) async fn commit(mut self) -> Result<()> {
        self.is_over = true;
        self.in_flight.set_committing(true);
        let committed = self.batch(COMMITTING, "commit").await;
        self.in_flight.set_committing(false);
        committed
    }
}

impl Drop for Tx<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            // Sent when first polled, before the next use of the connection. Nobody needs the answer.
            drop(self.client.batch_execute("rollback").now_or_never());
        }
    }
}
