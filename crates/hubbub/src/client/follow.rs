//! Follows something over one connection after another.

use std::time::Duration;

use super::session::Backoff;
use crate::output::notice;

/// Pauses between attempts to reconnect.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(5)];

/// The server sends something every 15 s on an event stream, and every 25 s on a WebSocket. After a longer silence the
/// connection is considered lost.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Why a connection ended before everything was printed.
pub(super) enum Failure {
    /// It was lost; a retry may succeed.
    Lost(anyhow::Error),
    /// A retry would fail, too.
    Final(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Lost(error.into())
    }
}

/// What can be followed.
pub(super) trait Follow {
    /// Opens a connection behind the last position, and prints until there is enough.
    async fn follow(&mut self) -> Result<(), Failure>;

    /// The position; `None` before the first successful connection.
    fn position(&self) -> Option<String>;
}

/// Follows and reconnects until there is enough.
pub(super) async fn keep_following(mut followed: impl Follow) -> anyhow::Result<()> {
    let mut backoff = Backoff::new(PAUSES);
    loop {
        let before = followed.position();
        let lost = match followed.follow().await {
            Ok(()) => return Ok(()),
            Err(Failure::Final(error)) => return Err(error),
            // The first attempt must succeed: otherwise the address may be wrong.
            Err(Failure::Lost(error)) if followed.position().is_none() => return Err(error),
            Err(Failure::Lost(error)) => error,
        };
        if followed.position() != before {
            backoff.reset();
        }
        notice(&format!("{lost:#}; reconnecting"));
        backoff.pause().await;
    }
}
