//! Pauses between tries: longer each time up to a bound, and never the same for two servers.

use std::sync::Arc;
use std::time::Duration;

use hubbub_core::RandomSource;
use tokio::sync::watch;

const FIRST: Duration = Duration::from_millis(100);
const LAST: Duration = Duration::from_secs(5);

pub(super) struct Backoff {
    next: Duration,
    random: Arc<dyn RandomSource>,
}

impl Backoff {
    pub(super) fn new(random: Arc<dyn RandomSource>) -> Self {
        Self { next: FIRST, random }
    }

    /// Begins with the shortest pause again.
    pub(super) fn reset(&mut self) {
        self.next = FIRST;
    }

    /// Half to all of the time that is due.
    fn pause(&mut self) -> Duration {
        let half = self.next / 2;
        let more = u64::try_from(half.as_micros()).unwrap_or(u64::MAX).max(1);
        self.next = (self.next * 2).min(LAST);
        half + Duration::from_micros(self.random.next_u64() % more)
    }

    /// Waits; `None` when the server is told to stop meanwhile.
    pub(super) async fn pause_unless(&mut self, stop: &watch::Receiver<bool>) -> Option<()> {
        let mut stop = stop.clone();
        let pause = self.pause();
        let stopped = tokio::time::timeout(pause, stop.wait_for(|is_stopping| *is_stopping)).await;
        stopped.is_err().then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hubbub_core::clock::SeededRandom;

    #[test]
    fn pauses_grow_to_a_bound() {
        let mut backoff = Backoff::new(Arc::new(SeededRandom::new(1)));
        let pauses: Vec<_> = (0..20).map(|_| backoff.pause()).collect();
        assert!(pauses[0] >= FIRST / 2 && pauses[0] <= FIRST);
        assert!(pauses.iter().all(|pause| *pause <= LAST) && pauses[19] >= LAST / 2);
        assert!(pauses[18] != pauses[19]);
    }
}
