//! A take, or a read of what it would return, from JSON.

use serde::Deserialize;

use super::{number, optional_id};
use crate::draft::Loose;
use crate::error::FieldError;
use crate::invariant::saturate;
use crate::queue::{DURATION_MS_MAX, TAKE_MAX};

/// Longest wait for messages, in milliseconds.
pub const WAIT_MS_MAX: u64 = 20_000;

/// A take or a read as received. Unknown fields are ignored; `null` counts as absent.
#[derive(Debug, Default, Deserialize)]
#[serde(expecting = "an object")]
#[serde(rename_all = "camelCase", default, bound(deserialize = "'de: 'a"))]
pub struct TakeDraft<'a> {
    /// The consumer.
    pub receiver: Option<Loose<'a>>,
    /// Only messages of this sender.
    pub sender: Option<Loose<'a>>,
    /// Maximum number of messages.
    pub max: Option<Loose<'a>>,
    /// `oldest` or `newest` first.
    pub order: Option<Loose<'a>>,
    /// How long to wait for a message.
    pub wait_ms: Option<Loose<'a>>,
    /// Duration of the lease.
    pub lease_ms: Option<Loose<'a>>,
}

/// A checked [`TakeDraft`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckedTake<'a> {
    /// The consumer; `None` = only messages for anybody.
    pub receiver: Option<&'a str>,
    /// Only messages of this sender.
    pub sender: Option<&'a str>,
    /// Maximum number of messages.
    pub max: usize,
    /// Newest first instead of oldest first.
    pub newest_first: bool,
    /// How long to wait for a message, in milliseconds.
    pub wait_ms: u64,
    /// Duration of the lease in milliseconds; `None` = the queue's default.
    pub lease_ms: Option<u64>,
}

impl TakeDraft<'_> {
    /// Checks every field and appends errors to `faults`. `caller` is the default receiver.
    pub fn check<'a>(&'a self, caller: Option<&'a str>, faults: &mut Vec<FieldError>) -> CheckedTake<'a> {
        let newest_first = match self.order.as_ref().map(Loose::as_text) {
            None | Some(Some("oldest")) => false,
            Some(Some("newest")) => true,
            Some(_) => {
                faults.push(FieldError::new("order", "must be oldest or newest"));
                false
            }
        };
        let max = number("max", self.max.as_ref(), 1..=TAKE_MAX as u64, faults);
        CheckedTake {
            receiver: optional_id("receiver", self.receiver.as_ref(), caller, faults),
            sender: optional_id("sender", self.sender.as_ref(), None, faults),
            max: max.map_or(1, saturate),
            newest_first,
            wait_ms: number("waitMs", self.wait_ms.as_ref(), 0..=WAIT_MS_MAX, faults).unwrap_or(0),
            lease_ms: number("leaseMs", self.lease_ms.as_ref(), 1..=DURATION_MS_MAX, faults),
        }
    }
}
