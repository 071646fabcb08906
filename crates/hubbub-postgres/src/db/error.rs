//! Errors of the database, and what they mean for the caller.

use std::error::Error;

use hubbub_core::store::{ApplyError, ReadError};
use tokio_postgres::Config;
use tokio_postgres::error::{Severity, SqlState};

use super::connect::{OpenError, address};

/// What work on the database results in.
pub(crate) type Result<T, E = DbError> = std::result::Result<T, E>;

/// A connection or a statement failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DbError {
    /// No connection could be opened.
    #[error("no connection to the database: {0}")]
    Connection(String),
    /// All connections of the pool are in use.
    #[error("no connection to the database: none became free in time (store.postgres.pool)")]
    Exhausted,
    /// A statement failed. `what` was attempted, here and below.
    #[error("{what}: {}", describe(error))]
    Statement { what: &'static str, error: tokio_postgres::Error },
    /// The stored data is damaged: a row has a value that the store never writes.
    #[error("{what}: the database holds what cannot be: {found}")]
    UnexpectedRow { what: &'static str, found: String },
    /// The attempt found out what the next one needs to know. Nothing is wrong.
    #[error("{what}: to be done again")]
    Again { what: &'static str },
    /// The batch may not be applied as it is, whatever it holds.
    #[error("{0}")]
    Refused(ApplyError),
    /// It took too long.
    #[error("{what}: no answer in time")]
    Timeout { what: &'static str },
}

/// Why operations were not confirmed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The database refuses their content, or the data they need is damaged. Nothing was stored. The same operations would
    /// fail again; others may not.
    Content(String),
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
        None => match error.source() {
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

    /// Whether a retry may succeed: another transaction interfered, or the first attempt only collected
    /// information.
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self, Self::Again { .. }) || self.is_interference()
    }

    /// Whether another transaction interfered.
    pub(crate) fn is_interference(&self) -> bool {
        matches!(self.state(), Some(code) if *code == SqlState::T_R_SERIALIZATION_FAILURE || *code == SqlState::T_R_DEADLOCK_DETECTED)
    }

    /// Whether it failed only because another statement of its transaction had failed.
    pub(crate) fn is_follow_up(&self) -> bool {
        self.state() == Some(&SqlState::IN_FAILED_SQL_TRANSACTION)
    }

    /// Whether it concerns the given or stored data, not the database as a whole: a value or its size is refused (classes 22
    /// and 54), a row contradicts others (23, except for a missing partition), or is damaged.
    fn is_of_content(&self) -> bool {
        let is_refused = self.state().is_some_and(|state| {
            let is_content = ["22", "23", "54"].iter().any(|class| state.code().starts_with(class));
            is_content && *state != SqlState::CHECK_VIOLATION
        });
        is_refused || self.is_damage()
    }

    /// Whether stored data cannot be read (XX001, XX002), or cannot be.
    fn is_damage(&self) -> bool {
        let is_unreadable = |state: &SqlState| matches!(state.code(), "XX001" | "XX002");
        matches!(self, Self::UnexpectedRow { .. }) || self.state().is_some_and(is_unreadable)
    }

    /// For operations of which nothing was committed.
    pub(crate) fn failed(&self) -> Failure {
        if self.is_of_content() { Failure::Content(self.to_string()) } else { self.before_commit().into() }
    }

    pub(crate) fn is_lock_timeout(&self) -> bool {
        self.state() == Some(&SqlState::LOCK_NOT_AVAILABLE)
    }

    /// Whether it would have needed more time, here or by a limit of the database's.
    pub(crate) fn took_too_long(&self) -> bool {
        matches!(self, Self::Timeout { .. }) || self.state() == Some(&SqlState::QUERY_CANCELED)
    }

    /// Whether the answer announces the end of the connection: the server stops, or a pooler lost it. It says nothing about
    /// the statement.
    fn is_end(&self) -> bool {
        let ends = |code: &str| code.starts_with("08") || code.starts_with("57P0") || code == "40003";
        self.state().is_some_and(|state| ends(state.code())) || self.is_crash()
    }

    /// Whether the server goes down with this answer. A commit may be on its disk already, whatever the code says: a full disk of
    /// the write-ahead log crashes it behind the commit that filled the disk.
    fn is_crash(&self) -> bool {
        let Self::Statement { error, .. } = self else { return false };
        error.as_db_error().is_some_and(|error| error.parsed_severity() == Some(Severity::Panic))
    }

    /// Whether the database ended the session for standing still in a transaction. The transaction is rolled back.
    fn is_end_of_idle(&self) -> bool {
        let state = self.state();
        state == Some(&SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT)
    }

    /// Whether the connection is unusable: broken, or to a server that takes no writes.
    pub(crate) fn spoils_connection(&self) -> bool {
        match self {
            Self::Statement { error, .. } => {
                error.is_closed()
                    || error.as_db_error().is_none()
                    || self.is_end()
                    || self.is_end_of_idle()
                    || self.state() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION)
            }
            Self::Timeout { .. } => true,
            Self::Connection(_)
            | Self::Exhausted
            | Self::UnexpectedRow { .. }
            | Self::Again { .. }
            | Self::Refused(_) => false,
        }
    }

    /// Whether the connection was broken, so that a new one may work.
    pub(crate) fn is_broken_connection(&self) -> bool {
        self.spoils_connection() && !matches!(self, Self::Timeout { .. })
    }

    /// Whether the database may be away, or out of reach; or one statement waited for too long.
    pub(crate) fn may_be_outage(&self) -> bool {
        matches!(self, Self::Connection(_) | Self::Exhausted) || self.spoils_connection()
    }

    /// For a batch of which nothing was committed.
    pub(crate) fn before_commit(&self) -> ApplyError {
        if let Self::Refused(error) = self {
            return error.clone();
        }
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
        let reason = fault.to_string();
        if fault.is_damage() {
            Self::Damaged { reason, resume_at: None }
        } else {
            Self::Unavailable { reason }
        }
    }
}

