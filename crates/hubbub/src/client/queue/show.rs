//! Prints queues, clients and messages.

use serde_json::Value;

use super::{PAGE, number, text};
use crate::client::connection::Connection;
use crate::client::{plain, print, print_json};

pub(super) async fn list(
    connection: &mut Connection,
    receiver: Option<String>,
    is_json: bool,
) -> anyhow::Result<()> {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("limit", &PAGE.to_string());
    if let Some(receiver) = &receiver {
        query.append_pair("receiver", receiver);
    }
    let path = format!("/v1/queues?{}", query.finish());
    if !is_json && receiver.is_none() {
        let (ready, delayed, leased, done) = ("ready", "delayed", "leased", "done");
        print(&format!("{:<32} {ready:>10} {delayed:>10} {leased:>10} {done:>12}  oldest\n", "queue"))?;
    }
    each_page(connection, &path, "queues", |queue| {
        if is_json {
            return print_json(queue);
        }
        if receiver.is_some() {
            return print(&format!("{}\n", text(queue, "queue")));
        }
        let oldest = queue.get("oldestSentAt").and_then(Value::as_str).unwrap_or("-");
        let count = |name: &str| number(queue, name);
        print(&format!(
            "{:<32} {:>10} {:>10} {:>10} {:>12}  {oldest}\n",
            text(queue, "queue"),
            count("ready"),
            count("delayed"),
            count("leased"),
            count("done"),
        ))
    })
    .await
}

pub(super) async fn clients(connection: &mut Connection, is_json: bool) -> anyhow::Result<()> {
    each_page(connection, &format!("/v1/clients?limit={PAGE}"), "clients", |client| {
        if is_json { print_json(client) } else { print(&format!("{}\n", text(client, "client"))) }
    })
    .await
}

/// Prints up to `limit` messages.
pub(super) async fn peek(
    connection: &mut Connection,
    path: &str,
    limit: usize,
    is_json: bool,
) -> anyhow::Result<()> {
    let (mut after, mut left) = (String::from("0"), limit);
    while left > 0 {
        let page = connection.get(&format!("{path}/messages?after={after}&limit={}", left.min(PAGE))).await?;
        let messages = page.get("messages").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        for message in messages {
            if is_json { print_json(message)? } else { print_message(message)? }
        }
        left = left.saturating_sub(messages.len());
        match page.get("next").and_then(Value::as_str) {
            Some(next) => after = next.to_owned(),
            None => break,
        }
    }
    Ok(())
}

/// Prints a message for people: time, id, sender, receiver, text, and its state.
pub(super) fn print_message(message: &Value) -> anyhow::Result<()> {
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
    print(&format!(
        "{}  {:>6}  {} → {receiver}: {}{about}\n",
        text(message, "sentAt"),
        text(message, "id"),
        text(message, "sender"),
        plain(text(message, "message")),
    ))
}

/// Calls `show` for every entry of a list, page by page.
async fn each_page(
    connection: &mut Connection,
    path: &str,
    name: &str,
    show: impl Fn(&Value) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut next = path.to_owned();
    loop {
        let page = connection.get(&next).await?;
        page.get(name).and_then(Value::as_array).into_iter().flatten().try_for_each(&show)?;
        let Some(after) = page.get("next").and_then(Value::as_str) else { return Ok(()) };
        let after: String = form_urlencoded::byte_serialize(after.as_bytes()).collect();
        next = format!("{path}&after={after}");
    }
}
