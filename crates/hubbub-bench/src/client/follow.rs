//! `/v1/ws` as a subscriber has it: a connection that follows rooms and hears what comes.

use std::convert::Infallible;
use std::future::poll_fn;
use std::task::{Poll, ready};
use std::time::Duration;

use hubbub_core::clock::SeededRandom;
use hubbub_ws::{Event, Opcode, write};

use super::chat::{leading_number, mask, open};
use super::{Cause, Target};

/// What listens on a connection.
pub(crate) trait Listener {
    fn hear(&mut self, text: &str) -> Result<(), Cause>;

    /// All frames of one read were heard.
    fn pause(&mut self) {}

    /// How long it reads nothing after each read.
    fn rest(&self) -> Duration {
        Duration::ZERO
    }
}

/// Subscribes to rooms as `user`, each from where `rooms` says (a member of the request: `"last":0`, `"after":7`), and
/// lets `listener` hear until the connection breaks.
pub(crate) async fn follow(
    target: &Target,
    user: &str,
    rooms: impl Iterator<Item = (String, String)>,
    listener: &mut impl Listener,
    seed: u64,
) -> Result<Infallible, Cause> {
    let target = target.of_user(user);
    let path = format!("{}/v1/ws?user={user}", target.prefix);
    let (mut wire, mut reader) = open(&target, &path, seed).await?;
    let masks = SeededRandom::new(seed);
    for (room, from) in rooms {
        let request = format!("{{\"type\":\"subscribe\",\"roomId\":\"{room}\",{from}}}");
        write::write_masked(&mut wire.out, Opcode::Text, request.as_bytes(), mask(&masks));
    }
    let rest = listener.rest();
    let mut read = |bytes: &mut [u8], out: &mut Vec<u8>| {
        let mut frames = reader.feed(bytes);
        while let Some(event) = frames.next()? {
            match event {
                Event::Text(text) => listener.hear(text)?,
                Event::Ping(payload) => write::write_masked(out, Opcode::Pong, payload, mask(&masks)),
                Event::Close { .. } => {
                    // What came before it was heard.
                    listener.pause();
                    return Err(Cause::Closed);
                }
                _ => {}
            }
        }
        listener.pause();
        Ok(())
    };
    let mut resting = Box::pin(tokio::time::sleep(Duration::ZERO));
    poll_fn(|cx| {
        loop {
            if !rest.is_zero() {
                ready!(resting.as_mut().poll(cx));
            }
            // What comes is heard even while what is to be sent waits.
            if let Poll::Ready(flushed) = wire.poll_flush(cx) {
                flushed?;
            }
            ready!(wire.poll_read(cx, &mut read))??;
            if !rest.is_zero() {
                resting.as_mut().reset(tokio::time::Instant::now() + rest);
            }
        }
    })
    .await
}

/// The text of a member, up to its first quote.
pub(crate) fn member<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    Some(text.split_once(name)?.1.split_once('"')?.0)
}

/// `seq` stands near the end, after the text; within a JSON string its quotes would be escaped.
pub(crate) fn seq_of(text: &str) -> Option<u64> {
    let bytes = text.as_bytes();
    let near = bytes.get(bytes.len().saturating_sub(96)..)?;
    let place = |bytes: &[u8]| bytes.windows(6).rposition(|six| six == b"\"seq\":");
    let at = place(near).map(|at| at + bytes.len() - near.len()).or_else(|| place(bytes))?;
    Some(leading_number(text.get(at + 6..)?)?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seq_is_found_where_it_stands() {
        let text = r#"{"type":"message","messageId":"a","message":"\"seq\":7","seq":42,"receivedAt":"x"}"#;
        assert_eq!(seq_of(text), Some(42));
        let early = format!(r#"{{"type":"message","seq":41,"message":"{}"}}"#, "x".repeat(500));
        assert_eq!(seq_of(&early), Some(41));
        assert_eq!(seq_of("{}"), None);
    }
}
