//! Options of a client.

use std::fmt;
use std::time::Duration;

/// Longest pause, whatever the server or the options ask for.
const PAUSE_MAX: Duration = Duration::from_secs(86_400);

/// What can be set; take the rest from `default()`.
#[derive(Clone)]
pub struct Options {
    /// A token or an API key: printable ASCII without spaces.
    pub token: Option<String>,
    /// Who calls, where the server asks for no tokens.
    pub user: Option<String>,
    /// Shown beside the user's messages.
    pub username: Option<String>,
    /// First pause between attempts; doubled until [`Options::backoff_max`], each with a random part.
    pub backoff_first: Duration,
    /// Longest pause between attempts.
    pub backoff_max: Duration,
    /// Longest time for an answer.
    pub answer_max: Duration,
    /// Longest silence of a connection before it is probed or given up.
    pub silence_max: Duration,
    /// How long a request of queues and keys is repeated.
    pub patience: Duration,
    /// Attempts of such a request even if the patience ends before, but none that begins later than one answer may come
    /// ([`Options::answer_max`]).
    pub attempts_min: u32,
    /// Most messages that wait for their receipt; further ones are refused with `queue_full`.
    pub waiting_max: usize,
    /// Most messages of one room on the way at a time.
    pub in_flight_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            token: None,
            user: None,
            username: None,
            backoff_first: Duration::from_millis(300),
            backoff_max: Duration::from_secs(10),
            answer_max: Duration::from_secs(15),
            silence_max: Duration::from_secs(40),
            patience: Duration::from_secs(60),
            attempts_min: 1,
            waiting_max: 1_000,
            in_flight_max: 32,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let token = self.token.as_ref().map(|_| "***");
        f.debug_struct("Options").field("token", &token).field("user", &self.user).finish_non_exhaustive()
    }
}

impl Options {
    /// Calls as this user, where the server asks for no tokens.
    pub fn for_user(user: impl Into<String>) -> Self {
        Self { user: Some(user.into()), ..Self::default() }
    }

    /// Calls with a token or an API key.
    pub fn for_token(token: impl Into<String>) -> Self {
        Self { token: Some(token.into()), ..Self::default() }
    }

    /// Pause before another attempt, from 0: a random part (0 to 1) of a growing time, and never less than the server
    /// asks for. Those who are told the same second do not come back at the same moment.
    pub(crate) fn pause(&self, attempt: u32, retry_after: Duration, random: f64) -> Duration {
        let most =
            self.backoff_first.saturating_mul(1 << attempt.min(20)).min(self.backoff_max).min(PAUSE_MAX);
        retry_after.min(PAUSE_MAX) + most.mul_f64(random)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_have_a_limit_and_a_random_part() {
        let options = Options::default();
        let ms = |attempt, random| options.pause(attempt, Duration::ZERO, random).as_millis();
        assert_eq!([0, 1, 2, 10, 1_000].map(|attempt| ms(attempt, 1.0)), [300, 600, 1_200, 10_000, 10_000]);
        assert_eq!((ms(1, 0.0), ms(1, 0.5)), (0, 300));
        assert_eq!(options.pause(0, Duration::from_secs(2), 0.5), Duration::from_millis(2_150));
        let endless = Options { backoff_max: Duration::MAX, backoff_first: Duration::MAX, ..options };
        assert_eq!(endless.pause(0, Duration::MAX, 1.0), 2 * PAUSE_MAX);
    }

    #[test]
    fn a_token_is_not_shown() {
        let options = Options { token: Some("secret".into()), ..Options::default() };
        assert!(!format!("{options:?}").contains("secret"));
    }
}
