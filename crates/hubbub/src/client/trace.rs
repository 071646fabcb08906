//! `hubbub trace`: what became of a message on a server.

use serde_json::Value;

use super::session::Session;
use super::{entries, number, show, text};
use crate::cli::TraceArgs;
use crate::output::print;

pub(crate) async fn trace(args: TraceArgs) -> anyhow::Result<()> {
    let TraceArgs { message, room, client } = args;
    let mut session = Session::new(&client)?;
    let path = format!("/v1/rooms/{room}/messages/{message}/timeline");
    let timeline = session.connection.get(&path).await?;
    if client.json {
        return show(true, &timeline, |_| String::new());
    }
    let (seq, server) = (number(&timeline, "seq"), text(&timeline, "server"));
    let mut lines = format!("message {seq} of {room}, as {server} has it on record:\n");
    entries(&timeline, "events")?.iter().for_each(|event| lines += &event_line(event));
    let since = timeline.get("recordedSince").and_then(Value::as_str).unwrap_or("never");
    for missing in entries(&timeline, "missing")? {
        let why = match text(missing, "because") {
            "tooOld" => format!("not known any more; this server's record goes back to {since}"),
            "notHere" => format!("not on this server; its record goes back to {since}"),
            _ => "not recorded (timeline.memory)".to_owned(),
        };
        lines += &format!("{:<10}  {why}\n", text(missing, "stage"));
    }
    print(lines)
}

fn event_line(event: &Value) -> String {
    let mut line = format!("{:<10}  {}", text(event, "stage"), text(event, "at"));
    if let Some(until) = event.get("until").and_then(Value::as_str) {
        line += &format!(" to {until}");
    }
    let count = number(event, "count");
    line += &match text(event, "stage") {
        "queued" => format!("  in a batch of {count}"),
        "published" if text(event, "from") == "commit" => format!("  for {count} live subscribers"),
        "published" => format!("  for {count} live subscribers, from the {}", text(event, "from")),
        "delivered" => format!("  to {count}"),
        _ => String::new(),
    };
    line + "\n"
}
