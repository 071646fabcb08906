//! `hubbub send`: sends a message, or each line of standard input.

use std::time::Duration;

use anyhow::Context;
use hubbub_core::id::write_uuid_v7;
use hubbub_core::{Clock, RoomId};
use hyper::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};

use super::connection::{Answer, Connection, Server};
use super::{print, print_json};
use crate::cli::SendArgs;
use crate::system::{KeyedRandom, SystemClock};

/// Number of retries, and their pauses, which double from the first to the longest.
const RETRIES: u32 = 5;
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_LAST: Duration = Duration::from_secs(1);

pub(crate) async fn send(args: SendArgs) -> anyhow::Result<()> {
    let room = RoomId::new(&args.room).with_context(|| format!("room '{}'", args.room))?;
    let client = RetryingClient::new(Server::parse(&args.client.server)?);
    let mut sender = Sender { client, path: format!("/v1/rooms/{room}/messages"), args };
    match sender.args.text.clone() {
        Some(text) if text != "-" => sender.send(&text, sender.args.id.clone()).await,
        _ => {
            let mut lines = BufReader::new(tokio::io::stdin()).lines();
            while let Some(line) = lines.next_line().await.context("reading standard input")? {
                if !line.is_empty() {
                    sender.send(&line, None).await?;
                }
            }
            Ok(())
        }
    }
}

/// Retries requests, over one connection for as long as it works.
pub(crate) struct RetryingClient {
    server: Server,
    connection: Option<Connection>,
    clock: SystemClock,
    random: KeyedRandom,
}

impl RetryingClient {
    pub(crate) fn new(server: Server) -> Self {
        Self { server, connection: None, clock: SystemClock::new(), random: KeyedRandom::new() }
    }

    /// Generates a message id, so that the message can be sent again.
    pub(crate) fn make_id(&self) -> String {
        let mut id = String::new();
        write_uuid_v7(self.clock.now(), &self.random, &mut id);
        id
    }

    /// Repeats the request until the answer is final.
    pub(crate) async fn request(&mut self, method: Method, path: &str, body: &str) -> anyhow::Result<Answer> {
        let mut pause = PAUSE_FIRST;
        let mut tries = 0;
        loop {
            let result = self.attempt(method.clone(), path, body).await;
            let is_final = match &result {
                Ok(answer) => !answer.is_retryable(),
                Err(_) => false,
            };
            if is_final || tries == RETRIES {
                return result;
            }
            tries += 1;
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_LAST);
        }
    }

    async fn attempt(&mut self, method: Method, path: &str, body: &str) -> anyhow::Result<Answer> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.server.connect().await?,
        };
        let answer = connection.request(method, path, body.to_owned()).await?;
        self.connection = Some(connection);
        Ok(answer)
    }
}

struct Sender {
    client: RetryingClient,
    path: String,
    args: SendArgs,
}

impl Sender {
    /// All attempts use the same id.
    async fn send(&mut self, text: &str, id: Option<String>) -> anyhow::Result<()> {
        let id = id.unwrap_or_else(|| self.client.make_id());
        let message = json!({"userId": self.args.user, "message": text, "messageId": id, "messageType": self.args.kind});
        let answer = self.client.request(Method::POST, &self.path, &message.to_string()).await?;
        self.show(&answer.success()?)
    }

    fn show(&self, receipt: &Value) -> anyhow::Result<()> {
        if self.args.client.json {
            return print_json(receipt);
        }
        let Some(seq) = receipt.get("seq").and_then(Value::as_u64) else {
            // A broker has it; the store will number it.
            return print(&format!("accepted for {}\n", self.args.room));
        };
        let is_duplicate = receipt.get("duplicate").and_then(Value::as_bool).unwrap_or_default();
        let how = if is_duplicate { "was stored before" } else { "stored" };
        print(&format!("{how} as message {seq} of {}\n", self.args.room))
    }
}
