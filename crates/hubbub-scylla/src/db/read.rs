//! Reads: of one row, of as many as their statement bounds, page by page, and of all replicas.

use std::time::Duration;

use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt};
use scylla::deserialize::row::DeserializeRow;
use scylla::frame::types::Consistency as Level;
use scylla::serialize::row::SerializeRow;
use scylla::statement::prepared::PreparedStatement;
use scylla::value::Row;
use tokio::time::Instant;

use super::{Db, DbError, Result};

/// Rows fetched at once by reads that may be long.
pub(crate) const PAGE_ROWS: i32 = 500;
/// Time in which only as many replicas are asked as the consistency says, after not all have answered.
const NOT_ALL_FOR: Duration = Duration::from_secs(10);

impl Db {
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
}

fn of_all(statement: &PreparedStatement) -> PreparedStatement {
    let mut statement = statement.clone();
    statement.set_consistency(Level::All);
    statement
}
