//! The session: sends statements, bounds how many are under way, and says what a failure means.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt, TryStreamExt};
use hubbub_core::store::ReadError;
use scylla::client::execution_profile::{ExecutionProfile, ExecutionProfileHandle};
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::deserialize::row::DeserializeRow;
use scylla::frame::types::Consistency as Level;
use scylla::policies::speculative_execution::SimpleSpeculativeExecutionPolicy;
use scylla::serialize::row::SerializeRow;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::prepared::PreparedStatement;

use crate::options::{Address, Consistency, ScyllaOptions};
use crate::requests::Requests;
use crate::statements::Statements;

/// The store cannot be opened, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OpenError(pub String);

/// Names what failed at the start.
pub(crate) fn wrong<E: Display>(what: &'static str) -> impl Fn(E) -> OpenError {
    move |error| OpenError(format!("{what} failed: {error}"))
}

/// A statement failed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{what}: {error}")]
pub(crate) struct DbError {
    pub(crate) what: &'static str,
    pub(crate) error: String,
}

impl DbError {
    pub(crate) fn new(what: &'static str, error: impl Display) -> Self {
        Self { what, error: error.to_string() }
    }
}

impl From<DbError> for ReadError {
    fn from(error: DbError) -> Self {
        Self::Unavailable { reason: error.to_string() }
    }
}

pub(crate) type Result<T> = std::result::Result<T, DbError>;

/// The values of one statement.
pub(crate) type Values<'a> = Box<dyn SerializeRow + Send + Sync + 'a>;

/// Writes with the same partition key, which are sent together. Of several tables, if they are independent of each other.
#[derive(Default)]
pub(crate) struct Writes<'a> {
    statements: Vec<(&'a PreparedStatement, Values<'a>, usize)>,
}

impl<'a> Writes<'a> {
    /// Adds a write of about so many bytes.
    pub(crate) fn add(
        &mut self,
        statement: &'a PreparedStatement,
        values: impl SerializeRow + Send + Sync + 'a,
        bytes: usize,
    ) {
        self.statements.push((statement, Box::new(values), bytes + ROW_BYTES));
    }

    pub(crate) fn len(&self) -> usize {
        self.statements.len()
    }

    pub(crate) fn append(&mut self, mut more: Self) {
        self.statements.append(&mut more.statements);
    }
}

/// Bytes of a row besides its texts, roughly.
const ROW_BYTES: usize = 120;
/// Largest batch, unless one row is larger. Servers warn or refuse beyond some ten times that.
const BATCH_BYTES: usize = 48 << 10;
/// Batches that are written to one partition at the same time.
const BATCHES_AT_ONCE: usize = 4;
/// Most statements of a batch.
const BATCH_STATEMENTS: usize = 250;
/// Time after which a read is sent to another replica, too.
const SPECULATE_AFTER: Duration = Duration::from_millis(250);
/// Pause between two questions whether all nodes have a change of the schema.
const AGREEMENT_INTERVAL: Duration = Duration::from_millis(20);
/// Rows fetched at once by reads that may be long.
pub(crate) const PAGE_ROWS: i32 = 500;

/// A session with a cluster.
pub(crate) struct Db {
    session: Session,
    pub(crate) statements: Statements,
    reading: ExecutionProfileHandle,
    pub(crate) requests: Requests,
    /// Statements under way at the same time.
    pub(crate) statements_max: usize,
    /// For tests: writes until all fail; negative = none fails.
    pub(crate) fails_after: Arc<AtomicI64>,
}

/// Connects, without a keyspace.
pub(crate) async fn connect(
    address: &Address,
    options: &ScyllaOptions,
) -> std::result::Result<Session, OpenError> {
    let profile = profile(options).build().into_handle();
    let mut builder = SessionBuilder::new()
        .known_nodes(&address.hosts)
        .default_execution_profile_handle(profile)
        .connection_timeout(options.statement_timeout)
        .schema_agreement_interval(AGREEMENT_INTERVAL)
        .refresh_metadata_on_auto_schema_agreement(false);
    if let Some((user, password)) = &address.login {
        builder = builder.user(user, password);
    }
    if address.is_tls {
        let config = options.tls.client("store.scylla").map_err(|error| OpenError(error.to_string()))?;
        builder = builder.tls_context(Some(Arc::new(config)));
    }
    let hosts = address.hosts.join(", ");
    builder.build().await.map_err(|error| unusable(&hosts, &error.to_string(), address.is_tls))
}

