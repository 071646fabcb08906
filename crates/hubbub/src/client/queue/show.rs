//! Lines about queues and messages, for people.

use serde_json::Value;

use crate::client::{number, plain, text};

pub(super) const QUEUES_HEAD: [&str; 7] = ["queue", "ready", "delayed", "leased", "done", "dead", "oldest"];

pub(super) fn queue_row(queue: &Value) -> [String; 7] {
    let oldest = queue.get("oldestSentAt").and_then(Value::as_str).unwrap_or("-");
    let [ready, delayed, leased, done, dead] =
        ["ready", "delayed", "leased", "done", "dead"].map(|name| number(queue, name).to_string());
    [text(queue, "queue").to_owned(), ready, delayed, leased, done, dead, oldest.to_owned()]
}

/// Time, id, sender, receiver and text of a message, and its state.
pub(super) fn message_line(message: &Value) -> String {
    let mut about = Vec::new();
    if let Some(receipt) = message.get("receipt").and_then(Value::as_str) {
        about.push(format!("receipt {receipt} until {}", text(message, "leasedUntil")));
    }
    if let Some(state) = message.get("state").and_then(Value::as_str).filter(|state| *state != "ready") {
        about.push(format!("{state} until {}", text(message, "until")));
    }
    if let Some(dead) = message.get("dead") {
        let (origin, reason) = (text(dead, "origin"), text(dead, "reason"));
        about.push(format!("from {origin}: {reason}, deliveries {}", number(dead, "deliveries")));
    }
    let about = if about.is_empty() { String::new() } else { format!("  [{}]", about.join(", ")) };
    let receiver = message.get("receiver").and_then(Value::as_str).unwrap_or("*");
    let [sent_at, id, sender] = ["sentAt", "id", "sender"].map(|name| text(message, name));
    format!("{sent_at}  {id:>6}  {sender} → {receiver}: {}{about}\n", plain(text(message, "message")))
}
