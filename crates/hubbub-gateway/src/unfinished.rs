//! Memory of what has not arrived whole: bodies, frames and commands, of all connections together.
//!
//! Each is bounded by its own limit, and takes memory only as it comes. Many connections that all stop in the middle of something
//! long would still take the memory of the server, so they share one budget.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hubbub_core::ErrorCode;
use hubbub_pipeline::Metrics;

use crate::problem::Problem;

/// Bytes of each body, frame, command or answer that do not count: who fills a budget is in nobody's way who sends little, and is
/// sent little.
pub(crate) const FREE_BYTES: usize = 16 * 1024;

/// What is held of all that has not arrived whole.
#[derive(Debug)]
pub struct Unfinished {
    max_bytes: usize,
    bytes: AtomicUsize,
    metrics: Arc<Metrics>,
}

impl Unfinished {
    /// At most `max_bytes` are held, besides [`FREE_BYTES`] of each. What they take may be twice as much: buffers grow by doubling.
    pub fn new(max_bytes: usize, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self { max_bytes, bytes: AtomicUsize::new(0), metrics })
    }

    fn take(&self, bytes: usize) -> Result<(), Full> {
        let taken = self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| {
            held.checked_add(bytes).filter(|held| *held <= self.max_bytes)
        });
        match taken {
            Ok(_) => {
                self.show();
                Ok(())
            }
            Err(_) => Err(Full),
        }
    }

    fn free(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.show();
    }

    fn show(&self) {
        self.metrics
            .unfinished_bytes
            .set(hubbub_core::invariant::saturate(self.bytes.load(Ordering::Relaxed)));
    }
}

/// The budget is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Full;

impl Full {
    pub(crate) const REASON: &str = "too much is arriving at this moment";
}

impl From<Full> for Problem {
    fn from(_: Full) -> Self {
        Self::new(ErrorCode::Overloaded, Full::REASON)
    }
}

/// The part of one body, frame or command. It is free again when dropped.
#[derive(Debug)]
pub(crate) struct Share {
    all: Arc<Unfinished>,
    counted: usize,
}

impl Share {
    pub(crate) fn new(all: &Arc<Unfinished>) -> Self {
        Self { all: all.clone(), counted: 0 }
    }

    /// Says how many bytes are held now. If that is more than what is left, it fails and changes nothing: the holder is to let go
    /// of them, or to read no more.
    pub(crate) fn set(&mut self, held_bytes: usize) -> Result<(), Full> {
        let counted = held_bytes.saturating_sub(FREE_BYTES);
        if counted > self.counted {
            self.all.take(counted - self.counted)?;
        } else if counted < self.counted {
            self.all.free(self.counted - counted);
        }
        self.counted = counted;
        Ok(())
    }

    /// The same; a failure is counted as a refusal.
    pub(crate) fn set_or_refuse(&mut self, held_bytes: usize) -> Result<(), Full> {
        self.set(held_bytes).inspect_err(|_| self.count_refusal())
    }

    pub(crate) fn count_refusal(&self) {
        self.all.metrics.unfinished_refused.inc();
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.counted > 0 {
            self.all.free(self.counted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_come_out_of_one_budget_and_go_back() {
        let metrics = Arc::new(Metrics::default());
        let all = Unfinished::new(100, metrics.clone());
        let (mut first, mut second) = (Share::new(&all), Share::new(&all));
        assert_eq!(first.set(FREE_BYTES), Ok(()));
        assert_eq!(metrics.unfinished_bytes.get(), 0, "a little is free");
        assert_eq!(first.set(FREE_BYTES + 60), Ok(()));
        assert_eq!(second.set_or_refuse(FREE_BYTES + 41), Err(Full));
        assert_eq!((metrics.unfinished_bytes.get(), metrics.unfinished_refused.get()), (60, 1));
        assert_eq!(second.set(FREE_BYTES + 40), Ok(()));
        assert_eq!(second.set(FREE_BYTES + 41), Err(Full));
        assert_eq!(first.set(FREE_BYTES + 50), Ok(()), "less is always possible");
        drop(first);
        assert_eq!(second.set(FREE_BYTES + 100), Ok(()));
        assert_eq!(second.set(usize::MAX), Err(Full));
        assert_eq!(metrics.unfinished_bytes.get(), 100);
        drop(second);
        assert_eq!(metrics.unfinished_bytes.get(), 0);
    }
}