/// One line about a connection that failed, by the text of the library, some of which have several lines.
fn unusable(hosts: &str, error: &str, is_tls: bool) -> OpenError {
    let error = error.split_whitespace().collect::<Vec<_>>().join(" ");
    let error = error.trim_end_matches('.');
    OpenError(format!("no CQL server can be used at {hosts}: {error}; {}", advice(error, is_tls)))
}

/// What to do about a connection that failed, by the text of the library.
fn advice(error: &str, is_tls: bool) -> &'static str {
    let has = |text: &str| error.contains(text);
    if has("invalid peer certificate") {
        "name the authority that signed it in store.scylla.ca; the server's IP address must be one of its names"
    } else if has("AlertReceived") || has("received fatal alert") {
        "the server refuses this client's certificate: correct store.scylla.cert and store.scylla.key"
    } else if has("Authentication is required") || has("Authentication failed") || has("BadCredentials") {
        "the user or the password is wrong: correct store.url"
    } else if is_tls && has("connection setup request") {
        // The refusal of a certificate comes after the handshake, and is lost where the connection ends at once behind it.
        "the server ended the connection behind the TLS handshake: if it asks clients for certificates, set or correct \
         store.scylla.cert and store.scylla.key"
    } else if is_tls {
        "start it, or correct store.url: scylla:// if it does not speak TLS"
    } else {
        "start it, or correct store.url: scyllas:// if it speaks TLS"
    }
}

fn profile(options: &ScyllaOptions) -> scylla::client::execution_profile::ExecutionProfileBuilder {
    let level = match options.consistency {
        Consistency::LocalQuorum => Level::LocalQuorum,
        Consistency::Quorum => Level::Quorum,
        Consistency::One => Level::One,
    };
    ExecutionProfile::builder().consistency(level).request_timeout(Some(options.statement_timeout))
}

impl Db {
    pub(crate) async fn new(
        session: Session,
        options: &ScyllaOptions,
    ) -> std::result::Result<Self, OpenError> {
        // Where the replicas of a keyspace are that was just created.
        session.refresh_metadata().await.map_err(wrong("asking where the replicas are"))?;
        let speculative =
            SimpleSpeculativeExecutionPolicy { max_retry_count: 1, retry_interval: SPECULATE_AFTER };
        let reading = profile(options).speculative_execution_policy(Some(Arc::new(speculative)));
        Ok(Self {
            statements: Statements::prepare(&session).await?,
            session,
            reading: reading.build().into_handle(),
            requests: Requests::new(options.statements_max.max(1)),
            statements_max: options.statements_max.max(1),
            fails_after: Arc::new(AtomicI64::new(-1)),
        })
    }

