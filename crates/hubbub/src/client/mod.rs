//! Client commands. They use only the server's public protocol.

pub(crate) mod connection;
mod csv;
pub(crate) mod export;
pub(crate) mod import;
pub(crate) mod kv;
mod kv_watch;
pub(crate) mod lists;
#[cfg(feature = "parquet")]
mod parquet;
pub(crate) mod queue;
pub(crate) mod room;
pub(crate) mod send;
pub(crate) mod stats;
pub(crate) mod tail;

use std::io::Write;

use anyhow::Context;
use serde_json::Value;

/// Error of a program built without Parquet.
#[cfg(not(feature = "parquet"))]
const NO_PARQUET: &str = "this hubbub was built without Parquet: build it with the feature parquet \
    (cargo build --features parquet), or choose another --format";

/// Runs a client command.
pub(crate) fn run(command: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("starting the runtime")?.block_on(command)
}

/// Prints to standard output. A closed pipe, as by `head`, is an error like any other.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).context("writing to standard output")
}

/// Prints one JSON object as a line.
pub(crate) fn print_json(value: &Value) -> anyhow::Result<()> {
    print(&format!("{value}\n"))
}

/// Prints a message for people: time, seq, user, text.
fn print_message(message: &Value) -> anyhow::Result<()> {
    let text = |name: &str| message.get(name).and_then(Value::as_str).unwrap_or_default();
    let name = if text("username").is_empty() { text("userId") } else { text("username") };
    let seq = message.get("seq").and_then(Value::as_u64).unwrap_or_default();
    let said = plain(text("message"));
    let said = match text("messageType") {
        "JOIN" => format!("→ {said}"),
        "LEAVE" => format!("← {said}"),
        _ => said,
    };
    print(&format!("{}  {seq:>6}  {name}: {said}\n", text("receivedAt")))
}

/// The text without control characters, so that no escape sequence reaches the terminal.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\t' { '\u{FFFD}' } else { c }).collect()
}
