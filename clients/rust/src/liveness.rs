//! Whether a connection is alive: by every byte that moves, not by whole frames, which may take long on a slow line.

use std::time::{Duration, Instant};

use crate::options::Options;
use crate::sending::Sent;

/// What was written may wait in the system's buffer, where nobody sees it go: its bytes have as much more time for the answer
/// as they need at so many in a second.
const SLOWEST_BYTES: u32 = 4 << 10;
/// Most of that. The server gives a whole message no longer.
const UPLOAD_MAX: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Health {
    Alive,
    /// It is silent: something is to be asked.
    Silent,
    Dead,
}

#[derive(Debug)]
pub(crate) struct Liveness {
    /// When a byte came, or the peer took some of what waited for it.
    lived_at: Instant,
    /// When it was probed, if nothing moved since.
    probed_at: Option<Instant>,
}

impl Liveness {
    /// Of a connection that is open now.
    pub(crate) fn new() -> Self {
        Self { lived_at: Instant::now(), probed_at: None }
    }

    pub(crate) fn on_life(&mut self) {
        *self = Self::new();
    }

    /// A connection that is said to be silent counts as probed. `oldest` has no answer yet.
    pub(crate) fn look(&mut self, now: Instant, oldest: Option<Sent>, options: &Options) -> Health {
        let asked = [oldest.map(|sent| sent.at), self.probed_at].into_iter().flatten().min();
        let answer_max = options.answer_max.saturating_add(oldest.map_or(Duration::ZERO, upload_time));
        let waited = |asked: Instant| now.saturating_duration_since(asked.max(self.lived_at));
        if asked.is_some_and(|asked| waited(asked) > answer_max) {
            return Health::Dead;
        }
        if self.probed_at.is_none() && now.saturating_duration_since(self.lived_at) > options.silence_max {
            self.probed_at = Some(now);
            return Health::Silent;
        }
        Health::Alive
    }
}

fn upload_time(sent: Sent) -> Duration {
    let bytes = u32::try_from(sent.frame_bytes).unwrap_or(u32::MAX);
    (Duration::from_secs(bytes.into()) / SLOWEST_BYTES).min(UPLOAD_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn an_answer_has_its_time_from_the_last_byte_that_moved() {
        let (mut liveness, options) = (Liveness::new(), Options::default());
        let begun = liveness.lived_at;
        let sent = Some(Sent { at: begun, frame_bytes: 100 });
        assert_eq!(liveness.look(begun + 15 * SECOND, sent, &options), Health::Alive);
        assert_eq!(liveness.look(begun + 16 * SECOND, sent, &options), Health::Dead);
        liveness.lived_at = begun + 10 * SECOND;
        assert_eq!(liveness.look(begun + 25 * SECOND, sent, &options), Health::Alive);
        assert_eq!(liveness.look(begun + 26 * SECOND, sent, &options), Health::Dead);
        // What is as long as a message may be takes as long as it may take.
        let large = Some(Sent { at: begun, frame_bytes: 384 << 10 });
        liveness.lived_at = begun;
        assert_eq!(liveness.look(begun + 40 * SECOND, large, &options), Health::Alive);
        assert_eq!(liveness.look(begun + 46 * SECOND, large, &options), Health::Dead);
    }

    #[test]
    fn a_silent_connection_is_probed_and_then_given_up() {
        let (mut liveness, options) = (Liveness::new(), Options::default());
        let begun = liveness.lived_at;
        assert_eq!(liveness.look(begun + 40 * SECOND, None, &options), Health::Alive);
        assert_eq!(liveness.look(begun + 41 * SECOND, None, &options), Health::Silent);
        assert_eq!(liveness.look(begun + 56 * SECOND, None, &options), Health::Alive);
        assert_eq!(liveness.look(begun + 57 * SECOND, None, &options), Health::Dead);
        liveness.on_life();
        assert_eq!(liveness.look(liveness.lived_at, None, &options), Health::Alive);
    }
}
