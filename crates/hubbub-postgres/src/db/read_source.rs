//! Routes a read to the primary, or to one connection of a replica.

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Row;

use super::{Conn, Db, DbError, Param, Result, Sql};

/// Timeout of a statement on a replica; then the primary answers.
const PATIENCE: Duration = Duration::from_secs(5);

/// Answers a read, which may take several statements.
#[derive(Clone)]
pub(crate) enum ReadSource {
    Primary(Db),
    /// This connection to a replica only: its position was checked.
    Replica(Arc<Conn>),
}

impl ReadSource {
    /// All rows of one read-only statement.
    pub(crate) async fn read(&self, sql: &Sql, params: &[Param<'_>]) -> Result<Vec<Row>> {
        match self {
            Self::Primary(db) => db.read(sql, params).await,
            Self::Replica(conn) => {
                let read = tokio::time::timeout(PATIENCE, conn.unchecked().query(sql, params)).await;
                read.unwrap_or(Err(DbError::Timeout { what: sql.what }))
            }
        }
    }

    /// The only row of such a statement.
    pub(crate) async fn read_one(&self, sql: &Sql, params: &[Param<'_>]) -> Result<Row> {
        sql.only(self.read(sql, params).await?)
    }
}
