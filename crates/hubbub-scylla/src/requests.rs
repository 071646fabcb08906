//! Bounds how many requests to the cluster are under way, and counts them for metrics.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use hubbub_core::invariant::saturate;
use hubbub_core::store::RequestFigures;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Requests since the store was opened.
pub(crate) struct Requests {
    permits: Semaphore,
    most: usize,
    done: AtomicU64,
    failed: AtomicU64,
    statements: AtomicU64,
    micros: AtomicU64,
    waiting: AtomicU64,
}

/// A request that waits for a permit; its sender may give up.
struct Waiting<'a>(&'a AtomicU64);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// A request under way. One that is dropped before [`Request::end`] was given up, and is not counted.
pub(crate) struct Request<'a> {
    requests: &'a Requests,
    statements: u64,
    began: Instant,
    _permit: Option<SemaphorePermit<'a>>,
}

impl Requests {
    /// At most `most` at the same time.
    pub(crate) fn new(most: usize) -> Self {
        let most = most.max(1);
        let (done, failed, statements, micros, waiting) = Default::default();
        Self { permits: Semaphore::new(most), most, done, failed, statements, micros, waiting }
    }

    /// Waits until a request of so many statements may begin.
    pub(crate) async fn begin(&self, statements: usize) -> Request<'_> {
        let permit = match self.permits.try_acquire() {
            Ok(permit) => Some(permit),
            Err(_) => {
                self.waiting.fetch_add(1, Relaxed);
                let _waiting = Waiting(&self.waiting);
                // It is never closed.
                self.permits.acquire().await.ok()
            }
        };
        Request { requests: self, statements: statements as u64, began: Instant::now(), _permit: permit }
    }

    pub(crate) fn figures(&self) -> RequestFigures {
        RequestFigures {
            done: self.done.load(Relaxed),
            failed: self.failed.load(Relaxed),
            statements: self.statements.load(Relaxed),
            micros: self.micros.load(Relaxed),
            active: self.most.saturating_sub(self.permits.available_permits()) as u64,
            waiting: self.waiting.load(Relaxed),
        }
    }
}

impl Request<'_> {
    /// The request was answered, or failed.
    pub(crate) fn end<T, E>(self, result: &Result<T, E>) {
        let Requests { done, failed, statements, micros, .. } = self.requests;
        done.fetch_add(1, Relaxed);
        failed.fetch_add(result.is_err().into(), Relaxed);
        statements.fetch_add(self.statements, Relaxed);
        micros.fetch_add(saturate(self.began.elapsed().as_micros()), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn requests_are_bounded_and_counted() {
        let requests = Requests::new(1);
        let first = requests.begin(3).await;
        let mut second = Box::pin(requests.begin(1));
        assert!(second.as_mut().now_or_never().is_none());
        let RequestFigures { active, waiting, done, .. } = requests.figures();
        assert_eq!((active, waiting, done), (1, 1, 0));
        drop(second);
        assert_eq!(requests.figures().waiting, 0, "it was given up");
        first.end(&Ok::<(), ()>(()));
        requests.begin(1).await.end(&Err::<(), ()>(()));
        let RequestFigures { active, done, failed, statements, .. } = requests.figures();
        assert_eq!((active, done, failed, statements), (0, 2, 1, 4));
    }
}