    /// All rows of a read that is bounded by its statement.
    pub(crate) async fn rows<R>(
        &self,
        what: &'static str,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<Vec<R>>
    where
        R: for<'frame, 'metadata> DeserializeRow<'frame, 'metadata>,
    {
        let request = self.requests.begin(1).await;
        let mut statement = statement.clone();
        statement.set_execution_profile_handle(Some(self.reading.clone()));
        let result = self.session.execute_unpaged(&statement, values).await;
        request.end(&result);
        let rows = result.map_err(|error| DbError::new(what, error))?;
        let rows = rows.into_rows_result().map_err(|error| DbError::new(what, error))?;
        let rows = rows.rows::<R>().map_err(|error| DbError::new(what, error))?;
        rows.map(|row| row.map_err(|error| DbError::new(what, error))).collect()
    }

    /// The first row.
    pub(crate) async fn row<R>(
        &self,
        what: &'static str,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<Option<R>>
    where
        R: for<'frame, 'metadata> DeserializeRow<'frame, 'metadata>,
    {
        Ok(self.rows(what, statement, values).await?.into_iter().next())
    }

    /// The rows of a read that may be long, page by page.
    pub(crate) async fn stream<R>(
        &self,
        what: &'static str,
        statement: &PreparedStatement,
        values: impl SerializeRow,
        page_rows: i32,
    ) -> Result<BoxStream<'static, Result<R>>>
    where
        R: for<'frame, 'metadata> DeserializeRow<'frame, 'metadata> + Send + 'static,
    {
        let mut statement = statement.clone();
        statement.set_execution_profile_handle(Some(self.reading.clone()));
        statement.set_page_size(page_rows);
        let pager = self.session.execute_iter(statement, values).await;
        let pager = pager.map_err(|error| DbError::new(what, error))?;
        let rows = pager.rows_stream::<R>().map_err(|error| DbError::new(what, error))?;
        Ok(rows.map(move |row| row.map_err(|error| DbError::new(what, error))).boxed())
    }

    /// Writes one row.
    pub(crate) async fn write(
        &self,
        what: &'static str,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<()> {
        let request = self.requests.begin(1).await;
        self.fail_in_tests(what)?;
        let result = self.session.execute_unpaged(statement, values).await;
        request.end(&result);
        result.map_err(|error| DbError::new(what, error))?;
        Ok(())
    }

    /// Writes rows of one partition, in batches of bounded size. They are independent of each other.
    pub(crate) async fn write_all(&self, what: &'static str, writes: Writes<'_>) -> Result<()> {
        let mut parts: Vec<Writes<'_>> = Vec::new();
        let mut bytes = 0;
        for write in writes.statements {
            let has_room = |part: &&mut Writes<'_>| {
                bytes + write.2 <= BATCH_BYTES && part.statements.len() < BATCH_STATEMENTS
            };
            match parts.last_mut().filter(has_room) {
                Some(part) => {
                    bytes += write.2;
                    part.statements.push(write);
                }
                None => {
                    bytes = write.2;
                    parts.push(Writes { statements: vec![write] });
                }
            }
        }
        let writing: Vec<_> = parts.into_iter().map(|part| self.write_atomically(what, part)).collect();
        stream::iter(writing).buffer_unordered(BATCHES_AT_ONCE).try_collect().await
    }

    /// Writes rows of one partition, all or none of them.
    pub(crate) async fn write_atomically(&self, what: &'static str, writes: Writes<'_>) -> Result<()> {
        if let [(statement, values, _)] = writes.statements.as_slice() {
            return self.write(what, statement, values).await;
        }
        let request = self.requests.begin(writes.statements.len()).await;
        self.fail_in_tests(what)?;
        let mut batch = Batch::new(BatchType::Unlogged);
        batch.set_is_idempotent(true);
        let mut values = Vec::with_capacity(writes.statements.len());
        for (statement, row, _) in writes.statements {
            batch.append_statement(statement.clone());
            values.push(row);
        }
        let result = self.session.batch(&batch, values).await;
        request.end(&result);
        result.map_err(|error| DbError::new(what, error))?;
        Ok(())
    }

    fn fail_in_tests(&self, what: &'static str) -> Result<()> {
        match self.fails_after.load(Ordering::Relaxed) {
            0 => Err(DbError::new(what, "cut by a test")),
            1.. => {
                self.fails_after.fetch_sub(1, Ordering::Relaxed);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_certificate_is_explained_however_the_connection_ends() {
        let alert = "Connection pool error: received fatal alert: CertificateRequired";
        let broken = "The pool is broken; Last connection failed with: Failed to perform a connection setup request. \
                      Request: OPTIONS, reason: Connection broken";
        for error in [alert, broken] {
            assert!(advice(error, true).contains("store.scylla.cert"), "{error}");
        }
        assert!(advice(broken, false).contains("scyllas://"));
        let lines = format!("{broken}, reason: Failed to send.\n        The connection was already broken.");
        let OpenError(line) = unusable("db:9042", &lines, true);
        assert!(
            !line.contains('\n') && line.contains("broken, reason: Failed to send. The connection"),
            "{line}"
        );
        assert!(line.ends_with("store.scylla.key"), "{line}");
        assert!(advice("Connection refused", true).starts_with("start it"));
    }
}
