//! `hubbub history` and `hubbub rooms`.

use anyhow::Context;
use hubbub_core::RoomId;
use serde_json::Value;

use super::connection::Server;
use super::{print, print_json, print_message};
use crate::cli::{HistoryArgs, RoomsArgs};

/// Messages in one request.
const PAGE: usize = 500;

pub(crate) async fn history(args: HistoryArgs) -> anyhow::Result<()> {
    let room = RoomId::new(&args.room).with_context(|| format!("room '{}'", args.room))?;
    let mut connection = Server::parse(&args.client.server)?.connect().await?;
    // Backward pages come newest first, but are printed oldest first: they are collected.
    let is_forward = args.after.is_some() || (args.from.is_some() && args.before.is_none());
    let mut cursor = args.after.or(args.before);
    let mut pages: Vec<Vec<Value>> = Vec::new();
    let mut left = args.limit;
    while left > 0 {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("limit", &left.min(PAGE).to_string());
        if let Some(cursor) = cursor {
            query.append_pair(if is_forward { "after" } else { "before" }, &cursor.to_string());
        }
        for (name, value) in [("from", &args.from), ("to", &args.to)] {
            if let Some(value) = value {
                query.append_pair(name, value);
            }
        }
        let mut page = connection.get(&format!("/v1/rooms/{room}/messages?{}", query.finish())).await?;
        let messages = match page.get_mut("messages").map(Value::take) {
            Some(Value::Array(messages)) => messages,
            _ => anyhow::bail!("the server's answer contains no messages"),
        };
        left = left.saturating_sub(messages.len());
        pages.push(messages);
        cursor = page.get("next").and_then(Value::as_u64);
        if cursor.is_none() {
            break;
        }
    }
    if !is_forward {
        pages.reverse();
    }
    for message in pages.iter().flatten() {
        if args.client.json { print_json(message)? } else { print_message(message)? }
    }
    Ok(())
}

pub(crate) async fn rooms(args: RoomsArgs) -> anyhow::Result<()> {
    let mut connection = Server::parse(&args.client.server)?.connect().await?;
    let mut path = format!("/v1/rooms?limit={PAGE}");
    if !args.client.json {
        print(&format!("{:<32} {:>10} {:>10}  last\n", "room", "messages", "head"))?;
    }
    loop {
        let page = connection.get(&path).await?;
        for room in page.get("rooms").and_then(Value::as_array).into_iter().flatten() {
            if args.client.json {
                print_json(room)?;
                continue;
            }
            let text = |name: &str| room.get(name).and_then(Value::as_str).unwrap_or("-");
            let number = |name: &str| room.get(name).and_then(Value::as_u64).unwrap_or_default();
            let (messages, head) = (number("messages"), number("head"));
            print(&format!(
                "{:<32} {messages:>10} {head:>10}  {}\n",
                text("roomId"),
                text("lastReceivedAt")
            ))?;
        }
        let Some(next) = page.get("next").and_then(Value::as_str) else { return Ok(()) };
        let after = form_urlencoded::byte_serialize(next.as_bytes()).collect::<String>();
        path = format!("/v1/rooms?limit={PAGE}&after={after}");
    }
}
