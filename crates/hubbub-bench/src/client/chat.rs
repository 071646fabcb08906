//! `/chat/{room}`: a WebSocket on which each text frame is a message.

use std::borrow::Cow;
use std::time::Duration;

use hubbub_core::clock::{RandomSource, SeededRandom};
use hubbub_ws::{Event, HandshakeError, Opcode, Reader, Role, handshake, write};
use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::refusal::may_pass;
use super::{Cause, Codec, Target};
use crate::client::wire::Wire;
use crate::load::in_flight::{Answer, InFlight};
use crate::load::message_plan::{Job, Shape};

/// Answers are small; anything longer is a mistake.
const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Chat {
    reader: Reader,
    masks: SeededRandom,
    json: Vec<u8>,
    /// Stands for `seq` when the server only echoes.
    echoes: u64,
}

impl Codec for Chat {
    const HAS_TIME: bool = true;
    const HAS_ROOM: bool = true;

    async fn connect(target: &Target, room: &str, seed: u64) -> Result<(Wire, Self), Cause> {
        let path = format!("{}/chat/{room}", target.prefix);
        let (wire, reader) = open(target, &path, seed).await?;
        Ok((wire, Self { reader, masks: SeededRandom::new(seed), json: Vec::new(), echoes: 0 }))
    }

    fn write(&mut self, shape: &Shape, job: &Job, now: &[u8], out: &mut Vec<u8>) {
        self.json.clear();
        shape.write_chat(job, now, &mut self.json);
        write::write_masked(out, Opcode::Text, &self.json, mask(&self.masks));
    }

    fn goodbye(&mut self, out: &mut Vec<u8>) {
        write::write_masked(out, Opcode::Close, &write::close_payload(1000, ""), mask(&self.masks));
    }

    fn read(&mut self, bytes: &mut [u8], out: &mut Vec<u8>, in_flight: &mut InFlight) -> Result<(), Cause> {
        let mut frames = self.reader.feed(bytes);
        while let Some(event) = frames.next()? {
            match event {
                Event::Text(text) if in_flight.run.rules.echo => {
                    self.echoes += 1;
                    in_flight.on_answer(&read_echo(text, self.echoes))?;
                }
                Event::Text(text) => in_flight.on_answer(&read_answer(text))?,
                Event::Ping(payload) => write::write_masked(out, Opcode::Pong, payload, mask(&self.masks)),
                Event::Pong(_) => {}
                Event::Binary(_) => return Err(Cause::Protocol),
                Event::Close { .. } => return Err(Cause::Closed),
            }
        }
        Ok(())
    }
}

pub(crate) fn mask(random: &SeededRandom) -> [u8; 4] {
    let [a, b, c, d, ..] = random.next_u64().to_ne_bytes();
    [a, b, c, d]
}

pub(crate) async fn open(target: &Target, path: &str, seed: u64) -> Result<(Wire, Reader), Cause> {
    let wire = target.open().await.map_err(|_| Cause::Connect)?;
    tokio::time::timeout(HANDSHAKE_TIMEOUT, upgrade(wire, target, path, seed))
        .await
        .unwrap_or(Err(Cause::Handshake))
}

async fn upgrade(mut wire: Wire, target: &Target, path: &str, seed: u64) -> Result<(Wire, Reader), Cause> {
    let random = SeededRandom::new(seed);
    let nonce = (u128::from(random.next_u64()) << 64) | u128::from(random.next_u64());
    let key = handshake::client_key(nonce.to_be_bytes());
    let mut request = handshake::request(&target.host, path, &key);
    request.truncate(request.len() - "\r\n".len());
    request += &target.headers;
    request += "\r\n";
    wire.stream().write_all(request.as_bytes()).await?;
    wire.stream().flush().await?;
    let mut response = Vec::new();
    loop {
        match handshake::parse_response(&response, &key) {
            // The server has nothing to say before the first message.
            Ok(Some(end)) if end == response.len() => {
                return Ok((wire, Reader::new(Role::Client, MESSAGE_BYTES_MAX)));
            }
            Ok(None) => {}
            Ok(Some(_)) | Err(HandshakeError::Status(_) | _) => return Err(Cause::Handshake),
        }
        if wire.stream().read_buf(&mut response).await? == 0 {
            return Err(Cause::Handshake);
        }
    }
}

