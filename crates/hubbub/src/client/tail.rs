//! `hubbub tail`: follows a room. After a lost connection it continues behind the last message it printed.

use anyhow::{Context, anyhow, bail};
use hubbub_core::RandomSource;
use hubbub_ws::{Event, Opcode, Reader, Role, handshake, write};
use hyper::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::address::{Server, Stream};
use super::connection::{TIMEOUT, in_time};
use super::follow::{Failure, Follow, SILENCE_MAX, keep_following};
use super::{message_line, number, show, text};
use crate::cli::{TailArgs, USER_DEFAULT};
use crate::output::notice;
use crate::system::KeyedRandom;

/// Largest frame accepted: 16 MiB of text with every byte escaped.
const MESSAGE_BYTES_MAX: usize = 100 * 1024 * 1024;

/// Bytes read at once.
const READ_BYTES: usize = 64 * 1024;

/// Where to continue after a reconnect.
struct Position {
    seq: u64,
    epoch: String,
}

struct Tail {
    args: TailArgs,
    server: Server,
    random: KeyedRandom,
    position: Option<Position>,
    shown: u64,
}

pub(crate) async fn tail(args: TailArgs) -> anyhow::Result<()> {
    let server = args.client.server()?;
    keep_following(Tail { args, server, random: KeyedRandom::new(), position: None, shown: 0 }).await
}

impl Follow for Tail {
    async fn follow(&mut self) -> Result<(), Failure> {
        let (mut stream, mut input) = self.connect().await?;
        let subscription = self.subscription().to_string();
        self.write(&mut stream, Opcode::Text, subscription.as_bytes()).await?;
        let mut reader = Reader::new(Role::Client, MESSAGE_BYTES_MAX);
        loop {
            let mut pongs = Vec::new();
            let mut frames = reader.feed(&mut input);
            while let Some(event) = frames.next().map_err(|error| Failure::Final(error.into()))? {
                match event {
                    Event::Text(text) => {
                        let is_first = self.position.is_none();
                        self.apply(text).map_err(Failure::Final)?;
                        if is_first {
                            self.say_if_missing().await;
                        }
                    }
                    Event::Ping(payload) => pongs.push(payload.to_vec()),
                    Event::Close { code, reason } => {
                        let code = code.unwrap_or_default();
                        return Err(anyhow!("the server closed the connection: {code} {reason}").into());
                    }
                    Event::Pong(_) | Event::Binary(_) => {}
                }
                if self.args.count.is_some_and(|count| self.shown >= count) {
                    return Ok(());
                }
            }
            for payload in pongs {
                self.write(&mut stream, Opcode::Pong, &payload).await?;
            }
            input.clear();
            input.reserve(READ_BYTES);
            let reading = tokio::time::timeout(SILENCE_MAX, stream.read_buf(&mut input));
            if reading.await.context("the server stopped sending")?? == 0 {
                return Err(anyhow!("the server closed the connection").into());
            }
        }
    }

    fn position(&self) -> Option<String> {
        self.position.as_ref().map(|position| format!("{}:{}", position.epoch, position.seq))
    }
}

impl Tail {
    async fn connect(&self) -> anyhow::Result<(Stream, Vec<u8>)> {
        let server = &self.server;
        let mut stream = server.connect_stream().await?;
        let mut random = [0; 16];
        for half in random.chunks_mut(8) {
            half.copy_from_slice(&self.random.next_u64().to_ne_bytes());
        }
        let key = handshake::client_key(random);
        let authorization = server.authorization();
        // A token has a name of its own.
        let is_named = authorization.is_none() || self.args.user.as_str() != USER_DEFAULT;
        let query = if is_named { format!("?user={}", self.args.user) } else { String::new() };
        let path = format!("{}/v1/ws{query}", server.prefix);
        let mut request = handshake::request(&server.host_header(), &path, &key);
        if let Some(authorization) = authorization {
            request.truncate(request.len() - "\r\n".len());
            request += &format!("Authorization: {authorization}\r\n\r\n");
        }
        stream.write_all(request.as_bytes()).await?;
        stream.flush().await?;
        let mut response = Vec::new();
        loop {
            if let Some(end) = handshake::parse_response(&response, &key).context("upgrading to WebSocket")? {
                return Ok((stream, response.split_off(end)));
            }
            if in_time(SILENCE_MAX, stream.read_buf(&mut response)).await? == 0 {
                bail!("the server closed the connection during the handshake");
            }
        }
    }

