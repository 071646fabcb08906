//! `hubbub queue get`, `read` and `lease`; `ack`, `nack` and `extend`.

use std::time::Duration;

use anyhow::{Context, bail};
use hyper::Method;
use serde_json::{Map, Value, json};

use super::show::print_message;
use super::{millis, path_of, text};
use crate::cli::TakeArgs;
use crate::client::connection::{Connection, TIMEOUT};
use crate::client::{print, print_json};

/// Takes once. Prints nothing if there is no message.
pub(super) async fn take(
    connection: &mut Connection,
    how: &str,
    args: &TakeArgs,
    lease: Option<Duration>,
    is_json: bool,
) -> anyhow::Result<()> {
    let members = [
        ("receiver", args.receiver.clone().map(Value::from)),
        ("sender", args.from.clone().map(Value::from)),
        ("max", Some(args.max.into())),
        ("waitMs", Some(millis(args.wait))),
        ("order", args.newest.then(|| "newest".into())),
        ("leaseMs", lease.map(millis)),
    ];
    let members = members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    let body = Value::from(members.collect::<Map<_, _>>()).to_string();
    let path = format!("{}/{how}", path_of(&args.queue)?);
    let answer =
        connection.request_within(TIMEOUT + args.wait, Method::POST, &path, body).await?.success()?;
    for message in answer.get("messages").and_then(Value::as_array).into_iter().flatten() {
        if is_json { print_json(message)? } else { print_message(message)? }
    }
    Ok(())
}

/// Acknowledges all receipts. Fails if any of them was refused.
pub(super) async fn ack(
    connection: &mut Connection,
    path: &str,
    receipts: Vec<String>,
    is_json: bool,
) -> anyhow::Result<()> {
    let count = receipts.len();
    let body = json!({"receipts": receipts}).to_string();
    let answer = connection.request(Method::POST, &format!("{path}/ack"), body).await?.success()?;
    let results = answer.get("results").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut refused = Vec::new();
    for (result, receipt) in results.iter().zip(&receipts) {
        if is_json {
            print_json(result)?;
        }
        if result.get("code").is_some() {
            refused.push(format!("{receipt}: {} ({})", text(result, "detail"), text(result, "code")));
        }
    }
    if !refused.is_empty() {
        bail!("{} of {count} receipts were refused: {}", refused.len(), refused.join("; "));
    }
    Ok(())
}

/// The body of a nack or an extension.
pub(super) fn with_time(receipt: &str, name: &str, time: Option<Duration>) -> Value {
    let mut body = json!({"receipt": receipt});
    if let (Some(members), Some(time)) = (body.as_object_mut(), time) {
        members.insert(name.to_owned(), millis(time));
    }
    body
}

pub(super) async fn settle(
    connection: &mut Connection,
    path: &str,
    receipt: &str,
    how: &str,
    body: Value,
    is_json: bool,
) -> anyhow::Result<()> {
    let id = receipt.split_once('-').and_then(|(id, _)| id.parse::<u64>().ok());
    let id =
        id.with_context(|| format!("receipt '{receipt}': must be the one that came with the message"))?;
    let path = format!("{path}/messages/{id}/{how}");
    let answer = connection.request(Method::POST, &path, body.to_string()).await?.success()?;
    if is_json {
        return print_json(&answer);
    }
    match (answer.get("leasedUntil").and_then(Value::as_str), answer.get("readyAt").and_then(Value::as_str)) {
        (Some(until), _) => print(&format!("on lease until {until}\n")),
        (None, Some(ready_at)) => print(&format!("available again at {ready_at}\n")),
        (None, None) => print("that was its last delivery: it is a dead letter\n"),
    }
}
