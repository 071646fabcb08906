//! Writes: of one row, of many of one partition, and those that decisions follow from.

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::TryStreamExt;
use futures_util::stream::{self, StreamExt};
use hubbub_core::backoff::Backoff;
use scylla::serialize::row::SerializeRow;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::prepared::PreparedStatement;
use tokio::time::Instant;

use super::{Db, DbError, Result};

/// Bytes of a row besides its texts, roughly.
const ROW_BYTES: usize = 120;
/// Largest batch, unless one row is larger. Servers warn or refuse beyond some ten times that.
const BATCH_BYTES: usize = 48 << 10;
/// Batches that are written to one partition at the same time.
const BATCHES_AT_ONCE: usize = 4;
/// Most statements of a batch.
const BATCH_STATEMENTS: usize = 250;
/// How long a commit is repeated after the cluster did not confirm it, and the pauses between.
const CONFIRM_WITHIN: Duration = Duration::from_secs(10);
const CONFIRM_PAUSE: Duration = Duration::from_millis(50);
/// Shorter than any server takes to start: one that was away in between is noticed by the request that follows.
const CONFIRM_PAUSE_MAX: Duration = Duration::from_millis(500);

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

impl Db {
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
    /// a while; `failed` is told of each attempt that was not. It is not repeated to a cluster that was away: that may have lost
    /// what it had confirmed, and what this write names would be missing for ever.
    pub(crate) async fn commit(
        &self,
        what: &'static str,
        writes: Writes<'_>,
        failed: impl Fn(&DbError),
    ) -> Result<()> {
        let (batch, values) = writes.into_batch();
        let (mut give_up, mut backoff) = (None, Backoff::new(CONFIRM_PAUSE, CONFIRM_PAUSE_MAX));
        loop {
            let mut sent = self.send(what, &batch, &values).await;
            if sent.is_ok() && self.is_to_be_lost() {
                let lost = DbError::new(what, "its confirmation was lost by a test");
                sent = Err(DbError { is_cluster_there: true, ..lost });
            }
            let Err(error) = sent else { return Ok(()) };
            let give_up = *give_up.get_or_insert_with(|| Instant::now() + CONFIRM_WITHIN);
            if !error.is_cluster_there || Instant::now() >= give_up {
                return Err(error);
            }
            failed(&error);
            tokio::time::sleep(backoff.exact_pause()).await;
        }
    }

    async fn send(&self, what: &'static str, batch: &Batch, values: &[Values<'_>]) -> Result<()> {
        let request = self.requests.begin(values.len()).await;
        self.fail_in_tests(what)?;
        let result = self.session.batch(batch, values).await;
        request.end(&result);
        result.map_err(|error| DbError::of_request(what, &error))?;
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
