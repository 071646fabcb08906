//! Settings of a queue, and the rules that follow from them, for every store.

use std::sync::Arc;

use crate::queue::{DEAD_LETTER_SUFFIX, LEASE_MS};

/// The table of settings: each with its type and default.
macro_rules! settings {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $default:expr;)*) => {
        /// A change of settings of a queue. `None` keeps the value, or sets the default in a new queue.
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        pub struct QueueSettings {
            $($(#[$doc])* pub $name: Option<$type>,)*
        }

        /// Settings of a queue with a value for every field.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct QueueRules {
            $($(#[$doc])* pub $name: $type,)*
        }

        impl Default for QueueRules {
            fn default() -> Self {
                Self { $($name: $default,)* }
            }
        }

        impl QueueRules {
            /// The rules after a change of the given settings.
            pub fn changed(&self, by: &QueueSettings) -> Self {
                Self { $($name: by.$name.clone().unwrap_or_else(|| self.$name.clone()),)* }
            }
        }
    };
}

settings! {
    /// Lease of takes that name none, in milliseconds. Default [`LEASE_MS`].
    lease_ms: u64 = LEASE_MS;
    /// Deliveries on lease without an acknowledgement after which a message moves to the dead-letter queue; 0 = never.
    /// Default 0.
    deliveries_max: u32 = 0;
    /// The dead-letter queue; empty = the queue's name with [`DEAD_LETTER_SUFFIX`]. Default empty.
    dead_letter: Arc<str> = Arc::from("");
    /// Time to live of messages that have none of their own, in milliseconds; 0 = unlimited. Default 0.
    ttl_ms: u64 = 0;
    /// Most messages in the queue; 0 = unlimited. Default 0.
    messages_max: u64 = 0;
    /// Most bytes of texts in the queue; 0 = unlimited. Default 0.
    bytes_max: u64 = 0;
    /// What happens when the queue is full. Default [`WhenFull::Refuse`].
    when_full: WhenFull = WhenFull::Refuse;
    /// First delay of a message that is given back without a delay, doubled each further time, in milliseconds.
    /// Default 0: no delay.
    backoff_ms: u64 = 0;
    /// Longest such delay, in milliseconds. Default 5 minutes.
    backoff_max_ms: u64 = 300_000;
}

/// What happens when a message is sent to a full queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenFull {
    /// It is refused, as [`crate::Refusal::QueueFull`].
    Refuse,
    /// The oldest messages that are not on lease are dropped.
    DropOldest,
}

impl QueueRules {
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
