//! Client commands. They use only the server's public protocol.

pub(crate) mod address;
pub(crate) mod connection;
mod csv;
pub(crate) mod export;
mod follow;
pub(crate) mod import;
pub(crate) mod key;
pub(crate) mod kv;
mod kv_watch;
pub(crate) mod lists;
mod metrics;
mod pages;
#[cfg(feature = "parquet")]
mod parquet;
pub(crate) mod queue;
pub(crate) mod room;
pub(crate) mod send;
pub(crate) mod session;
pub(crate) mod stats;
pub(crate) mod status;
mod table;
pub(crate) mod tail;
pub(crate) mod trace;
pub(crate) mod user;

use anyhow::Context;
use serde_json::Value;

use crate::output::{json_line, plain, print};

/// Error of a program built without Parquet.
#[cfg(not(feature = "parquet"))]
const NO_PARQUET: &str = "this hubbub was built without Parquet: build it with the feature parquet \
    (cargo build --features parquet), or choose another --format";

pub(crate) fn run(command: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("starting the runtime")?;
    let ran = runtime.block_on(command);
    // What still writes or reads then, such as the rest of an export that was interrupted, is not waited for.
    runtime.shutdown_background();
    ran
}

pub(crate) fn print_json(value: &Value) -> anyhow::Result<()> {
    print(json_line(&value.to_string()) + "\n")
}

/// Prints an answer, as JSON or as text for people.
pub(crate) fn show(is_json: bool, value: &Value, text: impl FnOnce(&Value) -> String) -> anyhow::Result<()> {
    if is_json { print_json(value) } else { print(text(value)) }
}

/// A string member of an object; empty if it is missing.
fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// A number of an object; 0 if it is missing.
fn number(value: &Value, name: &str) -> u64 {
    value.get(name).and_then(Value::as_u64).unwrap_or_default()
}

/// A boolean of an object; false if it is missing.
fn is_true(value: &Value, name: &str) -> bool {
    value.get(name).and_then(Value::as_bool).unwrap_or_default()
}

/// The entries of a list in an answer.
fn entries<'a>(answer: &'a Value, name: &str) -> anyhow::Result<&'a [Value]> {
    let list = answer.get(name).and_then(Value::as_array);
    Ok(list.with_context(|| format!("the server's answer contains no {name}"))?)
}

/// A message for people: time, seq, user, text. Anybody may give any name, so it does not stand for the user.
fn message_line(message: &Value) -> String {
    let text = |name: &str| text(message, name);
    let user = text("userId");
    let name = match text("username") {
        name if name.is_empty() || name == user => user.to_owned(),
        name => format!("{} ({user})", plain(name)),
    };
    let arrow = match text("messageType") {
        "JOIN" => "→ ",
        "LEAVE" => "← ",
        _ => "",
    };
    let (seq, content) = (number(message, "seq"), plain(text("message")));
    format!("{}  {seq:>6}  {name}: {arrow}{content}\n", text("receivedAt"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_names_the_user_whatever_name_was_given() {
        let line = |username: Value| {
            let message = json!({"seq": 7, "userId": "eve", "username": username, "message": "hi\u{1b}[2J"});
            message_line(&message).trim_start().to_owned()
        };
        assert_eq!(line(Value::Null), "7  eve: hi\u{FFFD}[2J\n");
        assert_eq!(line(json!("eve")), line(Value::Null));
        assert_eq!(line(json!("ada\u{9b}2J")), "7  ada\u{FFFD}2J (eve): hi\u{FFFD}[2J\n");
    }
}
