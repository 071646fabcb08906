//! `hubbub tail`: follows a room. After a lost connection it continues behind the last message it printed.

use std::time::Duration;

use anyhow::{Context, bail};
use hubbub_core::{RandomSource, RoomId, UserId};
use hubbub_ws::{Event, Opcode, Reader, Role, handshake, write};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::connection::Server;
use super::{print_json, print_message};
use crate::cli::TailArgs;
use crate::system::KeyedRandom;

/// Largest frame accepted: 16 MiB of text with every byte escaped.
const MESSAGE_BYTES_MAX: usize = 100 * 1024 * 1024;
/// Pauses between attempts to reconnect, doubling.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_LAST: Duration = Duration::from_secs(5);
/// The server pings every 25 s; after a longer silence the connection is considered lost.
const SILENCE_MAX: Duration = Duration::from_secs(60);

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

/// Why a connection ended.
enum End {
    /// All requested messages were printed.
    Enough,
    /// The connection was lost; a retry may succeed.
    Lost(anyhow::Error),
}

pub(crate) async fn tail(args: TailArgs) -> anyhow::Result<()> {
    let room = RoomId::new(&args.room).with_context(|| format!("room '{}'", args.room))?;
    let user = UserId::new(&args.user).with_context(|| format!("--user '{}'", args.user))?;
    let server = Server::parse(&args.client.server)?;
    let mut tail = Tail { args, server, random: KeyedRandom::new(), position: None, shown: 0 };
    let mut pause = PAUSE_FIRST;
    loop {
        let shown_before = tail.shown;
        let lost = match tail.follow(&room, &user).await? {
            End::Enough => return Ok(()),
            End::Lost(error) => error,
        };
        // The first attempt must succeed: otherwise the address may be wrong.
        if tail.position.is_none() {
            return Err(lost);
        }
        if tail.shown > shown_before {
            pause = PAUSE_FIRST;
        }
        eprintln!("hubbub: {lost:#}; reconnecting");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_LAST);
    }
}

impl Tail {
    async fn follow(&mut self, room: &RoomId, user: &UserId) -> anyhow::Result<End> {
        let (mut stream, mut early) = match self.connect(user).await {
            Ok(connected) => connected,
            Err(error) => return Ok(End::Lost(error)),
        };
        if let Err(error) =
            self.write(&mut stream, Opcode::Text, self.subscription(room).to_string().as_bytes()).await
        {
            return Ok(End::Lost(error));
        }
        let mut reader = Reader::new(Role::Client, MESSAGE_BYTES_MAX);
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let mut pongs = Vec::new();
            let mut input = std::mem::take(&mut early);
            if input.is_empty() {
                let count = match tokio::time::timeout(SILENCE_MAX, stream.read(&mut buffer)).await {
                    Err(_) => return Ok(End::Lost(anyhow::anyhow!("the server stopped sending"))),
                    Ok(Ok(0)) => return Ok(End::Lost(anyhow::anyhow!("the server closed the connection"))),
                    Ok(Err(error)) => return Ok(End::Lost(error.into())),
                    Ok(Ok(count)) => count,
                };
                input.extend_from_slice(buffer.get(..count).unwrap_or_default());
            }
            let mut frames = reader.feed(&mut input);
            while let Some(event) = frames.next()? {
                match event {
                    Event::Text(text) => {
                        let frame = serde_json::from_str(text).context("the server sent invalid JSON")?;
                        self.apply(&frame)?;
                        if self.args.count.is_some_and(|count| self.shown >= count) {
                            return Ok(End::Enough);
                        }
                    }
                    Event::Ping(payload) => pongs.push(payload.to_vec()),
                    Event::Close { code, reason } => {
                        let code = code.unwrap_or_default();
                        return Ok(End::Lost(anyhow::anyhow!(
                            "the server closed the connection: {code} {reason}"
                        )));
                    }
                    Event::Pong(_) | Event::Binary(_) => {}
                }
            }
            for payload in pongs {
                if let Err(error) = self.write(&mut stream, Opcode::Pong, &payload).await {
                    return Ok(End::Lost(error));
                }
            }
        }
    }

    async fn connect(&self, user: &UserId) -> anyhow::Result<(TcpStream, Vec<u8>)> {
        let mut stream = self.server.connect_tcp().await?;
        let mut random = [0; 16];
        for half in random.chunks_mut(8) {
            half.copy_from_slice(&self.random.next_u64().to_ne_bytes());
        }
        let key = handshake::client_key(random);
        let path = format!("{}/v1/ws?user={user}", self.server.prefix);
        stream.write_all(handshake::request(&self.server.authority, &path, &key).as_bytes()).await?;
        let mut response = Vec::new();
        loop {
            if let Some(end) = handshake::parse_response(&response, &key).context("upgrading to WebSocket")? {
                return Ok((stream, response.split_off(end)));
            }
            let reading = tokio::time::timeout(SILENCE_MAX, stream.read_buf(&mut response));
            if reading.await.context("no answer in time")?? == 0 {
                bail!("the server closed the connection during the handshake");
            }
        }
    }

    async fn write(&self, stream: &mut TcpStream, opcode: Opcode, payload: &[u8]) -> anyhow::Result<()> {
        let mut frame = Vec::new();
        let [a, b, c, d, ..] = self.random.next_u64().to_ne_bytes();
        write::write_masked(&mut frame, opcode, payload, [a, b, c, d]);
        Ok(stream.write_all(&frame).await?)
    }

    fn subscription(&self, room: &RoomId) -> Value {
        let room = room.as_str();
        match (&self.position, self.args.after) {
            (Some(Position { seq, epoch }), _) => {
                json!({"type": "subscribe", "roomId": room, "after": seq, "epoch": epoch})
            }
            (None, Some(after)) => json!({"type": "subscribe", "roomId": room, "after": after}),
            (None, None) => json!({"type": "subscribe", "roomId": room, "last": self.args.last}),
        }
    }

    fn apply(&mut self, frame: &Value) -> anyhow::Result<()> {
        let text = |name: &str| frame.get(name).and_then(Value::as_str).unwrap_or_default();
        let number = |name: &str| frame.get(name).and_then(Value::as_u64).unwrap_or_default();
        match text("type") {
            "message" => {
                if let Some(position) = &mut self.position {
                    position.seq = number("seq");
                }
                self.shown += 1;
                if self.args.client.json { print_json(frame) } else { print_message(frame) }
            }
            "subscribed" if self.position.is_none() => {
                // Where to continue if the connection is lost before the first message.
                let last =
                    number("head").saturating_sub(self.args.last).max(number("oldest").saturating_sub(1));
                let seq = self.args.after.unwrap_or(last);
                self.position = Some(Position { seq, epoch: text("epoch").to_owned() });
                Ok(())
            }
            "reset" => {
                let (oldest, head) = (number("oldest"), number("head"));
                if let Some(position) = &self.position {
                    let reason = reset_reason(position, text("epoch"), oldest, head);
                    eprintln!("hubbub: {reason}; showing the room from its oldest message");
                }
                let seq = oldest.saturating_sub(1);
                self.position = Some(Position { seq, epoch: text("epoch").to_owned() });
                Ok(())
            }
            "error" => bail!("the server answered: {} ({})", text("detail"), text("code")),
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
