//! Queues and their messages as JSON. Messages are written by hand, because a take is what is asked for most.

use std::borrow::Cow;

use hubbub_core::queue::{DURATION_MS_MAX, Delivery, MessageState, QueueInfo, Waiting, WhenFull};
use hubbub_core::queue_draft::dead_letter_name;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde_json::Value;

use super::super::types::{Id, OR_NULL, Time};
use crate::auth::receipts::ReceiptFormat;
use crate::json::{write_items, write_number, write_plain, write_text, write_time};

/// Bytes of a message's object besides its text: about.
pub(super) const MESSAGE_BYTES: usize = 256;

pub(super) fn write_deliveries(deliveries: &[Delivery], format: &ReceiptFormat) -> Vec<u8> {
    let texts: usize = deliveries.iter().map(|delivery| delivery.text.len()).sum();
    let mut out = Vec::with_capacity(texts + deliveries.len() * MESSAGE_BYTES + 16);
    out.extend_from_slice(b"{\"messages\":[");
    write_items(deliveries, &mut out, |delivery, out| {
        write_delivery(delivery, format, out);
        out.push(b'}');
    });
    out.extend_from_slice(b"]}");
    out
}

/// Appends a message, its closing brace left out.
fn write_delivery(delivery: &Delivery, format: &ReceiptFormat, out: &mut Vec<u8>) {
    write_number("{\"id\":\"", delivery.id, out);
    write_plain("\",\"queue\":\"", &delivery.queue, out);
    write_plain(",\"sender\":\"", &delivery.sender, out);
    if let Some(receiver) = &delivery.receiver {
        write_plain(",\"receiver\":\"", receiver, out);
    }
    write_text(",\"message\":", &delivery.text, out);
    if let Some(group) = &delivery.group {
        write_plain(",\"groupId\":\"", group, out);
    }
    write_time(",\"sentAt\":\"", delivery.sent_at, out);
    write_number(",\"deliveries\":", delivery.deliveries.into(), out);
    if let Some(receipt) = delivery.receipt {
        write_plain(",\"receipt\":\"", &format.write(receipt), out);
        match delivery.leased_until {
            Some(until) => write_time(",\"leasedUntil\":\"", until, out),
            None => out.extend_from_slice(b",\"leasedUntil\":null"),
        }
    }
    if let Some(dead) = &delivery.dead {
        write_plain(",\"dead\":{\"origin\":\"", &dead.origin, out);
        write_plain(",\"reason\":\"", dead.reason.as_str(), out);
        write_number(",\"deliveries\":", dead.deliveries.into(), out);
        out.push(b'}');
    }
}

pub(super) fn write_waiting(waiting: &Waiting, out: &mut Vec<u8>) {
    // It has no receipt.
    write_delivery(&waiting.delivery, &ReceiptFormat::default(), out);
    let (state, until) = match waiting.state {
        MessageState::Ready => ("ready", None),
        MessageState::Delayed(until) => ("delayed", Some(until)),
        MessageState::Leased(until) => ("leased", Some(until)),
    };
    write_plain(",\"state\":\"", state, out);
    if let Some(until) = until {
        write_time(",\"until\":\"", until, out);
    }
    if let Some(expires_at) = waiting.expires_at {
        write_time(",\"expiresAt\":\"", expires_at, out);
    }
    out.push(b'}');
}

// What may be set of a queue, as an answer shows it: everything.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Settings {
    /// Lease of consumers that ask for none.
    #[schemars(range(min = 1, max = DURATION_MS_MAX))]
    lease_ms: u64,
    /// After so many deliveries on lease without an ack it is a dead letter; 0 = never.
    max_deliveries: u32,
    /// Where messages go that were delivered `maxDeliveries` times; empty = the queue's name with `.dead`.
    dead_letter: Option<String>,
    /// How long messages wait at most that were sent without a limit; 0 = for ever.
    #[schemars(range(max = DURATION_MS_MAX))]
    ttl_ms: u64,
    /// Messages it may hold; 0 = any number.
    max_messages: u64,
    /// Bytes of texts it may hold; 0 = any number.
    max_bytes: u64,
    /// What becomes of a message too many: it is refused, or the oldest go that are not on lease.
    #[schemars(extend("enum" = [WhenFull::Refuse.as_str(), WhenFull::DropOldest.as_str()]))]
    on_full: &'static str,
    /// How long a message given back waits the first time, doubled each time.
    #[schemars(range(max = DURATION_MS_MAX))]
    backoff_ms: u64,
    /// The longest such wait.
    #[schemars(range(max = DURATION_MS_MAX))]
    backoff_max_ms: u64,
}

/// The body of a `PUT`: the settings of an answer, all of them optional. `QueueSettingsDraft` reads it.
pub(in crate::http) struct QueueSettings;

