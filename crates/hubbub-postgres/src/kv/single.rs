//! Reads of single values: as long as few are under way, each has a statement of its own, which its caller's task awaits.
//! Through a batch of reads it would pass to a task and back, which takes longer than the batch saves as long as it is one
//! of few.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use hubbub_core::kv::KvEntry;
use hubbub_core::store::ReadError;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_postgres::Row;

use super::lists::{Values, entry};
use crate::db::statements;
use crate::options::PoolOptions;

/// Most such reads at the same time. Each takes a connection; a quarter of the pool is left to others.
const SINGLES_MAX: usize = 12;

statements! {
    VALUE("reading the value of a key") = "select value, revision, expires_at from kv where key = $1";
}

/// The right to such a read.
pub(super) struct Singles(Arc<Semaphore>);

impl Singles {
    pub(super) fn new(pool: &PoolOptions) -> Self {
        Self(Arc::new(Semaphore::new((pool.max * 3 / 4).clamp(1, SINGLES_MAX))))
    }

    /// `None` = as many are under way as may be.
    pub(super) fn begin(&self) -> Option<OwnedSemaphorePermit> {
        self.0.clone().try_acquire_owned().ok()
    }
}

impl Values {
    /// The value of a key; `None` if there is none.
    pub(super) async fn read_one(&self, key: &[u8]) -> Result<Option<KvEntry>, ReadError> {
        let rows = self.context.db.read(&VALUE, &[&key]).await?;
        let found = |row: &Row| entry(row, 0, &self.position, self.context.clock.now());
        Ok(rows.first().and_then(found))
    }
}

/// A read that its caller polls. If that one goes away, a task of its own ends it: a statement whose answer nobody awaits
/// costs its connection.
pub(super) struct Finished<T: Send + 'static> {
    read: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
    is_begun: bool,
    runtime: Handle,
}

impl<T: Send + 'static> Finished<T> {
    pub(super) fn new(runtime: Handle, read: impl Future<Output = T> + Send + 'static) -> Self {
        Self { read: Some(Box::pin(read)), is_begun: false, runtime }
    }
}

impl<T: Send + 'static> Future for Finished<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<T> {
        self.is_begun = true;
        let Some(read) = &mut self.read else { return Poll::Pending };
        let polled = read.as_mut().poll(cx);
        if polled.is_ready() {
            self.read = None;
        }
        polled
    }
}

impl<T: Send + 'static> Drop for Finished<T> {
    fn drop(&mut self) {
        if let Some(read) = self.read.take().filter(|_| self.is_begun) {
            self.runtime.spawn(read);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_read_is_finished_though_its_caller_goes_away() {
        let reading = || {
            let ((answer, answered), (done, is_done)) = (oneshot::channel::<u8>(), oneshot::channel());
            let read = Finished::new(Handle::current(), async move {
                let answer = answered.await;
                let _ = done.send(answer.clone());
                answer
            });
            (read, answer, is_done)
        };
        let (read, answer, _) = reading();
        answer.send(1).unwrap();
        assert_eq!(read.await, Ok(1));
        let (mut read, answer, is_done) = reading();
        assert!((&mut read).now_or_never().is_none());
        drop(read);
        answer.send(2).unwrap();
        assert_eq!(is_done.await.unwrap(), Ok(2));
        let (read, _answer, is_done) = reading();
        drop(read);
        assert!(is_done.await.is_err(), "it was never begun");
    }
}
