//! `hubbub queue`: manages queues, their messages and clients.

mod send;
mod show;
mod take;

use std::time::Duration;

use anyhow::Context;
use hubbub_core::invariant::saturate;
use hubbub_core::{ClientId, QueueId};
use hyper::Method;
use serde_json::{Map, Value, json};

use super::connection::{Connection, Server};
use super::{print, print_json};
use crate::cli::{OnFull, QueueAction, QueueArgs, QueueSettingsArgs};

/// Entries in one request.
const PAGE: usize = 500;

pub(crate) async fn run(args: QueueArgs) -> anyhow::Result<()> {
    let server = Server::parse(&args.client.server)?;
    let is_json = args.client.json;
    if let QueueAction::Send(args) = args.action {
        return send::send(server, args, is_json).await;
    }
    let mut connection = server.connect().await?;
    let connection = &mut connection;
    match args.action {
        QueueAction::Send(_) => Ok(()),
        QueueAction::Create { queue, settings } => create(connection, &queue, settings, is_json).await,
        QueueAction::Delete { queue, force } => {
            let force = if force { "?force=true" } else { "" };
            done(connection, Method::DELETE, &format!("{}{force}", path_of(&queue)?)).await
        }
        QueueAction::Ls { receiver } => show::list(connection, receiver, is_json).await,
        QueueAction::Get(take) => take::take(connection, "get", &take, None, is_json).await,
        QueueAction::Read(take) => take::take(connection, "read", &take, None, is_json).await,
        QueueAction::Lease { take, lease } => take::take(connection, "lease", &take, lease, is_json).await,
        QueueAction::Peek { queue, limit } => show::peek(connection, &path_of(&queue)?, limit, is_json).await,
        QueueAction::Ack { queue, receipts } => {
            take::ack(connection, &path_of(&queue)?, receipts, is_json).await
        }
        QueueAction::Nack { queue, receipt, delay } => {
            let body = take::with_time(&receipt, "delayMs", delay);
            take::settle(connection, &path_of(&queue)?, &receipt, "nack", body, is_json).await
        }
        QueueAction::Extend { queue, receipt, lease } => {
            let body = take::with_time(&receipt, "leaseMs", lease);
            take::settle(connection, &path_of(&queue)?, &receipt, "extend", body, is_json).await
        }
        QueueAction::Remove { queue, id } => {
            let id: u64 = id.parse().with_context(|| format!("message '{id}': ids are numbers"))?;
            done(connection, Method::DELETE, &format!("{}/messages/{id}", path_of(&queue)?)).await
        }
        QueueAction::Redrive { queue, id } => redrive(connection, &path_of(&queue)?, id, is_json).await,
        QueueAction::Clients { add: Some(client), .. } => {
            done(connection, Method::PUT, &client_path_of(&client)?).await
        }
        QueueAction::Clients { remove: Some(client), .. } => {
            done(connection, Method::DELETE, &client_path_of(&client)?).await
        }
        QueueAction::Clients { .. } => show::clients(connection, is_json).await,
    }
}

fn path_of(queue: &str) -> anyhow::Result<String> {
    let queue = QueueId::new(queue).with_context(|| format!("queue '{queue}'"))?;
    Ok(format!("/v1/queues/{queue}"))
}

fn client_path_of(client: &str) -> anyhow::Result<String> {
    let client = ClientId::new(client).with_context(|| format!("client '{client}'"))?;
    Ok(format!("/v1/clients/{client}"))
}

/// A duration in milliseconds, as JSON.
fn millis(time: Duration) -> Value {
    saturate::<_, u64>(time.as_millis()).into()
}

/// Prints nothing on success, like other commands that change something.
async fn done(connection: &mut Connection, method: Method, path: &str) -> anyhow::Result<()> {
    connection.request(method, path, String::new()).await?.success()?;
    Ok(())
}

async fn create(
    connection: &mut Connection,
    queue: &str,
    settings: QueueSettingsArgs,
    is_json: bool,
) -> anyhow::Result<()> {
    let on_full = settings.on_full.map(|on_full| match on_full {
        OnFull::Refuse => Value::from("refuse"),
        OnFull::DropOldest => Value::from("dropOldest"),
    });
    let given = [
        ("leaseMs", settings.lease.map(millis)),
        ("maxDeliveries", settings.max_deliveries.map(Value::from)),
        ("deadLetter", settings.dead_letter.map(Value::from)),
        ("ttlMs", settings.ttl.map(millis)),
        ("maxMessages", settings.max_messages.map(Value::from)),
        ("maxBytes", settings.max_bytes.map(Value::from)),
        ("onFull", on_full),
        ("backoffMs", settings.backoff.map(millis)),
        ("backoffMaxMs", settings.backoff_max.map(millis)),
    ];
    let given = given.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    let body = Value::from(given.collect::<Map<_, _>>()).to_string();
    let answer = connection.request(Method::PUT, &path_of(queue)?, body).await?;
    let how = if answer.status.as_u16() == 201 { "created" } else { "updated" };
    let queue = answer.success()?;
    if is_json {
        return print_json(&queue);
    }
    print(&format!("{how}: {}\n", text(&queue, "queue")))
}

/// Repeats the request until all messages are moved.
async fn redrive(
    connection: &mut Connection,
    path: &str,
    id: Option<String>,
    is_json: bool,
) -> anyhow::Result<()> {
    let body = id.map_or_else(|| json!({}), |id| json!({"id": id})).to_string();
    let mut moved = 0;
    loop {
        let answer =
            connection.request(Method::POST, &format!("{path}/redrive"), body.clone()).await?.success()?;
        moved += number(&answer, "moved");
        if !answer.get("more").and_then(Value::as_bool).unwrap_or_default() {
            break;
        }
    }
    if is_json {
        return print_json(&json!({"moved": moved}));
    }
    let messages = if moved == 1 { "message" } else { "messages" };
    print(&format!("moved {moved} {messages} back where they came from\n"))
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn number(value: &Value, name: &str) -> u64 {
    value.get(name).and_then(Value::as_u64).unwrap_or_default()
}
