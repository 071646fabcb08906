//! A queue message to send, from JSON.

use serde::Deserialize;

use super::{number, optional_id};
use crate::draft::{Loose, check_loose_id, check_message_text};
use crate::error::FieldError;
use crate::limits::Limits;
use crate::queue::{Audience, DURATION_MS_MAX, Due, QueueSend};
use crate::time::TIMESTAMP_RULE;

/// A queue message as received. Unknown fields are ignored; `null` counts as absent.
#[derive(Debug, Default, Deserialize)]
#[serde(expecting = "an object")]
#[serde(rename_all = "camelCase", default, bound(deserialize = "'de: 'a"))]
pub struct QueueSendDraft<'a> {
    sender: Option<Loose<'a>>,
    receiver: Option<Loose<'a>>,
    audience: Option<Loose<'a>>,
    message: Option<Loose<'a>>,
    message_id: Option<Loose<'a>>,
    delay_ms: Option<Loose<'a>>,
    deliver_at: Option<Loose<'a>>,
    group_id: Option<Loose<'a>>,
    ttl_ms: Option<Loose<'a>>,
}

impl QueueSendDraft<'_> {
    /// The sender's id, if it is a string or an integer.
    pub fn given_id(&self) -> Option<&str> {
        self.message_id.as_ref().and_then(Loose::as_id)
    }

    /// Checks every field and appends errors to `faults`. `Some` if there are none. `caller` and `key` are the defaults of
    /// sender and message id.
    pub fn check<'a>(
        &'a self,
        queue: &'a str,
        limits: &Limits,
        caller: Option<&'a str>,
        key: Option<&'a str>,
        faults: &mut Vec<FieldError>,
    ) -> Option<QueueSend<'a>> {
        let before = faults.len();
        let sender = check_loose_id("sender", self.sender.as_ref(), caller, faults);
        let audience = self.check_audience(faults);
        let text = check_message_text(self.message.as_ref(), None, limits.queue_message_bytes, faults);
        let message_id = optional_id("messageId", self.message_id.as_ref(), key, faults);
        let due = self.check_due(faults);
        let group = optional_id("groupId", self.group_id.as_ref(), None, faults);
        let ttl_ms = number("ttlMs", self.ttl_ms.as_ref(), 1..=DURATION_MS_MAX, faults);
        if faults.len() > before {
            return None;
        }
        let (sender, text) = (sender?, text?);
        Some(QueueSend { queue, sender, audience, text, message_id, due, group, ttl_ms, registers: true })
    }

    fn check_audience(&self, faults: &mut Vec<FieldError>) -> Audience<'_> {
        let receiver = optional_id("receiver", self.receiver.as_ref(), None, faults);
        match self.audience.as_ref().map(Loose::as_text) {
            None => receiver.map_or(Audience::Anyone, Audience::One),
            Some(Some("all")) => {
                if self.receiver.is_some() {
                    faults.push(FieldError::new("audience", "must not be given together with receiver"));
                }
                Audience::All
            }
            Some(_) => {
                faults.push(FieldError::new("audience", "must be all"));
                Audience::All
            }
        }
    }

    fn check_due(&self, faults: &mut Vec<FieldError>) -> Due {
        let delay = number("delayMs", self.delay_ms.as_ref(), 0..=DURATION_MS_MAX, faults);
        let Some(time) = &self.deliver_at else { return delay.map_or(Due::Now, Due::In) };
        if self.delay_ms.is_some() {
            faults.push(FieldError::new("deliverAt", "must not be given together with delayMs"));
        }
        match time.as_time() {
            Some(time) => Due::At(time),
            None => {
                faults.push(FieldError::new("deliverAt", TIMESTAMP_RULE));
                Due::Now
            }
        }
    }
}
