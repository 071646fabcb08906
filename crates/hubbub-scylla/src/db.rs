//! The session: sends statements, bounds how many are under way, and says what a failure means.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt, TryStreamExt};
use hubbub_core::store::ReadError;
use parking_lot::Mutex;
use scylla::client::execution_profile::{ExecutionProfile, ExecutionProfileHandle};
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::deserialize::row::DeserializeRow;
use scylla::frame::types::Consistency as Level;
use scylla::policies::speculative_execution::SimpleSpeculativeExecutionPolicy;
use scylla::serialize::row::SerializeRow;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::prepared::PreparedStatement;
use scylla::value::Row;
use tokio::time::Instant;

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

    fn into_batch(self) -> (Batch, Vec<Values<'a>>) {
        let mut batch = Batch::new(BatchType::Unlogged);
        batch.set_is_idempotent(true);
        let mut values = Vec::with_capacity(self.statements.len());
        for (statement, row, _) in self.statements {
            batch.append_statement(statement.clone());
            values.push(row);
        }
        (batch, values)
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
/// How long a commit that the cluster does not confirm is repeated, and the pauses between.
const CONFIRM_WITHIN: Duration = Duration::from_secs(10);
const CONFIRM_PAUSE: Duration = Duration::from_millis(50);
const CONFIRM_PAUSE_MAX: Duration = Duration::from_secs(2);
/// Time in which only as many replicas are asked as the consistency says, after not all have answered.
const NOT_ALL_FOR: Duration = Duration::from_secs(10);

/// A session with a cluster.
pub(crate) struct Db {
    session: Session,
    pub(crate) statements: Statements,
    reading: ExecutionProfileHandle,
    pub(crate) requests: Requests,
    /// Statements under way at the same time.
    pub(crate) statements_max: usize,
    /// Until when not all replicas are asked, after one did not answer.
    not_all_until: Mutex<Option<Instant>>,
    /// For tests: writes until all fail; negative = none fails.
    pub(crate) fails_after: AtomicI64,
    /// For tests: commits whose confirmation is still to be lost.
    pub(crate) unconfirmed: AtomicU64,
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
            not_all_until: Mutex::new(None),
            fails_after: AtomicI64::new(-1),
            unconfirmed: AtomicU64::new(0),
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
        self.execute(what, &self.for_reading(statement), values).await
    }

    /// Sent to a second replica when the first does not answer soon.
    fn for_reading(&self, statement: &PreparedStatement) -> PreparedStatement {
        let mut statement = statement.clone();
        statement.set_execution_profile_handle(Some(self.reading.clone()));
        statement
    }

    async fn execute<R>(
        &self,
        what: &'static str,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<Vec<R>>
    where
        R: for<'frame, 'metadata> DeserializeRow<'frame, 'metadata>,
    {
        let request = self.requests.begin(1).await;
        let result = self.session.execute_unpaged(statement, values).await;
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

    /// The first row, as all replicas together have it. What only one of them has, of a write that was never confirmed, is found
    /// and brought to the others. Where one does not answer, as many are asked as the consistency says, for a while.
    pub(crate) async fn row_of_all<R>(
        &self,
        what: &'static str,
        statement: &PreparedStatement,
        values: impl SerializeRow + Clone,
    ) -> Result<Option<R>>
    where
        R: for<'frame, 'metadata> DeserializeRow<'frame, 'metadata>,
    {
        if self.all_answer() {
            match self.execute(what, &of_all(statement), values.clone()).await {
                Ok(rows) => return Ok(rows.into_iter().next()),
                Err(error) => self.not_all(&error),
            }
        }
        self.row(what, statement, values).await
    }

    /// Reads rows from all replicas, while all answer: that brings to each what others have.
    pub(crate) async fn repair(
        &self,
        what: &'static str,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) {
        let repairing = async {
            let mut rows = self.stream_of::<Row>(what, of_all(statement), values, PAGE_ROWS).await?;
            while rows.try_next().await?.is_some() {}
            Ok(())
        };
        if self.all_answer()
            && let Err(error) = repairing.await
        {
            self.not_all(&error);
        }
    }

    fn all_answer(&self) -> bool {
        self.not_all_until.lock().is_none_or(|until| until <= Instant::now())
    }

    fn not_all(&self, error: &DbError) {
        *self.not_all_until.lock() = Some(Instant::now() + NOT_ALL_FOR);
        tracing::warn!("not all replicas answer: {error}; going on with those that do");
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
        self.stream_of(what, self.for_reading(statement), values, page_rows).await
    }

    async fn stream_of<R>(
        &self,
        what: &'static str,
        mut statement: PreparedStatement,
        values: impl SerializeRow,
        page_rows: i32,
    ) -> Result<BoxStream<'static, Result<R>>>
    where
        R: for<'frame, 'metadata> DeserializeRow<'frame, 'metadata> + Send + 'static,
    {
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
        let (batch, values) = writes.into_batch();
        self.send(what, &batch, &values).await
    }

    /// Writes rows of one partition that decisions follow from, all or none of them. One that is not confirmed may have reached
    /// a single replica, which shows it, or not, to whoever reads next. So the same write is repeated until it is confirmed, for
    /// a while; `failed` is told of each attempt that was not.
    pub(crate) async fn commit(
        &self,
        what: &'static str,
        writes: Writes<'_>,
        failed: impl Fn(&DbError),
    ) -> Result<()> {
        let (batch, values) = writes.into_batch();
        let (began, mut pause) = (Instant::now(), CONFIRM_PAUSE);
        loop {
            let mut sent = self.send(what, &batch, &values).await;
            if sent.is_ok() && self.is_to_be_lost() {
                sent = Err(DbError::new(what, "its confirmation was lost by a test"));
            }
            let Err(error) = sent else { return Ok(()) };
            if began.elapsed() >= CONFIRM_WITHIN || self.fails_after.load(Ordering::Relaxed) == 0 {
                return Err(error);
            }
            failed(&error);
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(CONFIRM_PAUSE_MAX);
        }
    }

    async fn send(&self, what: &'static str, batch: &Batch, values: &[Values<'_>]) -> Result<()> {
        let request = self.requests.begin(values.len()).await;
        self.fail_in_tests(what)?;
        let result = self.session.batch(batch, values).await;
        request.end(&result);
        result.map_err(|error| DbError::new(what, error))?;
        Ok(())
    }

    fn is_to_be_lost(&self) -> bool {
        let left = |count: u64| count.checked_sub(1);
        self.unconfirmed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).is_ok()
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

fn of_all(statement: &PreparedStatement) -> PreparedStatement {
    let mut statement = statement.clone();
    statement.set_consistency(Level::All);
    statement
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
