//! What is set of a queue.

use std::sync::Arc;

use hubbub_core::queue::{DEAD_LETTER_SUFFIX, LEASE_MS, QueueSettings, WhenFull};
use tokio_postgres::Row;

/// The longest wait of a message that is given back again and again, unless told otherwise.
const BACKOFF_MAX_MS: u64 = 300_000;

/// What is set of a queue; every field has a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) lease_ms: u64,
    pub(super) deliveries_max: u32,
    /// Empty = the queue's own name with a suffix.
    pub(super) dead_letter: Arc<str>,
    pub(super) ttl_ms: u64,
    pub(super) messages_max: u64,
    pub(super) bytes_max: u64,
    pub(super) when_full: WhenFull,
    pub(super) backoff_ms: u64,
    pub(super) backoff_max_ms: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lease_ms: LEASE_MS,
            deliveries_max: 0,
            dead_letter: Arc::from(""),
            ttl_ms: 0,
            messages_max: 0,
            bytes_max: 0,
            when_full: WhenFull::Refuse,
            backoff_ms: 0,
            backoff_max_ms: BACKOFF_MAX_MS,
        }
    }
}

fn unsigned(row: &Row, column: &str) -> u64 {
    u64::try_from(row.get::<_, i64>(column)).unwrap_or(0)
}

impl Settings {
    /// Those of a row of `queues`.
    pub(super) fn of_row(row: &Row) -> Self {
        Self {
            lease_ms: unsigned(row, "lease_ms"),
            deliveries_max: u32::try_from(unsigned(row, "deliveries_max")).unwrap_or(u32::MAX),
            dead_letter: row.get::<_, &str>("dead_letter").into(),
            ttl_ms: unsigned(row, "ttl_ms"),
            messages_max: unsigned(row, "messages_max"),
            bytes_max: unsigned(row, "bytes_max"),
            when_full: if row.get("drops_oldest") { WhenFull::DropOldest } else { WhenFull::Refuse },
            backoff_ms: unsigned(row, "backoff_ms"),
            backoff_max_ms: unsigned(row, "backoff_max_ms"),
        }
    }

    /// The same with what is given changed.
    pub(super) fn changed(&self, by: &QueueSettings) -> Self {
        Self {
            lease_ms: by.lease_ms.unwrap_or(self.lease_ms),
            deliveries_max: by.deliveries_max.unwrap_or(self.deliveries_max),
            dead_letter: by.dead_letter.clone().unwrap_or_else(|| Arc::clone(&self.dead_letter)),
            ttl_ms: by.ttl_ms.unwrap_or(self.ttl_ms),
            messages_max: by.messages_max.unwrap_or(self.messages_max),
            bytes_max: by.bytes_max.unwrap_or(self.bytes_max),
            when_full: by.when_full.unwrap_or(self.when_full),
            backoff_ms: by.backoff_ms.unwrap_or(self.backoff_ms),
            backoff_max_ms: by.backoff_max_ms.unwrap_or(self.backoff_max_ms),
        }
    }

    /// As it is told.
    pub(super) fn told(&self) -> QueueSettings {
        QueueSettings {
            lease_ms: Some(self.lease_ms),
            deliveries_max: Some(self.deliveries_max),
            dead_letter: Some(Arc::clone(&self.dead_letter)),
            ttl_ms: Some(self.ttl_ms),
            messages_max: Some(self.messages_max),
            bytes_max: Some(self.bytes_max),
            when_full: Some(self.when_full),
            backoff_ms: Some(self.backoff_ms),
            backoff_max_ms: Some(self.backoff_max_ms),
        }
    }

    /// The name of the dead-letter queue of the queue `name`.
    pub(super) fn dead_letter_of(&self, name: &str) -> Arc<str> {
        if self.dead_letter.is_empty() {
            format!("{name}{DEAD_LETTER_SUFFIX}").into()
        } else {
            Arc::clone(&self.dead_letter)
        }
    }

    /// Whether so many deliveries were all there may be.
    pub(super) fn exhausts(&self, deliveries: u32) -> bool {
        self.deliveries_max > 0 && deliveries >= self.deliveries_max
    }

    /// How long a message waits that was given back after so many deliveries, in milliseconds.
    pub(super) fn backoff(&self, deliveries: u32) -> u64 {
        let doublings = deliveries.saturating_sub(1).min(62);
        self.backoff_ms.saturating_mul(1 << doublings).min(self.backoff_max_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_doubled_up_to_the_longest() {
        let settings = Settings { backoff_ms: 100, backoff_max_ms: 700, ..Settings::default() };
        let waits = [1, 2, 3, 4, 5, 90].map(|deliveries| settings.backoff(deliveries));
        assert_eq!(waits, [100, 200, 400, 700, 700, 700]);
        assert_eq!(Settings::default().backoff(3), 0);
    }
}
