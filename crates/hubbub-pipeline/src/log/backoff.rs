//! Exponential backoff with a bound and random jitter, for whatever is asked again after it failed.

use std::sync::Arc;
use std::time::Duration;

use hubbub_core::RandomSource;
use hubbub_core::invariant::saturate;
use tokio::sync::watch;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);

/// Pauses that grow.
pub struct Backoff {
    next: Duration,
    longest: Duration,
    random: Arc<dyn RandomSource>,
}

impl Backoff {
    /// Pauses up to five seconds.
    pub fn new(random: Arc<dyn RandomSource>) -> Self {
        Self { next: FIRST, longest: LONGEST, random }
    }

    /// Pauses up to `longest`.
    #[must_use]
    pub fn up_to(self, longest: Duration) -> Self {
        Self { longest, ..self }
    }

    /// Begins with a short pause again.
    pub fn reset(&mut self) {
        self.next = FIRST;
    }

    /// The next pause: half of the current bound, and a random part of the other half.
    fn pause(&mut self) -> Duration {
        let half = self.next / 2;
        let more = saturate::<_, u64>(half.as_micros()).max(1);
        self.next = (self.next * 2).min(self.longest);
        half + Duration::from_micros(self.random.next_u64() % more)
    }

    /// Waits; `None` when the server stops meanwhile.
    pub async fn pause_unless(&mut self, stop: &watch::Receiver<bool>) -> Option<()> {
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
        assert!(pauses.iter().all(|pause| *pause <= LONGEST) && pauses[19] >= LONGEST / 2);
        assert!(pauses[18] != pauses[19]);
    }
}
