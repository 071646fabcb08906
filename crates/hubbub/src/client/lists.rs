//! `hubbub history` and `hubbub rooms`.

use serde_json::Value;

use super::connection::{failed_at, json};
use super::pages::{PageSize, Pages};
use super::session::{Session, with_query};
use super::table::Table;
use super::{entries, message_line, number, show};
use crate::cli::{ClientArgs, HistoryArgs};

pub(crate) async fn history(args: HistoryArgs) -> anyhow::Result<()> {
    let path = format!("/v1/rooms/{}/messages", args.room);
    let mut session = Session::new(&args.client)?;
    // Backward pages come newest first, but are printed oldest first: they are collected.
    let is_forward = args.after.is_some() || (args.from.is_some() && args.before.is_none());
    let direction = if is_forward { "after" } else { "before" };
    let mut cursor = args.after.or(args.before);
    let mut pages = Vec::new();
    let (mut size, mut left) = (PageSize::new(), args.limit);
    while left > 0 {
        let page_path = |limit: usize| {
            let pairs = [
                ("limit", Some(limit.to_string())),
                (direction, cursor.map(|cursor| cursor.to_string())),
                ("from", args.from.clone()),
                ("to", args.to.clone()),
            ];
            with_query(&path, pairs)
        };
        let answer = size.read(&mut session.connection, left, page_path).await;
        let page = json(&path, answer.map_err(|error| failed_at(&path, &error))?)?.body;
        let messages = entries(&page, "messages")?.to_vec();
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
    pages.iter().flatten().try_for_each(|message| show(session.is_json, message, message_line))
}

pub(crate) async fn rooms(args: ClientArgs) -> anyhow::Result<()> {
    let pages = Pages::new("/v1/rooms".into(), "rooms", usize::MAX);
    let row = |room: &Value| {
        let text = |name: &str| room.get(name).and_then(Value::as_str).unwrap_or("-").to_owned();
        let number = |name: &str| number(room, name).to_string();
        [text("roomId"), number("messages"), number("head"), text("lastReceivedAt")]
    };
    Session::new(&args)?.table(pages, Table::new(["room", "messages", "head", "last"]), row).await
}
