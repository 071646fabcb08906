//! Queues and their messages as JSON. Written by hand, because a take is what is asked for most.

use hubbub_core::Timestamp;
use hubbub_core::message::{write_json_string, write_u64};
use hubbub_core::queue::{Delivery, QueueInfo, Waiting, WaitingState};
use hubbub_core::queue_draft::dead_letter_name;

use super::super::rooms::write_numbers;

/// Bytes of a message's object besides its text: about.
pub(super) const MESSAGE_BYTES: usize = 256;

/// `{"messages":[…]}`.
pub(super) fn write_deliveries(deliveries: &[Delivery]) -> Vec<u8> {
    let texts: usize = deliveries.iter().map(|delivery| delivery.text.len()).sum();
    let mut out = Vec::with_capacity(texts + deliveries.len() * MESSAGE_BYTES + 16);
    out.extend_from_slice(b"{\"messages\":[");
    for (index, delivery) in deliveries.iter().enumerate() {
        out.extend_from_slice(if index == 0 { b"{" } else { b",{" });
        write_delivery(delivery, &mut out);
        out.push(b'}');
    }
    out.extend_from_slice(b"]}");
    out
}

/// Appends the members of a message.
pub(super) fn write_delivery(delivery: &Delivery, out: &mut Vec<u8>) {
    write_id("\"id\":\"", delivery.id, out);
    // Names are ASCII without anything to escape.
    write_name(",\"queue\":\"", &delivery.queue, out);
    write_name(",\"sender\":\"", &delivery.sender, out);
    if let Some(receiver) = &delivery.receiver {
        write_name(",\"receiver\":\"", receiver, out);
    }
    out.extend_from_slice(b",\"message\":");
    write_json_string(&delivery.text, out);
    if let Some(group) = &delivery.group {
        write_name(",\"groupId\":\"", group, out);
    }
    write_time(",\"sentAt\":", Some(delivery.sent_at), out);
    write_numbers(&[("deliveries", delivery.deliveries.into())], out);
    if let Some(receipt) = delivery.receipt {
        write_name(",\"receipt\":\"", &receipt.to_string(), out);
        write_time(",\"leasedUntil\":", delivery.leased_until, out);
    }
    if let Some(dead) = &delivery.dead {
        write_name(",\"dead\":{\"origin\":\"", &dead.origin, out);
        write_name(",\"reason\":\"", dead.reason.as_str(), out);
        write_numbers(&[("deliveries", dead.deliveries.into())], out);
        out.push(b'}');
    }
}

/// Appends the members of a message in any state.
pub(super) fn write_waiting(waiting: &Waiting, out: &mut Vec<u8>) {
    write_delivery(&waiting.delivery, out);
    let (state, until) = match waiting.state {
        WaitingState::Ready => ("ready", None),
        WaitingState::Delayed(until) => ("delayed", Some(until)),
        WaitingState::Leased(until) => ("leased", Some(until)),
    };
    write_name(",\"state\":\"", state, out);
    if until.is_some() {
        write_time(",\"until\":", until, out);
    }
    if waiting.expires_at.is_some() {
        write_time(",\"expiresAt\":", waiting.expires_at, out);
    }
}

/// Appends the members of a queue.
pub(super) fn write_queue(info: &QueueInfo, out: &mut Vec<u8>) {
    let settings = &info.settings;
    write_name("\"queue\":\"", &info.queue, out);
    let number = |value: Option<u64>| value.unwrap_or_default();
    write_numbers(
        &[
            ("leaseMs", number(settings.lease_ms)),
            ("maxDeliveries", settings.deliveries_max.unwrap_or_default().into()),
        ],
        out,
    );
    out.extend_from_slice(b",\"deadLetter\":");
    match dead_letter_name(&info.queue, settings.dead_letter.as_deref()) {
        Ok(name) => write_json_string(&name, out),
        Err(_) => out.extend_from_slice(b"null"),
    }
    write_numbers(
        &[
            ("ttlMs", number(settings.ttl_ms)),
            ("maxMessages", number(settings.messages_max)),
            ("maxBytes", number(settings.bytes_max)),
        ],
        out,
    );
    write_name(",\"onFull\":\"", settings.when_full.unwrap_or_default().as_str(), out);
    write_numbers(
        &[
            ("backoffMs", number(settings.backoff_ms)),
            ("backoffMaxMs", number(settings.backoff_max_ms)),
            ("messages", info.messages()),
            ("ready", info.ready),
            ("delayed", info.delayed),
            ("leased", info.leased),
            ("bytes", info.bytes),
            ("sent", info.sent),
            ("done", info.done),
            ("dropped", info.dropped),
            ("dead", info.dead),
        ],
        out,
    );
    write_time(",\"oldestSentAt\":", info.oldest_sent_at, out);
    out.extend_from_slice(b",\"isDeadLetter\":");
    out.extend_from_slice(if info.is_dead_letter { b"true" } else { b"false" });
}

/// Appends a member whose value is a number's digits as a string; `name` as far as its quotation mark.
pub(super) fn write_id(name: &str, id: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    write_u64(id, out);
    out.push(b'"');
}

/// Appends a member whose value needs no escaping; `name` as far as its quotation mark.
pub(super) fn write_name(name: &str, value: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(value.as_bytes());
    out.push(b'"');
}

/// Appends a member whose value is a time or `null`; `name` as far as its colon.
pub(super) fn write_time(name: &str, time: Option<Timestamp>, out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    match time {
        Some(time) => {
            out.push(b'"');
            time.write(out);
            out.push(b'"');
        }
        None => out.extend_from_slice(b"null"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hubbub_core::queue::{DeadLetter, DeadReason, LeaseReceipt};
    use serde_json::{Value, json};

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
        let written = |delivery: Delivery| -> Value {
            serde_json::from_slice::<Value>(&write_deliveries(&[delivery])).unwrap()["messages"][0].clone()
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
            (&json!("7-5-c0ffee"), &json!("1970-01-01T00:00:01.000Z"))
        );
        assert_eq!(full["dead"], json!({"origin": "work", "reason": "lease_expired", "deliveries": 3}));
    }

    #[test]
    fn what_is_leased_shows_no_receipt_to_others() {
        let until = Timestamp::from_micros(1_000_000);
        let leased = Waiting {
            delivery: Delivery { deliveries: 1, leased_until: Some(until), ..delivery() },
            state: WaitingState::Leased(until),
            expires_at: None,
        };
        let mut out = b"{".to_vec();
        write_waiting(&leased, &mut out);
        out.push(b'}');
        let written: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(
            (&written["state"], &written["until"]),
            (&json!("leased"), &json!("1970-01-01T00:00:01.000Z"))
        );
        assert!(written.get("receipt").is_none() && written.get("expiresAt").is_none());
    }
}
