//! Where a read goes: to the primary, or over one connection to a replica that will do.

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Row;

use super::{Conn, Db, Fault, Param, Sql};

/// Longest time for a statement on a replica; then the primary is asked.
const PATIENCE: Duration = Duration::from_secs(5);

/// What answers a read, which may be several statements.
#[derive(Clone)]
pub(crate) enum Source {
    /// Any connection to the primary.
    Primary(Db),
    /// This connection to a replica, and no other: it was looked at before.
    Replica(Arc<Conn>),
}

impl Source {
    /// All rows of one statement that changes nothing.
    pub(crate) async fn read(&self, sql: &Sql, params: &[Param<'_>]) -> Result<Vec<Row>, Fault> {
        match self {
            Self::Primary(db) => db.read(sql, params).await,
            Self::Replica(conn) => {
                let read = tokio::time::timeout(PATIENCE, conn.unchecked().query(sql, params)).await;
                read.unwrap_or(Err(Fault::Timeout { what: sql.what }))
            }
        }
    }

    /// The only row of such a statement.
    pub(crate) async fn read_one(&self, sql: &Sql, params: &[Param<'_>]) -> Result<Row, Fault> {
        let row = self.read(sql, params).await?.into_iter().next();
        row.ok_or_else(|| Fault::Nonsense { what: sql.what, found: "no row".into() })
    }
}
