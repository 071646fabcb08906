//! Errors of the database, and what they mean for the caller.

use hubbub_core::store::{ApplyError, ReadError};
use tokio_postgres::error::SqlState;

/// A connection or a statement failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DbError {
    /// No connection could be opened.
    #[error("no connection to the database: {0}")]
    Connection(String),
    /// All connections of the pool are in use.
    #[error("no connection to the database: none became free in time (store.postgres.pool)")]
    Exhausted,
    /// A statement failed.
    #[error("{what}: {}", describe(error))]
    Statement {
        /// What was attempted.
        what: &'static str,
        /// How it failed.
        error: tokio_postgres::Error,
    },
    /// The stored data is damaged: a row has a value that the store never writes.
    #[error("{what}: the database holds what cannot be: {found}")]
    UnexpectedRow {
        /// What was attempted.
        what: &'static str,
        /// What was found.
        found: String,
    },
    /// The attempt found out what the next one needs to know. Nothing is wrong.
    #[error("{what}: to be done again")]
    Again {
        /// What was attempted.
        what: &'static str,
    },
    /// It took too long.
    #[error("{what}: no answer in time")]
    Timeout {
        /// What was attempted.
        what: &'static str,
    },
}

/// Why operations were not confirmed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The database refuses their content, or the data they need is damaged. Nothing was stored. The same operations would
    /// fail again; others may not.
    Content(String),
    /// Everything else.
    Other(ApplyError),
}

impl From<ApplyError> for Failure {
    fn from(error: ApplyError) -> Self {
        Self::Other(error)
    }
}

impl From<Failure> for ApplyError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Content(reason) => Self::Unavailable { reason },
            Failure::Other(error) => error,
        }
    }
}

/// The database's text in one line, or the driver's if it has none.
pub(crate) fn describe(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(db) => format!("{} (SQLSTATE {})", db.message(), db.code().code()),
        None => match std::error::Error::source(error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        },
    }
}

impl DbError {
    fn state(&self) -> Option<&SqlState> {
        match self {
            Self::Statement { error, .. } => error.code(),
            _ => None,
        }
    }

    /// Whether an immediate retry may succeed: another transaction interfered, or the first attempt only collected
    /// information.
    pub(crate) fn is_conflict(&self) -> bool {
        if matches!(self, Self::Again { .. }) {
            return true;
        }
        matches!(self.state(), Some(code) if *code == SqlState::T_R_SERIALIZATION_FAILURE || *code == SqlState::T_R_DEADLOCK_DETECTED)
    }

    /// Whether it failed only because another statement of its transaction had failed.
    pub(crate) fn is_follow_up(&self) -> bool {
        self.state() == Some(&SqlState::IN_FAILED_SQL_TRANSACTION)
    }

    /// Whether it concerns the given or stored data, not the database as a whole: a value or its size is refused (classes 22
    /// and 54), a row contradicts others (23, except for a missing partition), cannot be read (XX001, XX002), or is damaged.
    fn is_of_content(&self) -> bool {
        match self {
            Self::UnexpectedRow { .. } => true,
            Self::Statement { .. } => self.state().is_some_and(|state| {
                let code = state.code();
                let is_content = ["22", "23", "54"].iter().any(|class| code.starts_with(class));
                is_content && *state != SqlState::CHECK_VIOLATION || matches!(code, "XX001" | "XX002")
            }),
            _ => false,
        }
    }

    /// For operations of which nothing was committed.
    pub(crate) fn failed(&self) -> Failure {
        if self.is_of_content() { Failure::Content(self.to_string()) } else { self.before_commit().into() }
    }

    /// Whether a lock timed out.
    pub(crate) fn is_lock_timeout(&self) -> bool {
        self.state() == Some(&SqlState::LOCK_NOT_AVAILABLE)
    }

    /// Whether the answer announces the end of the connection: the server stops, or a pooler lost it. It says nothing about
    /// the statement.
    fn is_end(&self) -> bool {
        let ends = |code: &str| code.starts_with("08") || code.starts_with("57P0") || code == "40003";
        self.state().is_some_and(|state| ends(state.code()))
    }

    /// Whether the connection is unusable: broken, or to a server that takes no writes.
    pub(crate) fn spoils_connection(&self) -> bool {
        match self {
            Self::Statement { error, .. } => {
                error.is_closed()
                    || error.as_db_error().is_none()
                    || self.is_end()
                    || self.state() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION)
            }
            Self::Timeout { .. } => true,
            Self::Connection(_) | Self::Exhausted | Self::UnexpectedRow { .. } | Self::Again { .. } => false,
        }
    }

    /// Whether the connection was broken, so that a new one may work.
    pub(crate) fn is_broken_connection(&self) -> bool {
        self.spoils_connection() && !matches!(self, Self::Timeout { .. })
    }

    /// For a batch of which nothing was committed.
    pub(crate) fn before_commit(&self) -> ApplyError {
        if self.state() == Some(&SqlState::DISK_FULL) {
            return ApplyError::DiskFull { reason: self.to_string() };
        }
        ApplyError::Unavailable { reason: self.to_string() }
    }

    /// For a batch whose commit failed. A refusal by the database means that nothing is stored; silence leaves it open.
    pub(crate) fn at_commit(&self) -> ApplyError {
        match self {
            Self::Statement { error, .. }
                if error.as_db_error().is_some() && !error.is_closed() && !self.is_end() =>
            {
                self.before_commit()
            }
            _ => ApplyError::Unconfirmed { reason: self.to_string() },
        }
    }
}

impl From<DbError> for ReadError {
    fn from(fault: DbError) -> Self {
        Self::Unavailable { reason: fault.to_string() }
    }
}
