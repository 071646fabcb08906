//! Explains in one line why a database cannot be used, and what to do.

use std::error::Error;

use tokio_postgres::Config;
use tokio_postgres::error::SqlState;

use super::connect::{OpenError, address};
use super::error::describe;

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
