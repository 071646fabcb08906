//! `hubbub send`.

use std::time::Duration;

use anyhow::Context;
use hubbub_core::id::write_uuid_v7;
use hubbub_core::{Clock, RoomId};
use hyper::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};

use super::connection::{Connection, Server};
use super::{print, print_json};
use crate::ambient::{KeyedRandom, SystemClock};
use crate::cli::SendArgs;

/// Tries after the first, with pauses that double from the first to the last.
const RETRIES: u32 = 5;
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_LAST: Duration = Duration::from_secs(1);

pub(crate) async fn send(args: SendArgs) -> anyhow::Result<()> {
    let room = RoomId::new(&args.room).with_context(|| format!("room '{}'", args.room))?;
    let mut sender = Sender {
        server: Server::parse(&args.client.server)?,
        connection: None,
        path: format!("/v1/rooms/{room}/messages"),
        clock: SystemClock::new(),
        random: KeyedRandom::new(),
        args,
    };
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

struct Sender {
    server: Server,
    connection: Option<Connection>,
    path: String,
    clock: SystemClock,
    random: KeyedRandom,
    args: SendArgs,
}

impl Sender {
    /// Sends until there is an answer that no retry can better; all tries carry the same id.
    async fn send(&mut self, text: &str, id: Option<String>) -> anyhow::Result<()> {
        let id = id.unwrap_or_else(|| {
            let mut id = String::new();
            write_uuid_v7(self.clock.now(), &self.random, &mut id);
            id
        });
        let message = json!({"userId": self.args.user, "message": text, "messageId": id, "messageType": self.args.kind});
        let body = message.to_string();
        let mut pause = PAUSE_FIRST;
        let mut tries = 0;
        loop {
            let result = self.attempt(&body).await;
            let is_final = match &result {
                Ok(answer) => !answer.is_retryable(),
                Err(_) => false,
            };
            if is_final || tries == RETRIES {
                let receipt = result?.success()?;
                return self.show(&receipt);
            }
            tries += 1;
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_LAST);
        }
    }

    async fn attempt(&mut self, body: &str) -> anyhow::Result<super::connection::Answer> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.server.connect().await?,
        };
        let answer = connection.request(Method::POST, &self.path, body.to_owned()).await?;
        self.connection = Some(connection);
        Ok(answer)
    }

    fn show(&self, receipt: &Value) -> anyhow::Result<()> {
        if self.args.client.json {
            return print_json(receipt);
        }
        let seq = receipt.get("seq").and_then(Value::as_u64).unwrap_or_default();
        let is_duplicate = receipt.get("duplicate").and_then(Value::as_bool).unwrap_or_default();
        let how = if is_duplicate { "was stored before" } else { "stored" };
        print(&format!("{how} as message {seq} of {}\n", self.args.room))
    }
}
