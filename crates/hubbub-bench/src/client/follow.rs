//! `/v1/ws` as a subscriber has it: a connection that follows rooms and hears what comes.

use std::convert::Infallible;
use std::future::poll_fn;
use std::task::{Poll, ready};
use std::time::Duration;

use hubbub_core::clock::SeededRandom;
use hubbub_ws::{Event, Opcode, write};

use super::chat::{mask, open};
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