    async fn write(&self, stream: &mut Stream, opcode: Opcode, payload: &[u8]) -> anyhow::Result<()> {
        let mut frame = Vec::new();
        let [a, b, c, d, ..] = self.random.next_u64().to_ne_bytes();
        write::write_masked(&mut frame, opcode, payload, [a, b, c, d]);
        stream.write_all(&frame).await?;
        // What is encrypted may wait in a buffer.
        Ok(stream.flush().await?)
    }

    /// Says so if there is no such room yet: the name may be a typo.
    async fn say_if_missing(&self) {
        let Some(Position { seq: 0, .. }) = self.position else { return };
        let path = format!("/v1/rooms/{}/messages?limit=1", self.args.room);
        let mut connection = self.server.clone().connection();
        let answer = connection.request(TIMEOUT, Method::GET, &path, "").await;
        // Whatever else the server says to it concerns the connection that follows.
        if answer.is_ok_and(|answer| text(&answer.body, "code") == "unknown_room") {
            notice(&format!("there is no room '{}' yet; waiting for its first message", self.args.room));
        }
    }

    fn subscription(&self) -> Value {
        let room = self.args.room.as_str();
        match (&self.position, self.args.after) {
            (Some(Position { seq, epoch }), _) => {
                json!({"type": "subscribe", "roomId": room, "after": seq, "epoch": epoch})
            }
            (None, Some(after)) => json!({"type": "subscribe", "roomId": room, "after": after}),
            (None, None) => json!({"type": "subscribe", "roomId": room, "last": self.args.last}),
        }
    }

    fn apply(&mut self, frame: &str) -> anyhow::Result<()> {
        let frame: Value = serde_json::from_str(frame).context("the server sent invalid JSON")?;
        let (head, oldest) = (number(&frame, "head"), number(&frame, "oldest"));
        let behind = |seq| Some(Position { seq, epoch: text(&frame, "epoch").to_owned() });
        match text(&frame, "type") {
            "message" => {
                if let Some(position) = &mut self.position {
                    position.seq = number(&frame, "seq");
                }
                self.shown += 1;
                show(self.args.client.json, &frame, message_line)
            }
            "subscribed" if self.position.is_none() => {
                // Where to continue if the connection is lost before the first message.
                let last = head.saturating_sub(self.args.last).max(oldest.saturating_sub(1));
                self.position = behind(self.args.after.unwrap_or(last));
                Ok(())
            }
            "reset" => {
                if let Some(position) = &self.position {
                    let reason = reset_reason(position, text(&frame, "epoch"), oldest, head);
                    notice(&format!("{reason}; showing the room from its oldest message"));
                }
                self.position = behind(oldest.saturating_sub(1));
                Ok(())
            }
            "error" => bail!("the server answered: {} ({})", text(&frame, "detail"), text(&frame, "code")),
            _ => Ok(()),
        }
    }
}

/// Why the server cannot continue behind `position`.
fn reset_reason(position: &Position, epoch: &str, oldest: u64, head: u64) -> String {
    let seq = position.seq;
    if position.epoch != epoch {
        "the server's history was replaced".to_owned()
    } else if seq > head && head == 0 {
        format!("{seq} is beyond the newest message: the room has none")
    } else if seq > head {
        format!("{seq} is beyond the newest message, which is {head}")
    } else {
        format!("messages {} to {} are not kept any more", seq.saturating_add(1), oldest.saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reset_names_its_cause() {
        let reason = |seq, epoch: &str, oldest, head| {
            reset_reason(&Position { seq, epoch: epoch.to_owned() }, "e", oldest, head)
        };
        assert_eq!(reason(999, "e", 1, 3), "999 is beyond the newest message, which is 3");
        assert_eq!(reason(999, "e", 1, 0), "999 is beyond the newest message: the room has none");
        assert_eq!(reason(4, "e", 9, 20), "messages 5 to 8 are not kept any more");
        assert_eq!(reason(4, "other", 1, 20), "the server's history was replaced");
    }
}
