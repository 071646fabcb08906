//! `hubbub queue`: manages queues, their messages and clients.

mod show;
mod take;

use std::time::Duration;

use hubbub_core::invariant::saturate;
use hubbub_core::text::counted;
use hubbub_core::{ClientId, QueueId};
use hyper::Method;
use serde_json::{Value, json};

use super::pages::Pages;
use super::session::{Session, Texts, object, with_query};
use super::table::Table;
use super::{is_true, number, text};
use crate::cli::{ActionArgs, OnFull, QueueAction, QueueSendArgs, QueueSettingsArgs};
use crate::output::{Refusal, notice};

pub(crate) async fn run(args: ActionArgs<QueueAction>) -> anyhow::Result<()> {
    let session = &mut Session::new(&args.client)?;
    match args.action {
        QueueAction::Send(args) => send(session, args).await,
        QueueAction::Create { queue, settings } => {
            session.put(&path_of(&queue), settings_of(settings), "queue").await
        }
        QueueAction::Delete { queue, force } => delete(session, &queue, force).await,
        QueueAction::Ls { receiver: Some(receiver) } => {
            let path = with_query("/v1/queues", [("receiver", Some(receiver.to_string()))]);
            let line = |queue: &Value| format!("{}\n", text(queue, "queue"));
            session.list(Pages::new(path, "queues", usize::MAX), line).await
        }
        QueueAction::Ls { receiver: None } => {
            let pages = Pages::new("/v1/queues".into(), "queues", usize::MAX);
            session.table(pages, Table::new(show::QUEUES_HEAD), show::queue_row).await
        }
        QueueAction::Get(args) => take::take(session, "get", &args, None).await,
        QueueAction::Read(args) => take::take(session, "read", &args, None).await,
        QueueAction::Lease { take, lease } => take::take(session, "lease", &take, lease).await,
        QueueAction::Peek { queue, limit } => {
            let pages = Pages::new(format!("{}/messages", path_of(&queue)), "messages", limit);
            session.list(pages, show::message_line).await
        }
        QueueAction::Ack { queue, receipts } => take::ack(session, &path_of(&queue), receipts).await,
        QueueAction::Nack { queue, receipt, delay } => {
            take::change_lease(session, &path_of(&queue), receipt, "nack", ("delayMs", delay)).await
        }
        QueueAction::Extend { queue, receipt, lease } => {
            take::change_lease(session, &path_of(&queue), receipt, "extend", ("leaseMs", lease)).await
        }
        QueueAction::Remove { queue, id } => {
            let path = format!("{}/messages/{id}", path_of(&queue));
            session.change(Method::DELETE, &path, ("removed", &id.to_string())).await
        }
        QueueAction::Redrive { queue, id } => redrive(session, &path_of(&queue), id).await,
        QueueAction::Clients { add: Some(client), .. } => {
            session.change(Method::PUT, &client_path_of(&client), ("added", client.as_str())).await
        }
        QueueAction::Clients { remove: Some(client), .. } => {
            session.change(Method::DELETE, &client_path_of(&client), ("removed", client.as_str())).await
        }
        QueueAction::Clients { .. } => {
            let pages = Pages::new("/v1/clients".into(), "clients", usize::MAX);
            session.table(pages, Table::new(["client"]), |client| [text(client, "client").to_owned()]).await
        }
    }
}

/// Deletes a queue, and says so if that of its dead letters is still there.
async fn delete(session: &mut Session, queue: &QueueId, force: bool) -> anyhow::Result<()> {
    // Whoever may not see it may delete it all the same.
    let settings = session.connection.get(&path_of(queue)).await.unwrap_or_default();
    let force = if force { "?force=true" } else { "" };
    let path = format!("{}{force}", path_of(queue));
    let deleted = session.change(Method::DELETE, &path, ("deleted", queue.as_str())).await;
    deleted.map_err(|error| in_words_of_options(error, &[("force=true", "--force")]))?;
    let Ok(dead) = QueueId::new(text(&settings, "deadLetter")) else { return Ok(()) };
    if session.connection.get(&path_of(&dead)).await.is_ok() {
        notice(&format!("{dead}, the queue of its dead letters, is still there: hubbub queue delete {dead}"));
    }
    Ok(())
}

