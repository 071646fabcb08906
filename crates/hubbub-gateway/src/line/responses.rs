//! Encodes answers, and maps the numbers of clients and queues to names.

use std::io::Write;

use hubbub_core::number::parse_canonical;
use hubbub_core::queue::Delivery;
use hubbub_core::{Outcome, QueueOutcome, Refusal};

use crate::json::write_number;

pub(super) const OK: &[u8] = b"OK\n";
pub(super) const BAD_REQUEST: &[u8] = b"Bad Request\n";
pub(super) const ERROR: &[u8] = b"Error\n";
pub(super) const UNAUTHORIZED: &[u8] = b"Unauthorized\n";
pub(super) const FORBIDDEN: &[u8] = b"Forbidden\n";
const EMPTY_QUEUE: &[u8] = b"Empty queue\n";
const NO_QUEUE: &[u8] = b"Non existing queue\n";
const QUEUE_NOT_EMPTY: &[u8] = b"Queue not empty\n";

/// The name a number stands for: its decimal digits.
pub(super) struct Name {
    digits: [u8; 20],
    bytes: usize,
}

impl Name {
    pub(super) fn of(number: u64) -> Self {
        let mut digits = [0; 20];
        let mut rest = &mut digits[..];
        // 20 digits hold every u64.
        let _ = write!(rest, "{number}");
        let bytes = 20 - rest.len();
        Self { digits, bytes }
    }

    pub(super) fn as_str(&self) -> &str {
        self.digits.get(..self.bytes).and_then(|digits| std::str::from_utf8(digits).ok()).unwrap_or_default()
    }
}

/// The number that a name is the digits of; 0 when it is not.
pub(super) fn number_of(name: &str) -> u64 {
    parse_canonical(name).unwrap_or(0)
}

/// Appends the answer of an operation. `client` is the one that a registration was for.
pub(super) fn write_outcome(outcome: &Outcome, client: u64, out: &mut Vec<u8>) {
    match outcome {
        Outcome::Queue(QueueOutcome::Client { .. }) => write_id(client, out),
        Outcome::Queue(QueueOutcome::Queue { queue, .. }) => write_id(number_of(queue), out),
        Outcome::Queue(QueueOutcome::Deleted { .. } | QueueOutcome::Sent { .. }) => out.extend_from_slice(OK),
        Outcome::Queue(QueueOutcome::Taken { messages, .. }) => write_first(messages, out),
        Outcome::Refused(Refusal::UnknownQueue) => out.extend_from_slice(NO_QUEUE),
        Outcome::Refused(Refusal::QueueNotEmpty { .. }) => out.extend_from_slice(QUEUE_NOT_EMPTY),
        _ => out.extend_from_slice(ERROR),
    }
}

/// Appends the message found; `None` = there is no such queue.
pub(super) fn write_found(found: Option<&[Delivery]>, out: &mut Vec<u8>) {
    match found {
        Some(found) => write_first(found, out),
        None => out.extend_from_slice(NO_QUEUE),
    }
}

fn write_first(deliveries: &[Delivery], out: &mut Vec<u8>) {
    match deliveries.first() {
        Some(delivery) => write_delivery(delivery, out),
        None => out.extend_from_slice(EMPTY_QUEUE),
    }
}

fn write_id(id: u64, out: &mut Vec<u8>) {
    write_number("OK\nid:", id, out);
    out.push(b'\n');
}

fn write_delivery(delivery: &Delivery, out: &mut Vec<u8>) {
    out.reserve(delivery.text.len() + 128);
    write_number("OK\nid:", delivery.id, out);
    write_number(";sender:", number_of(&delivery.sender), out);
    write_number(";receiver:", delivery.receiver.as_deref().map_or(0, number_of), out);
    write_number(";queue:", number_of(&delivery.queue), out);
    out.extend_from_slice(b";content:");
    let mut rest = delivery.text.as_bytes();
    while let Some(end) = memchr::memchr(b'\n', rest) {
        let line = rest.get(..end).unwrap_or_default();
        out.extend_from_slice(line.strip_suffix(b"\r").unwrap_or(line));
        out.extend_from_slice(b"\\n");
        rest = rest.get(end + 1..).unwrap_or_default();
    }
    out.extend_from_slice(rest);
    out.push(b'\n');
}

