//! A connection of the pool, the statements that are sent over it, and its transactions.
//!
//! Behind a pooler of transactions each transaction may meet another server. So nothing is sent outside of one: each
//! begins with the question which history the server holds ([`Tx::begin`]), also for a single read ([`Conn::read`]).

use std::ops::Deref;
use std::sync::Arc;

use deadpool_postgres::Object;
use futures_util::FutureExt;
use futures_util::future::join3;
use scopeguard::ScopeGuard;
use tokio_postgres::types::Type;
use tokio_postgres::{Error, Row, Statement};

use super::trips::Asking;
use super::{Fault, Param, Sql};
use crate::history::{HERE, History};
use crate::options::Pooler;

/// Whatever a database or a user is set to: a lock must be had before a statement's snapshot is taken.
pub(super) const BEGIN: &str = "begin isolation level read committed";
/// For one statement.
const BEGIN_READ: &str = "begin isolation level read committed read only";
/// For statements that see one moment.
const BEGIN_READING: &str = "begin isolation level repeatable read read only";

pub(super) const COMMITTING: &str = "committing";

/// A connection of the pool, given back when it is dropped, or closed if it is of no more use.
pub(crate) struct Conn {
    link: ScopeGuard<Link, fn(Link)>,
}

/// Statements on a connection, in a transaction of its own each, or in the one that is open on it.
pub(crate) struct Link {
    client: Object,
    pooler: Pooler,
    pub(super) asking: Asking,
    /// What each transaction must meet; `None` where the connection was checked when it was made.
    history: Option<Arc<History>>,
}

/// A transaction, rolled back when it is dropped.
///
/// Statements may be on their way together, and are done in the order in which they are sent: each when it is first
/// polled, or once it is prepared. So they are joined in that order, with `biased`; the first that fails is then the
/// cause.
pub(crate) struct Tx<'a> {
    link: &'a Link,
    /// Whether its end was sent.
    pub(super) is_over: bool,
}

impl Link {
    pub(super) async fn prepare(&self, sql: &Sql) -> Result<Statement, Error> {
        self.client.prepare_typed_cached(sql.text, sql.types).await
    }

    /// What is answered, noted by whoever counts and closes connections.
    async fn ask<T>(
        &self,
        what: &'static str,
        answer: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Fault> {
        let under_way = self.asking.begin();
        under_way.end(answer.await.map_err(|error| Fault::Statement { what, error }))
    }

    /// All rows of an answer.
    pub(crate) async fn query(&self, sql: &Sql, params: &[Param<'_>]) -> Result<Vec<Row>, Fault> {
        let rows = async {
            match self.pooler {
                Pooler::Session => self.client.query(&self.prepare(sql).await?, params).await,
                Pooler::Transaction => self.client.query_typed(sql.text, &typed(sql, params)).await,
            }
        };
        self.ask(sql.what, rows).await
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
        let changed = async {
            match self.pooler {
                Pooler::Session => self.client.execute(&self.prepare(sql).await?, params).await,
                Pooler::Transaction => self.client.execute_typed(sql.text, &typed(sql, params)).await,
            }
        };
        self.ask(sql.what, changed).await
    }

    /// Statements without parameters, one after another.
    pub(crate) async fn batch(&self, what: &'static str, text: &str) -> Result<(), Fault> {
        self.ask(what, self.client.batch_execute(text)).await
    }
}

impl Deref for Tx<'_> {
    type Target = Link;

    fn deref(&self) -> &Link {
        self.link
    }
}

fn typed<'a>(sql: &Sql, params: &[Param<'a>]) -> Vec<(Param<'a>, Type)> {
    params.iter().copied().zip(sql.types.iter().cloned()).collect()
}

impl Conn {
    pub(super) fn new(client: Object, pooler: Pooler, asking: Asking, history: Option<Arc<History>>) -> Self {
        let give_back: fn(Link) = |link| {
            if link.asking.is_spoiled() {
                drop(Object::take(link.client));
            }
        };
        Self { link: scopeguard::guard(Link { client, pooler, asking, history }, give_back) }
    }

    /// Begins a transaction at read committed.
    pub(crate) async fn begin(&mut self) -> Result<Tx<'_>, Fault> {
        let tx = self.open();
        tx.begin(BEGIN).await?;
        Ok(tx)
    }

    /// Begins a transaction that changes nothing and sees one moment throughout.
    pub(crate) async fn begin_reading(&mut self) -> Result<Tx<'_>, Fault> {
        let tx = self.open();
        tx.begin(BEGIN_READING).await?;
        Ok(tx)
    }

    /// All rows of one statement that changes nothing, in one round trip.
    pub(super) async fn read(&mut self, sql: &Sql, params: &[Param<'_>]) -> Result<Vec<Row>, Fault> {
        if self.link.history.is_none() {
            return self.link.query(sql, params).await;
        }
        let mut tx = self.open();
        // The commit goes out with the rest.
        tx.is_over = true;
        // Each is sent when it is first polled, so in this order.
        let (begun, rows, committed) =
            join3(tx.begin(BEGIN_READ), tx.query(sql, params), tx.batch(COMMITTING, "commit")).await;
        begun?;
        let rows = rows?;
        committed.map(|()| rows)
    }

    /// Statements outside of transactions, for whoever asks the server itself which history it holds.
    pub(crate) fn unchecked(&self) -> &Link {
        &self.link
    }

    /// A transaction that does not begin before [`Tx::begin`] is sent.
    pub(super) fn open(&mut self) -> Tx<'_> {
        Tx { link: &self.link, is_over: false }
    }
}

impl Tx<'_> {
    /// Sends the beginning, and with it the question which history the server holds, where that is not known.
    pub(super) async fn begin(&self, how: &str) -> Result<(), Fault> {
        let what = "beginning a transaction";
        let Some(history) = &self.link.history else { return self.batch(what, how).await };
        let text = format!("{how}; {HERE}");
        // On the heap, so that transactions are not larger for it where nothing is checked.
        history.check(&Box::pin(self.ask(what, self.client.simple_query(&text))).await?)
    }

    /// Makes it durable.
    pub(crate) async fn commit(mut self) -> Result<(), Fault> {
        self.is_over = true;
        self.batch(COMMITTING, "commit").await
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
