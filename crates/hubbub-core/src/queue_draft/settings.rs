//! Settings of a queue, from JSON.

use std::ops::RangeInclusive;
use std::sync::Arc;

use serde::Deserialize;

use super::number;
use crate::draft::Loose;
use crate::error::FieldError;
use crate::id::{ID_BYTES_MAX, ID_RULE, is_valid_id};
use crate::invariant::saturate;
use crate::queue::{DEAD_LETTER_SUFFIX, DURATION_MS_MAX, QueueSettings, WhenFull};

/// Settings of a queue as received. Unknown fields are passed over here; absent ones keep their values.
#[derive(Debug, Default, Deserialize)]
#[serde(expecting = "an object")]
#[serde(rename_all = "camelCase", default, bound(deserialize = "'de: 'a"))]
pub struct QueueSettingsDraft<'a> {
    lease_ms: Option<Loose<'a>>,
    max_deliveries: Option<Loose<'a>>,
    dead_letter: Option<Loose<'a>>,
    ttl_ms: Option<Loose<'a>>,
    max_messages: Option<Loose<'a>>,
    max_bytes: Option<Loose<'a>>,
    on_full: Option<Loose<'a>>,
    backoff_ms: Option<Loose<'a>>,
    backoff_max_ms: Option<Loose<'a>>,
}

impl QueueSettingsDraft<'_> {
    /// Checks every field and appends errors to `faults`.
    pub fn check(&self, queue: &str, faults: &mut Vec<FieldError>) -> QueueSettings {
        const TIMES: RangeInclusive<u64> = 0..=DURATION_MS_MAX;
        let any_number = 0..=u64::MAX >> 1;
        let deliveries = number("maxDeliveries", self.max_deliveries.as_ref(), 0..=u32::MAX.into(), faults);
        QueueSettings {
            lease_ms: number("leaseMs", self.lease_ms.as_ref(), 1..=DURATION_MS_MAX, faults),
            deliveries_max: deliveries.map(saturate),
            dead_letter: self.check_dead_letter(queue, faults),
            ttl_ms: number("ttlMs", self.ttl_ms.as_ref(), TIMES, faults),
            messages_max: number("maxMessages", self.max_messages.as_ref(), any_number.clone(), faults),
            bytes_max: number("maxBytes", self.max_bytes.as_ref(), any_number, faults),
            when_full: self.on_full.as_ref().and_then(|value| {
                let parsed = value.as_text().and_then(WhenFull::parse);
                if parsed.is_none() {
                    faults.push(FieldError::new("onFull", "must be refuse or dropOldest"));
                }
                parsed
            }),
            backoff_ms: number("backoffMs", self.backoff_ms.as_ref(), TIMES, faults),
            backoff_max_ms: number("backoffMaxMs", self.backoff_max_ms.as_ref(), TIMES, faults),
        }
    }

    fn check_dead_letter(&self, queue: &str, faults: &mut Vec<FieldError>) -> Option<Arc<str>> {
        let name = match self.dead_letter.as_ref()? {
            Loose::Text(text) if text.is_empty() => return Some("".into()),
            other => other.as_id(),
        };
        let rule = match name {
            Some(name) if name == queue => "must not be the queue itself",
            Some(name) if is_valid_id(name) => return Some(name.into()),
            _ => ID_RULE,
        };
        faults.push(FieldError::new("deadLetter", rule));
        None
    }
}

impl WhenFull {
    /// From its name on the wire.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Refuse, Self::DropOldest].into_iter().find(|one| one.as_str() == name)
    }

    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Refuse => "refuse",
            Self::DropOldest => "dropOldest",
        }
    }
}

/// The name of a queue's dead-letter queue, with `set` from its settings.
pub fn dead_letter_name(queue: &str, set: Option<&str>) -> Result<String, FieldError> {
    let name = match set {
        Some(name) if !name.is_empty() => name.to_owned(),
        _ => format!("{queue}{DEAD_LETTER_SUFFIX}"),
    };
    if name.len() > ID_BYTES_MAX {
        let rule = format!(
            "must be given: '{DEAD_LETTER_SUFFIX}' behind the queue's name makes more than {ID_BYTES_MAX} characters"
        );
        return Err(FieldError::new("deadLetter", rule));
    }
    Ok(name)
}