/// Appends a list of numbers, in their order.
pub(super) fn write_list(what: &str, mut numbers: Vec<u64>, out: &mut Vec<u8>) {
    numbers.sort_unstable();
    out.extend_from_slice(b"OK\n");
    out.extend_from_slice(what.as_bytes());
    out.extend_from_slice(b":[");
    for (index, number) in numbers.iter().enumerate() {
        write_number(if index > 0 { ", " } else { "" }, *number, out);
    }
    out.extend_from_slice(b"]\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use hubbub_core::Timestamp;

    fn text_of(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    fn delivery(sender: &str, receiver: Option<&str>, text: &str) -> Delivery {
        Delivery {
            id: 3,
            queue: "2".into(),
            sender: sender.into(),
            receiver: receiver.map(Into::into),
            text: text.to_owned(),
            group: None,
            sent_at: Timestamp::from_micros(1),
            deliveries: 0,
            receipt: None,
            leased_until: None,
            dead: None,
        }
    }

    #[test]
    fn numbers_and_names_are_the_same_both_ways() {
        for number in [1, 7, 10, u64::MAX] {
            assert_eq!(number_of(Name::of(number).as_str()), number);
        }
        assert_eq!(Name::of(0).as_str(), "0");
        for name in ["", "0", "007", "seven", "7a", "+7", "-7", "18446744073709551616"] {
            assert_eq!(number_of(name), 0, "{name}");
        }
    }

    #[test]
    fn a_message_is_two_lines() {
        for (sender, receiver, text, answer) in [
            ("1", Some("2"), "a;b:c!", "OK\nid:3;sender:1;receiver:2;queue:2;content:a;b:c!\n"),
            ("ada", None, "", "OK\nid:3;sender:0;receiver:0;queue:2;content:\n"),
            ("1", None, "a\nb\r\nc\rd\n", "OK\nid:3;sender:1;receiver:0;queue:2;content:a\\nb\\nc\rd\\n\n"),
        ] {
            let taken = [delivery(sender, receiver, text)];
            assert_eq!(text_of(|out| write_found(Some(&taken), out)), answer);
        }
        assert_eq!(text_of(|out| write_found(Some(&[]), out)), "Empty queue\n");
        assert_eq!(text_of(|out| write_found(None, out)), "Non existing queue\n");
    }

    #[test]
    fn lists_are_in_the_order_of_their_numbers() {
        assert_eq!(text_of(|out| write_list("users", vec![1, 10, 2], out)), "OK\nusers:[1, 2, 10]\n");
        assert_eq!(text_of(|out| write_list("queues", Vec::new(), out)), "OK\nqueues:[]\n");
    }

    #[test]
    fn outcomes_are_worded() {
        let queue = |outcome| Outcome::Queue(outcome);
        for (outcome, answer) in [
            (queue(QueueOutcome::Client { changed: false }), "OK\nid:7\n"),
            (queue(QueueOutcome::Queue { queue: "12".into(), created: true }), "OK\nid:12\n"),
            (queue(QueueOutcome::Deleted { messages: 0, ready: Box::new([]) }), "OK\n"),
            (queue(QueueOutcome::Taken { messages: Box::new([]), ready: Box::new([]) }), "Empty queue\n"),
            (Outcome::Refused(Refusal::QueueNotEmpty { messages: 1 }), "Queue not empty\n"),
            (Outcome::Refused(Refusal::UnknownQueue), "Non existing queue\n"),
            (Outcome::Refused(Refusal::UnknownClient), "Error\n"),
            (Outcome::Refused(Refusal::UnknownReceiver), "Error\n"),
            (Outcome::Refused(Refusal::QueueFull), "Error\n"),
            (Outcome::Refused(Refusal::NoQueueNumber), "Error\n"),
        ] {
            assert_eq!(text_of(|out| write_outcome(&outcome, 7, out)), answer);
        }
    }
}
