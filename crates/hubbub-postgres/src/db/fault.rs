//! What went wrong with the database, and what that means for whoever asked.

use hubbub_core::store::{ApplyError, ReadError};
use tokio_postgres::error::SqlState;

/// A statement, or the way to the database, failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// No connection could be had.
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
    /// What the database answered cannot be.
    #[error("{what}: the database holds what cannot be: {found}")]
    Nonsense {
        /// What was attempted.
        what: &'static str,
        /// What was found.
        found: String,
    },
    /// A try came to know what the next one has to be told; nothing is wrong.
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
    /// The database refused what they hold, or holds of what they need what cannot be. Nothing was stored, and the same
    /// will fail again, but others may not.
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

/// The database's own words, in one line; the driver's where it has none.
pub(crate) fn describe(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(db) => format!("{} (SQLSTATE {})", db.message(), db.code().code()),
        None => match std::error::Error::source(error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        },
    }
}

impl Fault {
    fn state(&self) -> Option<&SqlState> {
        match self {
            Self::Statement { error, .. } => error.code(),
            _ => None,
        }
    }

    /// Whether the same may succeed at once: another transaction was in the way, or the
    /// first try was made to find something out.
    pub(crate) fn is_conflict(&self) -> bool {
        if matches!(self, Self::Again { .. }) {
            return true;
        }
        matches!(self.state(), Some(code) if *code == SqlState::T_R_SERIALIZATION_FAILURE || *code == SqlState::T_R_DEADLOCK_DETECTED)
    }

    /// Whether it failed only because another statement of its transaction had failed.
    pub(crate) fn is_echo(&self) -> bool {
        self.state() == Some(&SqlState::IN_FAILED_SQL_TRANSACTION)
    }

    /// Whether it is about what was given or what is stored of it, not about the database as a whole: a value or its size
    /// is refused (classes 22 and 54), a row contradicts others (23, but for a missing partition), cannot be read (XX001,
    /// XX002), or says what cannot be.
    fn is_of_content(&self) -> bool {
        match self {
            Self::Nonsense { .. } => true,
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

    /// Whether a lock was not to be had in the time allowed for it.
    pub(crate) fn is_lock_timeout(&self) -> bool {
        self.state() == Some(&SqlState::LOCK_NOT_AVAILABLE)
    }

    /// Whether the answer is that the connection ends: the server stops, or a pooler lost it, whatever became of the
    /// statement.
    fn is_end(&self) -> bool {
        let ends = |code: &str| code.starts_with("08") || code.starts_with("57P0") || code == "40003";
        self.state().is_some_and(|state| ends(state.code()))
    }

    /// Whether the connection is of no use any more: broken, or to a server that takes no writes.
    pub(crate) fn spoils_connection(&self) -> bool {
        match self {
            Self::Statement { error, .. } => {
                error.is_closed()
                    || error.as_db_error().is_none()
                    || self.is_end()
                    || self.state() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION)
            }
            Self::Timeout { .. } => true,
            Self::Connection(_) | Self::Exhausted | Self::Nonsense { .. } | Self::Again { .. } => false,
        }
    }

    /// Whether the connection turned out to be broken, while a fresh one may do.
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

    /// For a batch whose commit failed: the database's own refusal means that nothing is stored, silence means nothing.
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

impl From<Fault> for ReadError {
    fn from(fault: Fault) -> Self {
        Self::Unavailable { reason: fault.to_string() }
    }
}
