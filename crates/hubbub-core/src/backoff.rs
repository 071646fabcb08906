//! Exponential backoff with a bound, with or without random jitter, for whatever is tried again after it failed.

use std::time::Duration;

use crate::RandomSource;
use crate::invariant::saturate;

/// Pauses that grow.
#[derive(Debug, Clone)]
pub struct Backoff {
    next: Duration,
    first: Duration,
    longest: Duration,
}

impl Backoff {
    /// Pauses of about `first`, then twice as long each time, up to `longest`.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { next: first, first, longest }
    }

    /// Begins with a short pause again.
    pub const fn reset(&mut self) {
        self.next = self.first;
    }

    /// The next pause: half of the current bound, and a random part of the other half.
    pub fn pause(&mut self, random: &dyn RandomSource) -> Duration {
        let half = self.exact_pause() / 2;
        let more = saturate::<_, u64>(half.as_micros()).max(1);
        half + Duration::from_micros(random.next_u64() % more)
    }

    /// The next pause, as long as the current bound: where few try at the same time.
    pub fn exact_pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.longest);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SeededRandom;

    #[test]
    fn pauses_grow_to_a_bound() {
        let (first, longest) = (Duration::from_millis(100), Duration::from_secs(5));
        let (mut backoff, random) = (Backoff::new(first, longest), SeededRandom::new(1));
        let pauses: Vec<_> = (0..20).map(|_| backoff.pause(&random)).collect();
        assert!(pauses[0] >= first / 2 && pauses[0] <= first);
        assert!(pauses.iter().all(|pause| *pause <= longest) && pauses[19] >= longest / 2);
        assert!(pauses[18] != pauses[19]);
        backoff.reset();
        assert!(backoff.pause(&random) <= first);
    }

    #[test]
    fn exact_pauses_double_up_to_a_bound() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(5));
        assert_eq!([(); 5].map(|()| backoff.exact_pause().as_secs()), [1, 2, 4, 5, 5]);
        backoff.reset();
        assert_eq!(backoff.exact_pause().as_secs(), 1);
    }
}
