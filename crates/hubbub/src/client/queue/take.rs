//! `hubbub queue get`, `read` and `lease`; `ack`, `nack` and `extend`.

use std::time::Duration;

use anyhow::bail;
use hubbub_core::text::counted;
use hyper::Method;
use serde_json::{Value, json};

use super::show::message_line;
use super::{millis, path_of};
use crate::cli::TakeArgs;
use crate::client::connection::TIMEOUT;
use crate::client::session::{Session, object};
use crate::client::{entries, print_json, show, text};
use crate::output::{UsageError, print};

/// Takes once. Prints nothing if there is no message.
pub(super) async fn take(
    session: &mut Session,
    how: &str,
    args: &TakeArgs,
    lease: Option<Duration>,
) -> anyhow::Result<()> {
    let body = object([
        ("receiver", args.receiver.as_ref().map(|receiver| Value::from(receiver.as_str()))),
        ("sender", args.from.as_ref().map(|from| Value::from(from.as_str()))),
        ("max", Some(args.max.into())),
        ("waitMs", Some(millis(args.wait))),
        ("order", args.newest.then(|| "newest".into())),
        ("leaseMs", lease.map(millis)),
    ]);
    let path = format!("{}/{how}", path_of(&args.queue));
    let taking = session.connection.request(TIMEOUT + args.wait, Method::POST, &path, body);
    let answer = taking.await?.success()?;
    let mut messages = entries(&answer, "messages")?.iter();
    messages.try_for_each(|message| show(session.is_json, message, message_line))
}

/// Acknowledges all receipts. Fails if any of them was refused.
pub(super) async fn ack(session: &mut Session, path: &str, receipts: Vec<String>) -> anyhow::Result<()> {
    let count = receipts.len();
    let answer = session.post(&format!("{path}/ack"), json!({"receipts": receipts}).to_string()).await?;
    let mut refused = Vec::new();
    for (result, receipt) in entries(&answer, "results")?.iter().zip(&receipts) {
        if session.is_json {
            print_json(result)?;
        }
        if result.get("code").is_some() {
            refused.push(format!("{receipt}: {} ({})", text(result, "detail"), text(result, "code")));
        }
    }
    if !refused.is_empty() {
        bail!("{} of {} refused: {}", refused.len(), counted(count, "receipt"), refused.join("; "));
    }
    if session.is_json { Ok(()) } else { print(format!("acknowledged: {}\n", counted(count, "message"))) }
}

/// Ends or extends a lease, with an optional time.
pub(super) async fn change_lease(
    session: &mut Session,
    path: &str,
    receipt: String,
    how: &str,
    (name, time): (&str, Option<Duration>),
) -> anyhow::Result<()> {
    let id = receipt.split_once('-').and_then(|(id, _)| id.parse::<u64>().ok());
    let id = id.ok_or_else(|| {
        UsageError(format!("receipt '{receipt}': must be the one that came with the message"))
    })?;
    let body = object([("receipt", Some(receipt.into())), (name, time.map(millis))]);
    let answer = session.post(&format!("{path}/messages/{id}/{how}"), body).await?;
    show(session.is_json, &answer, |answer| {
        let time = |name: &str| answer.get(name).and_then(Value::as_str);
        match (time("leasedUntil"), time("readyAt")) {
            (Some(until), _) => format!("on lease until {until}\n"),
            (None, Some(ready_at)) => format!("available again at {ready_at}\n"),
            (None, None) => "that was its last delivery: it is a dead letter\n".to_owned(),
        }
    })
}