/// For a failed connection, or a failed first statement.
pub(crate) fn open_error(config: &Config, attempt: &str, error: &tokio_postgres::Error) -> OpenError {
    OpenError(format!("{attempt} PostgreSQL at {}: {}; {}", address(config), describe(error), advice(error)))
}

fn advice(error: &tokio_postgres::Error) -> &'static str {
    match error.code() {
        Some(code) if is_authentication(code) => {
            "check user and password of store.url, and the server's pg_hba.conf"
        }
        Some(code) if *code == SqlState::INVALID_CATALOG_NAME => {
            "make the database (createdb), or name another one in store.url"
        }
        Some(code) if *code == SqlState::INSUFFICIENT_PRIVILEGE => {
            "make the user of store.url the owner of the database, or grant it the right to create tables in the schema"
        }
        Some(code) if *code == SqlState::TOO_MANY_CONNECTIONS => {
            "lower store.postgres.pool.max, or raise max_connections of the server"
        }
        Some(code) if *code == SqlState::LOCK_NOT_AVAILABLE => {
            "another session keeps the table, such as a backup or a forgotten transaction (pg_stat_activity has it): try \
             again when it has ended"
        }
        Some(code) if *code == SqlState::CANNOT_CONNECT_NOW => "try again when the server has started",
        Some(_) => "the server's log may say more",
        None => without_answer(error),
    }
}

fn is_authentication(code: &SqlState) -> bool {
    *code == SqlState::INVALID_PASSWORD || *code == SqlState::INVALID_AUTHORIZATION_SPECIFICATION
}

/// The server did not answer, so the driver's text must do.
fn without_answer(error: &tokio_postgres::Error) -> &'static str {
    let words = describe(error);
    if words.contains("does not support TLS") {
        "switch ssl on in the server, or say sslmode=disable in store.url if the way there is safe"
    } else if words.contains("certificate") {
        "name the authority that signed it in store.postgres.ca; the name in store.url must be one of the certificate's"
    } else if words.contains("password") {
        "give a password in store.url"
    } else if words.contains("allow writes") {
        "promote one of the hosts, or name the primary in store.url"
    } else if is_unresolved(error) {
        "check the host's name in store.url"
    } else {
        "check host and port in store.url, and whether the server runs and listens there"
    }
}

fn is_unresolved(error: &tokio_postgres::Error) -> bool {
    error.source().is_some_and(|source| source.to_string().contains("lookup"))
}
