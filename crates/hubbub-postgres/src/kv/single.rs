//! Reads of single values: as long as very few are under way, each has a statement of its own, which its caller's task
//! awaits. A batch of reads passes through a task and back, which takes longer than it saves as long as it is one of few.
//! With more of them batches win: a statement costs the database more than the keys in it.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context as TaskContext, Poll};

use hubbub_core::kv::KvEntry;
use hubbub_core::store::ReadError;
use tokio::runtime::Handle;

use super::lists::{Values, entry};
use crate::db::statements;
use crate::options::PoolOptions;

/// Most such reads at the same time; at most half of the pool.
const READS_MAX: usize = 2;

statements! {
    VALUE("reading the value of a key") = "select value, revision, expires_at from kv where key = $1";
}

/// Counts such reads.
pub(super) struct Singles {
    max: usize,
    under_way: AtomicUsize,
}

/// The right to one such read.
pub(super) struct Single {
    singles: Arc<Singles>,
}

impl Singles {
    pub(super) fn new(pool: &PoolOptions) -> Arc<Self> {
        Arc::new(Self { max: (pool.max / 2).clamp(1, READS_MAX), under_way: AtomicUsize::new(0) })
    }

    /// `None` = as many are under way as may be.
    pub(super) fn begin(self: &Arc<Self>) -> Option<Single> {
        let begin = |under_way| (under_way < self.max).then_some(under_way + 1);
        self.under_way.fetch_update(Relaxed, Relaxed, begin).ok()?;
        Some(Single { singles: self.clone() })
    }
}

impl Drop for Single {
    fn drop(&mut self) {
        self.singles.under_way.fetch_sub(1, Relaxed);
    }
}

impl Values {
    /// The value of a key; `None` if there is none.
    pub(super) async fn read_one(&self, _right: Single, key: &[u8]) -> Result<Option<KvEntry>, ReadError> {
        let rows = self.context.db.read(&VALUE, &[&key]).await?;
        let found = |row| entry(row, 0, &self.position, self.context.clock.now());
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
