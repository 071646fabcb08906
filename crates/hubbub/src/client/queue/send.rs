//! `hubbub queue send`: sends a message, or each line of standard input.

use anyhow::Context;
use hyper::Method;
use serde_json::{Map, Value};
use tokio::io::{AsyncBufReadExt, BufReader};

use super::{millis, path_of, text};
use crate::cli::QueueSendArgs;
use crate::client::connection::Server;
use crate::client::send::RetryingClient;
use crate::client::{print, print_json};

pub(super) async fn send(server: Server, args: QueueSendArgs, is_json: bool) -> anyhow::Result<()> {
    let path = format!("{}/messages", path_of(&args.queue)?);
    let mut client = RetryingClient::new(server);
    let id = args.id.clone();
    match &args.text {
        Some(said) if said != "-" => {
            let id = id.unwrap_or_else(|| client.make_id());
            send_one(&mut client, &path, &args, said, id, is_json).await
        }
        _ => {
            let mut lines = BufReader::new(tokio::io::stdin()).lines();
            while let Some(line) = lines.next_line().await.context("reading standard input")? {
                if !line.is_empty() {
                    let id = client.make_id();
                    send_one(&mut client, &path, &args, &line, id, is_json).await?;
                }
            }
            Ok(())
        }
    }
}

async fn send_one(
    client: &mut RetryingClient,
    path: &str,
    args: &QueueSendArgs,
    said: &str,
    id: String,
    is_json: bool,
) -> anyhow::Result<()> {
    let members = [
        ("sender", Some(Value::from(args.from.as_str()))),
        ("receiver", args.to.clone().map(Value::from)),
        ("audience", args.all.then(|| Value::from("all"))),
        ("message", Some(said.into())),
        ("messageId", Some(id.into())),
        ("delayMs", args.delay.map(millis)),
        ("ttlMs", args.ttl.map(millis)),
        ("groupId", args.group.clone().map(Value::from)),
    ];
    let members = members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    let body = Value::from(members.collect::<Map<_, _>>()).to_string();
    let receipt = client.request(Method::POST, path, &body).await?.success()?;
    if is_json {
        return print_json(&receipt);
    }
    let is_duplicate = receipt.get("duplicate").and_then(Value::as_bool).unwrap_or_default();
    let how = if is_duplicate { "was there before" } else { "waits" };
    let copies = super::number(&receipt, "copies");
    let copies = if args.all { format!(", {copies} copies") } else { String::new() };
    print(&format!("{how} as message {} of {}{copies}\n", text(&receipt, "id"), args.queue))
}
