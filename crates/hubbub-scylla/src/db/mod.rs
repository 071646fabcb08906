//! The session: sends statements, bounds how many are under way, and says what a failure means.

mod connect;
mod read;
mod write;

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::time::Duration;

use hubbub_core::store::ReadError;
use parking_lot::Mutex;
use scylla::client::execution_profile::{ExecutionProfile, ExecutionProfileBuilder, ExecutionProfileHandle};
use scylla::client::session::Session;
use scylla::errors::{DbError as ServerError, ExecutionError, RequestAttemptError};
use scylla::frame::types::Consistency as Level;
use scylla::policies::speculative_execution::SimpleSpeculativeExecutionPolicy;
use tokio::time::Instant;

pub(crate) use self::connect::connect;
pub(crate) use self::read::PAGE_ROWS;
pub(crate) use self::write::Writes;
use crate::options::{Consistency, ScyllaOptions};
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
    /// Whether the cluster is there: it refused, did not answer in time, or a replica wrote and others did not. Else the replicas
    /// may have been started again since, without what they had confirmed last.
    pub(crate) is_cluster_there: bool,
}

impl DbError {
    pub(crate) fn new(what: &'static str, error: impl Display) -> Self {
        Self { what, error: error.to_string(), is_cluster_there: false }
    }

    fn of_request(what: &'static str, error: &ExecutionError) -> Self {
        use ServerError::{IsBootstrapping, Unavailable, WriteFailure, WriteTimeout};
        let is_cluster_there = match error {
            ExecutionError::RequestTimeout(_) => true,
            ExecutionError::LastAttemptError(RequestAttemptError::DbError(answered, _)) => match answered {
                Unavailable { .. } | IsBootstrapping => false,
                WriteTimeout { received, .. } | WriteFailure { received, .. } => *received > 0,
                _ => true,
            },
            _ => false,
        };
        Self { is_cluster_there, ..Self::new(what, error) }
    }
}

impl From<DbError> for ReadError {
    fn from(error: DbError) -> Self {
        Self::Unavailable { reason: error.to_string() }
    }
}

pub(crate) type Result<T> = std::result::Result<T, DbError>;

/// Time after which a read is sent to another replica, too.
const SPECULATE_AFTER: Duration = Duration::from_millis(250);

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

fn profile(options: &ScyllaOptions) -> ExecutionProfileBuilder {
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
}

#[cfg(test)]
mod tests {
    use scylla::errors::WriteType;

    use super::*;

    #[test]
    fn a_cluster_that_was_away_is_told_from_one_that_refuses() {
        let answered = |error| ExecutionError::from(RequestAttemptError::DbError(error, "later".into()));
        let written_by = |received| {
            let (required, consistency, write_type) = (2, Level::Quorum, WriteType::Simple);
            answered(ServerError::WriteTimeout { received, required, consistency, write_type })
        };
        let timeout = ExecutionError::RequestTimeout(SPECULATE_AFTER);
        let there = [timeout, answered(ServerError::Overloaded), written_by(1)];
        let broken = RequestAttemptError::UnableToAllocStreamId.into();
        let away = [broken, ExecutionError::EmptyPlan, answered(ServerError::IsBootstrapping), written_by(0)];
        let is_there = |error: &ExecutionError| DbError::of_request("writing", error).is_cluster_there;
        assert!(there.iter().all(is_there) && !away.iter().any(is_there));
    }
}