fn path_of(queue: &QueueId) -> String {
    format!("/v1/queues/{queue}")
}

fn client_path_of(client: &ClientId) -> String {
    format!("/v1/clients/{client}")
}

fn millis(time: Duration) -> Value {
    saturate::<_, u64>(time.as_millis()).into()
}

fn settings_of(settings: QueueSettingsArgs) -> String {
    let on_full = settings.on_full.map(|on_full| match on_full {
        OnFull::Refuse => Value::from("refuse"),
        OnFull::DropOldest => Value::from("dropOldest"),
    });
    object([
        ("leaseMs", settings.lease.map(millis)),
        ("maxDeliveries", settings.max_deliveries.map(Value::from)),
        ("deadLetter", settings.dead_letter.map(Value::from)),
        ("ttlMs", settings.ttl.map(millis)),
        ("maxMessages", settings.max_messages.map(Value::from)),
        ("maxBytes", settings.max_bytes.map(Value::from)),
        ("onFull", on_full),
        ("backoffMs", settings.backoff.map(millis)),
        ("backoffMaxMs", settings.backoff_max.map(millis)),
    ])
}

/// Sends a message, or each line of standard input.
async fn send(session: &mut Session, args: QueueSendArgs) -> anyhow::Result<()> {
    let path = format!("{}/messages", path_of(&args.queue));
    let mut texts = Texts::new(args.text, args.id)?;
    while let Some((message, id)) = texts.next().await? {
        let body = object([
            ("sender", Some(Value::from(args.from.as_str()))),
            ("receiver", args.to.as_ref().map(|to| Value::from(to.as_str()))),
            ("audience", args.all.then(|| Value::from("all"))),
            ("message", Some(message.into())),
            ("messageId", Some(id.into())),
            ("delayMs", args.delay.map(millis)),
            ("ttlMs", args.ttl.map(millis)),
            ("groupId", args.group.clone().map(Value::from)),
        ]);
        let receipt = session.retry(Method::POST, &path, body).await?.success()?;
        super::show(session.is_json, &receipt, |receipt| {
            let how = if is_true(receipt, "duplicate") { "was there before" } else { "waits" };
            let copies = number(receipt, "copies");
            let copies = if args.all { format!(", {}", counted(copies, "copy")) } else { String::new() };
            format!("{how} as message {} of {}{copies}\n", text(receipt, "id"), args.queue)
        })?;
    }
    Ok(())
}

/// Repeats the request until all messages are moved.
async fn redrive(session: &mut Session, path: &str, id: Option<String>) -> anyhow::Result<()> {
    let body = object([("id", id.map(Value::from))]);
    let (mut moved, mut more) = (0, true);
    while more {
        let answer = session.post(&format!("{path}/redrive"), body.clone()).await?;
        moved += number(&answer, "moved");
        more = is_true(&answer, "more");
    }
    super::show(session.is_json, &json!({"moved": moved}), |_| {
        let whence = if moved == 1 { "where it came from" } else { "where they came from" };
        format!("moved {} back {whence}\n", counted(moved, "message"))
    })?;
    if moved == 0 {
        say_if_no_dead_letters(session, path).await?;
    }
    Ok(())
}

/// Says so if the queue is none of dead letters: that of its own may be meant.
async fn say_if_no_dead_letters(session: &mut Session, path: &str) -> anyhow::Result<()> {
    let queue = session.connection.get(path).await?;
    if is_true(&queue, "isDeadLetter") {
        return Ok(());
    }
    let (name, dead) = (text(&queue, "queue"), text(&queue, "deadLetter"));
    let meant = match number(&queue, "maxDeliveries") {
        0 => "and its messages never become dead letters (--max-deliveries)".to_owned(),
        _ => format!("its dead letters go to {dead}: hubbub queue redrive {dead}"),
    };
    notice(&format!("{name} is no dead-letter queue; {meant}"));
    Ok(())
}

/// A refusal that names a command's options instead of members of the request.
fn in_words_of_options(error: anyhow::Error, names: &[(&str, &str)]) -> anyhow::Error {
    match error.downcast::<Refusal>() {
        Ok(refusal) => {
            let detail =
                names.iter().fold(refusal.detail, |detail, (name, option)| detail.replace(name, option));
            Refusal { detail, ..refusal }.into()
        }
        Err(error) => error,
    }
}