impl JsonSchema for QueueSettings {
    fn schema_name() -> Cow<'static, str> {
        "QueueSettings".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = Settings::json_schema(generator);
        schema.remove("required");
        schema.insert("additionalProperties".to_owned(), false.into());
        schema.insert("description".to_owned(), "What is left out stays as it is.".into());
        if let Some(dead_letter) = schema.pointer_mut("/properties/deadLetter").and_then(Value::as_object_mut)
        {
            dead_letter.insert(OR_NULL.to_owned(), true.into());
        }
        schema
    }
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::http) struct Queue {
    queue: Id,
    #[serde(flatten)]
    settings: Settings,
    /// How many it holds, in any state.
    messages: u64,
    /// Those that may be taken now, or behind others of their group.
    ready: u64,
    /// Those that may not be taken yet.
    delayed: u64,
    /// Those on lease.
    leased: u64,
    /// Bytes of all their texts.
    bytes: u64,
    /// Sent to it since it was made.
    sent: u64,
    /// Taken away or acknowledged.
    done: u64,
    /// Outlived their time, or went as the oldest of too many.
    dropped: u64,
    /// Given to its dead-letter queue.
    dead: u64,
    /// When the oldest of them was sent.
    oldest_sent_at: Option<Time>,
    /// Whether it holds messages other queues gave up.
    is_dead_letter: bool,
}

impl From<QueueInfo> for Queue {
    fn from(info: QueueInfo) -> Self {
        let settings = &info.settings;
        let settings = Settings {
            lease_ms: settings.lease_ms,
            max_deliveries: settings.deliveries_max,
            dead_letter: dead_letter_name(&info.queue, Some(&settings.dead_letter)).ok(),
            ttl_ms: settings.ttl_ms,
            max_messages: settings.messages_max,
            max_bytes: settings.bytes_max,
            on_full: settings.when_full.as_str(),
            backoff_ms: settings.backoff_ms,
            backoff_max_ms: settings.backoff_max_ms,
        };
        Self {
            messages: info.messages(),
            queue: Id(info.queue),
            settings,
            ready: info.ready,
            delayed: info.delayed,
            leased: info.leased,
            bytes: info.bytes,
            sent: info.sent,
            done: info.done,
            dropped: info.dropped,
            dead: info.dead,
            oldest_sent_at: info.oldest_sent_at.map(Time),
            is_dead_letter: info.is_dead_letter,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hubbub_core::Timestamp;
    use hubbub_core::queue::{DeadLetter, DeadReason, LeaseReceipt};
    use serde_json::json;

    fn delivery() -> Delivery {
        Delivery {
            id: 7,
            queue: "jobs".into(),
            sender: "ann".into(),
            receiver: None,
            text: "say \"hi\"".into(),
            group: None,
            sent_at: Timestamp::from_micros(0),
            deliveries: 0,
            receipt: None,
            leased_until: None,
            dead: None,
        }
    }

    #[test]
    fn messages_say_what_is_known_of_them() {
        let format = ReceiptFormat::default();
        let written = |delivery: Delivery| -> Value {
            let answer: Value = serde_json::from_slice(&write_deliveries(&[delivery], &format)).unwrap();
            answer["messages"][0].clone()
        };
        let plain = json!({
            "id": "7", "queue": "jobs", "sender": "ann", "message": "say \"hi\"",
            "sentAt": "1970-01-01T00:00:00.000Z", "deliveries": 0,
        });
        assert_eq!(written(delivery()), plain);
        let dead = DeadLetter { origin: "work".into(), reason: DeadReason::LeaseExpired, deliveries: 3 };
        let full = written(Delivery {
            receiver: Some("bob".into()),
            group: Some("g".into()),
            deliveries: 2,
            receipt: Some(LeaseReceipt { id: 7, delivery: 5, epoch: 0xc0ffee }),
            leased_until: Some(Timestamp::from_micros(1_000_000)),
            dead: Some(dead),
            ..delivery()
        });
        assert_eq!((&full["receiver"], &full["groupId"]), (&json!("bob"), &json!("g")));
        assert_eq!(
            (&full["receipt"], &full["leasedUntil"]),
            (&json!("7-5-0000000000c0ffee"), &json!("1970-01-01T00:00:01.000Z"))
        );
        assert_eq!(full["dead"], json!({"origin": "work", "reason": "lease_expired", "deliveries": 3}));
    }

    #[test]
    fn what_is_leased_shows_no_receipt_to_others() {
        let until = Timestamp::from_micros(1_000_000);
        let leased = Waiting {
            delivery: Delivery { deliveries: 1, leased_until: Some(until), ..delivery() },
            state: MessageState::Leased(until),
            expires_at: None,
        };
        let mut out = Vec::new();
        write_waiting(&leased, &mut out);
        let written: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(
            (&written["state"], &written["until"]),
            (&json!("leased"), &json!("1970-01-01T00:00:01.000Z"))
        );
        assert!(written.get("receipt").is_none() && written.get("expiresAt").is_none());
    }
}
