//! A small read of the store, of which `/health` and the dashboard tell. All who ask at the same time share one: anybody may ask,
//! without a token and as often as one likes, and a caller that goes away leaves nothing behind but this one.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::Gateway;

const PATIENCE: Duration = Duration::from_secs(3);

/// What such a read came to.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct StoreRead {
    /// How long it took, so that it says something about the store.
    pub(super) latency_ms: f64,
    /// Why it failed, if it did.
    pub(super) fault: Option<String>,
}

/// The last such read, which may be under way.
#[derive(Debug, Default)]
pub(crate) struct StoreReads {
    last: Mutex<Option<watch::Receiver<Option<StoreRead>>>>,
}

impl StoreReads {
    /// The result of the read that is under way; if there is none, of `read`, which goes on when the caller is gone. It must end.
    async fn share(&self, read: impl Future<Output = StoreRead> + Send + 'static) -> StoreRead {
        let mut under_way = {
            let mut last = self.last.lock();
            match &*last {
                Some(last) if matches!(last.has_changed(), Ok(false)) => last.clone(),
                _ => {
                    let (sender, receiver) = watch::channel(None);
                    tokio::spawn(async move {
                        sender.send_replace(Some(read.await));
                    });
                    last.insert(receiver).clone()
                }
            }
        };
        let read = under_way.wait_for(Option::is_some).await.ok().and_then(|read| read.clone());
        read.unwrap_or_else(|| StoreRead { latency_ms: 0.0, fault: Some("the read ended early".into()) })
    }
}

/// A real read, unless one is under way.
pub(super) async fn read_something(gateway: &Arc<Gateway>) -> StoreRead {
    let reading = {
        let gateway = gateway.clone();
        async move {
            let started = gateway.clock.monotonic();
            let read = tokio::time::timeout(PATIENCE, gateway.store.rooms(None, 1)).await;
            let latency_ms = gateway.clock.monotonic().saturating_sub(started).as_secs_f64() * 1e3;
            let fault = match read {
                Ok(read) => read.err().map(|error| error.to_string()),
                Err(_) => Some(format!("no answer within {PATIENCE:?}")),
            };
            StoreRead { latency_ms: (latency_ms * 1e3).round() / 1e3, fault }
        }
    };
    gateway.statistics.store_reads.share(reading).await
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use futures_util::FutureExt;
    use futures_util::future::join_all;
    use tokio::sync::Semaphore;

    use super::*;

    #[tokio::test]
    async fn all_who_ask_at_a_time_share_a_read() {
        let (reads, begun) = (StoreReads::default(), Arc::new(AtomicUsize::new(0)));
        let gate = Arc::new(Semaphore::new(0));
        let ask = || {
            let (begun, gate) = (begun.clone(), gate.clone());
            reads.share(async move {
                let number = begun.fetch_add(1, SeqCst);
                assert!(number != 2, "a test wants this panic");
                let _ = gate.acquire().await.map(tokio::sync::SemaphorePermit::forget);
                StoreRead { latency_ms: 7.0, fault: Some(number.to_string()) }
            })
        };
        for _ in 0..100 {
            // The caller goes away.
            assert!(Box::pin(ask()).now_or_never().is_none());
        }
        let (answers, ()) = tokio::join!(join_all((0..100).map(|_| ask())), async { gate.add_permits(1) });
        assert!(answers.iter().all(|read| read.fault.as_deref() == Some("0")), "{answers:?}");
        assert_eq!(begun.load(SeqCst), 1);
        // Whoever asks afterwards has another one, also after one that panicked.
        gate.add_permits(9);
        assert_eq!(ask().await.fault.as_deref(), Some("1"));
        assert_eq!(ask().await.fault.as_deref(), Some("the read ended early"));
        assert_eq!(ask().await.fault.as_deref(), Some("3"));
    }
}
