//! Lets the conformance programme drive this client; the commands are in `clients/conformance/adapter.py`.

#![allow(clippy::print_stdout, reason = "that is how it speaks")]
#![allow(clippy::indexing_slicing, reason = "members of objects that are made here")]

use std::collections::HashMap;
use std::time::Duration;

use hubbub_client::{
    Client, Error, Event, KeyEvent, Keys, Message, Options, Pending, Position, PutOptions, Queue,
    QueueSendOptions, Reset, SendOptions, Start, SubscribeOptions, Subscription, TakeOptions,
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::watch;
use tokio::task::AbortHandle;

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Command {
    id: u64,
    op: String,
    client: String,
    sub: String,
    url: String,
    user: String,
    options: HashMap<String, u64>,
    room: String,
    text: String,
    message_id: Option<String>,
    after: Option<u64>,
    epoch: String,
    buffer_max: Option<usize>,
    queue: String,
    lease_ms: u64,
    key: String,
    value: String,
    revision: Option<u64>,
    prefix: String,
}

#[derive(PartialEq, Eq)]
enum Gate {
    Open,
    Held,
    Stopped,
}

/// What a command began and another one ends.
struct Stream {
    gate: watch::Sender<Gate>,
    task: AbortHandle,
}

/// Writes events of a stream, once it is not held; nothing any more once it is stopped.
struct Reporter {
    sub: String,
    gate: watch::Receiver<Gate>,
}

impl Reporter {
    async fn report(&mut self, event: &str, mut members: Value) {
        members["sub"] = self.sub.as_str().into();
        members["event"] = event.into();
        // The gate does not move while this is written.
        if let Ok(gate) = self.gate.wait_for(|gate| *gate != Gate::Held).await
            && *gate == Gate::Open
        {
            println!("{members}");
        }
    }

    async fn end(&mut self, error: Option<Error>) {
        let members = error.map_or_else(|| json!({}), |error| json!({"error": error_of(&error)}));
        self.report("end", members).await;
    }

    async fn reset(&mut self, reset: Reset) {
        let Reset { epoch, oldest, head, history_replaced } = reset;
        let members =
            json!({"epoch": epoch, "oldest": oldest, "head": head, "historyReplaced": history_replaced});
        self.report("reset", members).await;
    }
}

fn error_of(error: &Error) -> Value {
    json!({"code": error.code, "retryable": error.retryable, "isOpen": error.is_open, "detail": error.detail})
}

fn message_of(message: &Message) -> Value {
    json!({"message": serde_json::to_value(message).unwrap_or_default()})
}

async fn follow(mut reporter: Reporter, mut subscription: Subscription) {
    while let Some(event) = subscription.next().await {
        match event {
            Ok(Event::Ready(at)) => {
                let members = json!({"epoch": at.epoch, "oldest": at.oldest, "head": at.head});
                reporter.report("ready", members).await;
            }
            Ok(Event::Message(message)) => reporter.report("message", message_of(&message)).await,
            Ok(Event::Reset(reset)) => reporter.reset(reset).await,
            Err(error) => return reporter.end(Some(error)).await,
        }
    }
    reporter.end(None).await;
}

async fn follow_keys(mut reporter: Reporter, keys: Keys, prefix: String, start: Start) {
    let mut changes = keys.watch(prefix, start);
    while let Some(event) = changes.next().await {
        match event {
            Ok(KeyEvent::Ready { epoch, revision }) => {
                reporter.report("ready", json!({"epoch": epoch, "revision": revision})).await;
            }
            Ok(KeyEvent::Change(change)) => {
                let members = json!({"key": change.text(), "revision": change.revision});
                reporter.report(&change.kind, members).await;
            }
            Ok(KeyEvent::Reset(reset)) => reporter.reset(reset).await,
            Err(error) => return reporter.end(Some(error)).await,
        }
    }
}

async fn work(mut reporter: Reporter, queue: Queue, lease: Duration) {
    let wait = Duration::from_millis(500);
    let options = TakeOptions { max: Some(3), lease: Some(lease), wait, ..TakeOptions::default() };
    loop {
        let taken = match queue.take(&options).await {
            Ok(taken) => taken,
            Err(error) => return reporter.end(Some(error)).await,
        };
        for delivery in &taken {
            reporter.report("delivery", json!({"id": delivery.id, "text": delivery.message})).await;
        }
        for delivery in &taken {
            let outcome = match delivery.ack().await {
                Ok(()) => "ok",
                Err(error) if error.is("stale_receipt") && error.is_open => "open",
                Err(error) if error.is("stale_receipt") => "stale",
                Err(error) => return reporter.end(Some(error)).await,
            };
            reporter.report("acked", json!({"id": delivery.id, "outcome": outcome})).await;
        }
    }
}

#[derive(Default)]
struct Adapter {
    clients: HashMap<String, Client>,
    streams: HashMap<String, Stream>,
}

impl Adapter {
    fn client(&self, command: &Command) -> Result<Client, Error> {
        // A name that nobody opened is a fault of the programme.
        self.clients
            .get(&command.client)
            .map_or_else(|| Client::new("", Options::default()), |it| Ok(it.clone()))
    }

    fn open(&mut self, command: Command) -> Result<(), Error> {
        let ms = |name: &str| Duration::from_millis(command.options.get(name).copied().unwrap_or(1_000));
        let options = Options {
            user: Some(command.user),
            backoff_first: ms("backoffFirst"),
            backoff_max: ms("backoffMax"),
            answer_max: ms("answerMax"),
            silence_max: ms("silenceMax"),
            patience: ms("patience"),
            ..Options::default()
        };
        self.clients.insert(command.client, Client::new(&command.url, options)?);
        Ok(())
    }

    fn begin<F: Future<Output = ()> + Send + 'static>(
        &mut self,
        sub: String,
        work: impl FnOnce(Reporter) -> F,
    ) {
        let (gate, seen) = watch::channel(Gate::Open);
        let task = tokio::spawn(work(Reporter { sub: sub.clone(), gate: seen })).abort_handle();
        self.streams.insert(sub, Stream { gate, task });
    }

    fn subscribe(&mut self, command: Command) -> Result<(), Error> {
        let position = |seq| Start::After(Position { epoch: command.epoch.clone(), seq });
        let start = command.after.map_or(Start::Now, position);
        let standard = SubscribeOptions::default();
        let buffer_max = command.buffer_max.unwrap_or(standard.buffer_max);
        let room = self.client(&command)?.room(&command.room);
        let subscription = room.subscribe(start, SubscribeOptions { buffer_max, ..standard })?;
        self.begin(command.sub, |reporter| follow(reporter, subscription));
        Ok(())
    }

    /// Does what must begin in the order of the commands.
    fn start(&mut self, command: Command) -> Result<(), Error> {
        match command.op.as_str() {
            "open" => self.open(command)?,
            "close" => self.client(&command)?.close(),
            "subscribe" => self.subscribe(command)?,
            "watch" => {
                let (keys, start) =
                    (self.client(&command)?.keys(), command.after.map_or(Start::Now, Start::after));
                self.begin(command.sub, |reporter| follow_keys(reporter, keys, command.prefix, start));
            }
            "work" => {
                let (queue, lease) =
                    (self.client(&command)?.queue(&command.queue), Duration::from_millis(command.lease_ms));
                self.begin(command.sub, |reporter| work(reporter, queue, lease));
            }
            "stop" => {
                if let Some(stream) = self.streams.remove(&command.sub) {
                    stream.gate.send_replace(Gate::Stopped);
                    stream.task.abort();
                }
            }
            how => {
                if let Some(stream) = self.streams.get(&command.sub) {
                    stream.gate.send_replace(if how == "hold" { Gate::Held } else { Gate::Open });
                }
            }
        }
        Ok(())
    }
}

