//! Effective settings of a queue, and the rules that follow from them, for every store.

use std::sync::Arc;

use crate::queue::{DEAD_LETTER_SUFFIX, LEASE_MS, QueueSettings, WhenFull};

/// Default of the longest delay of a message that is given back, in milliseconds: 5 minutes.
const BACKOFF_MAX_MS: u64 = 300_000;

/// Settings of a queue with a value for every field; see [`QueueSettings`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueRules {
    /// Lease of takes that name none, in milliseconds.
    pub lease_ms: u64,
    /// Deliveries on lease until a message is a dead letter; 0 = unlimited.
    pub deliveries_max: u32,
    /// The dead-letter queue; empty = the queue's name with a suffix.
    pub dead_letter: Arc<str>,
    /// Time to live of messages, in milliseconds; 0 = unlimited.
    pub ttl_ms: u64,
    /// Most messages; 0 = unlimited.
    pub messages_max: u64,
    /// Most bytes of texts; 0 = unlimited.
    pub bytes_max: u64,
    /// What happens when the queue is full.
    pub when_full: WhenFull,
    /// First delay of a message that is given back, in milliseconds.
    pub backoff_ms: u64,
    /// Longest such delay, in milliseconds.
    pub backoff_max_ms: u64,
}

impl Default for QueueRules {
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

impl QueueRules {
    /// The rules after a change of the given settings.
    pub fn changed(&self, by: &QueueSettings) -> Self {
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

    /// The settings, every field with a value.
    pub fn to_settings(&self) -> QueueSettings {
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
    pub fn dead_letter_of(&self, name: &str) -> Arc<str> {
        if self.dead_letter.is_empty() {
            format!("{name}{DEAD_LETTER_SUFFIX}").into()
        } else {
            Arc::clone(&self.dead_letter)
        }
    }

    /// Whether this number of deliveries reaches the limit.
    pub fn exhausts(&self, deliveries: u32) -> bool {
        self.deliveries_max > 0 && deliveries >= self.deliveries_max
    }

    /// Delay of a message that is given back after this number of deliveries, in milliseconds.
    pub fn backoff(&self, deliveries: u32) -> u64 {
        let doublings = deliveries.saturating_sub(1).min(62);
        self.backoff_ms.saturating_mul(1 << doublings).min(self.backoff_max_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_longest() {
        let rules = QueueRules { backoff_ms: 100, backoff_max_ms: 700, ..QueueRules::default() };
        let waits = [1, 2, 3, 4, 5, 90].map(|deliveries| rules.backoff(deliveries));
        assert_eq!(waits, [100, 200, 400, 700, 700, 700]);
        assert_eq!(QueueRules::default().backoff(3), 0);
    }
}