#[derive(Deserialize)]
struct Reply<'a> {
    status: &'a str,
    /// An id needs no escapes, so it can be borrowed.
    #[serde(rename = "messageId")]
    id: Option<&'a str>,
    seq: Option<u64>,
    code: Option<&'a str>,
    retryable: Option<bool>,
    #[serde(default, borrow)]
    errors: Vec<Cow<'a, str>>,
}

fn read_echo(text: &str, seq: u64) -> Answer<'_> {
    let id = text.split_once("\"messageId\":\"").and_then(|(_, rest)| rest.split_once('"'));
    id.map_or(Answer::Unreadable, |(id, _)| Answer::Accepted { id: id.as_bytes(), seq, duplicate: false })
}

/// Reads an answer; the usual form without a JSON parser, any other with one.
pub(crate) fn read_answer(text: &str) -> Answer<'_> {
    if let Some(answer) = read_usual_answer(text) {
        return answer;
    }
    let Ok(reply) = serde_json::from_str::<Reply<'_>>(text) else { return Answer::Unreadable };
    match (reply.status, reply.id, reply.seq) {
        // Behind a broker there is none yet.
        ("success", Some(id), seq) => {
            Answer::Accepted { id: id.as_bytes(), seq: seq.unwrap_or_default(), duplicate: false }
        }
        ("error", ..) => {
            let said = || reply.code.into_iter().chain(reply.errors.iter().map(|error| &**error));
            let retryable = reply.retryable.unwrap_or_else(|| may_pass(said()));
            Answer::Refused { retryable }
        }
        _ => Answer::Unreadable,
    }
}

fn read_usual_answer(text: &str) -> Option<Answer<'_>> {
    let rest = text.strip_prefix("{\"status\":\"success\",\"messageId\":\"")?;
    let (id, rest) = rest.split_once('"')?;
    let (seq, _) = leading_number(rest.strip_prefix(",\"seq\":")?)?;
    (!id.contains('\\') && text.ends_with('}')).then_some(Answer::Accepted {
        id: id.as_bytes(),
        seq,
        duplicate: false,
    })
}

/// The number at the start of `text`, and what follows it.
pub(crate) fn leading_number(text: &str) -> Option<(u64, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = text.split_at_checked(digits)?;
    Some((number.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_understood_in_any_order_of_fields() {
        let usual = r#"{"status":"success","messageId":"a-1","seq":42,"serverReceiveTime":"x"}"#;
        let other = r#"{"seq":42, "messageId":"a-1", "status":"success"}"#;
        for text in [usual, other] {
            assert_eq!(read_answer(text), Answer::Accepted { id: b"a-1", seq: 42, duplicate: false });
        }
        let unnumbered = r#"{"status":"success","messageId":"a-1","serverReceiveTime":"x"}"#;
        assert_eq!(read_answer(unnumbered), Answer::Accepted { id: b"a-1", seq: 0, duplicate: false });
        let refused = r#"{"status":"error","errors":["message must have 1 to 500 characters"]}"#;
        assert_eq!(read_answer(refused), Answer::Refused { retryable: false });
        assert_eq!(
            read_answer(r#"{"status":"error","errors":["overloaded"]}"#),
            Answer::Refused { retryable: true }
        );
        for (refused, retryable) in [
            (r#"{"status":"error","errors":["later"],"code":"disk_full"}"#, true),
            (r#"{"status":"error","errors":["the disk"],"code":"unreadable"}"#, false),
            (r#"{"status":"error","errors":["shutting_down"],"code":"internal","retryable":false}"#, false),
        ] {
            assert_eq!(read_answer(refused), Answer::Refused { retryable }, "{refused}");
        }
        assert_eq!(read_answer("{}"), Answer::Unreadable);
    }
}