/// A receipt to come, or why there is none.
type Sent = Option<Result<Pending, Error>>;

async fn call(client: Client, sent: Sent, command: Command) -> Result<Value, Error> {
    let value = match command.op.as_str() {
        "send" => match sent {
            Some(pending) => serde_json::to_value(pending?.await?),
            None => Ok(Value::Null),
        },
        "queueSend" => {
            let options = QueueSendOptions { message_id: command.message_id, ..QueueSendOptions::default() };
            serde_json::to_value(client.queue(&command.queue).send(&command.text, options).await?)
        }
        "put" => {
            let options = PutOptions { revision: command.revision, ..PutOptions::default() };
            Ok(client.keys().put(&command.key, command.value, options).await?.into())
        }
        "get" => Ok(client.keys().get(&command.key).await?.map_or(
            Value::Null,
            |found| json!({"value": String::from_utf8_lossy(&found.value), "revision": found.revision}),
        )),
        _ => Ok(client.keys().delete(&command.key, None).await?.into()),
    };
    Ok(value.unwrap_or_default())
}

fn answer(id: u64, result: Result<Value, Error>) {
    match result {
        Ok(value) => println!("{}", json!({"id": id, "ok": value})),
        Err(error) => println!("{}", json!({"id": id, "error": error_of(&error)})),
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut adapter = Adapter::default();
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let mut command: Command = serde_json::from_str(&line)?;
        let id = command.id;
        if !["send", "queueSend", "put", "get", "delete"].contains(&command.op.as_str()) {
            answer(id, adapter.start(command).map(|()| Value::Null));
            continue;
        }
        let client = adapter.client(&command)?;
        // Messages are stored in the order in which they are given to the client.
        let sent = (command.op == "send").then(|| {
            let options = SendOptions { message_id: command.message_id.take(), ..SendOptions::default() };
            client.room(&command.room).send_later(&command.text, options)
        });
        tokio::spawn(async move { answer(id, call(client, sent, command).await) });
    }
    Ok(())
}
