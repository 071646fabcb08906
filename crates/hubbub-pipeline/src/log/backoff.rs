//! Pauses between attempts of what goes on until the server stops.

use std::sync::Arc;
use std::time::Duration;

use hubbub_core::RandomSource;
use tokio::sync::watch;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);

/// Pauses that grow ([`hubbub_core::backoff::Backoff`]), and end when the server stops.
pub struct Backoff {
    pauses: hubbub_core::backoff::Backoff,
    random: Arc<dyn RandomSource>,
}

impl Backoff {
    /// Pauses up to five seconds.
    pub fn new(random: Arc<dyn RandomSource>) -> Self {
        Self { pauses: hubbub_core::backoff::Backoff::new(FIRST, LONGEST), random }
    }

    /// Pauses up to `longest`.
    #[must_use]
    pub fn up_to(self, longest: Duration) -> Self {
        Self { pauses: hubbub_core::backoff::Backoff::new(FIRST, longest), ..self }
    }

    /// Begins with a short pause again.
    pub fn reset(&mut self) {
        self.pauses.reset();
    }

    /// Waits; `None` when the server stops meanwhile.
    pub async fn pause_unless(&mut self, stop: &watch::Receiver<bool>) -> Option<()> {
        let mut stop = stop.clone();
        let pause = self.pauses.pause(&*self.random);
        let stopped = tokio::time::timeout(pause, stop.wait_for(|is_stopping| *is_stopping)).await;
        stopped.is_err().then_some(())
    }
}
