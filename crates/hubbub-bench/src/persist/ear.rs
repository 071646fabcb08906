//! From publishing to hearing: a WebSocket that follows a few rooms and compares each message's timestamp, which is
//! when it was published, with its arrival.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use hubbub_core::Timestamp;
use hubbub_core::clock::SeededRandom;
use hubbub_ws::{Event, Opcode, Reader, write};
use parking_lot::Mutex;
use serde::Deserialize;

use super::texts::Texts;
use crate::client::chat::{mask, open};
use crate::client::{Cause, Target};
use crate::record::Dist;
use crate::wire::Wire;

/// What one has heard.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    pub(crate) latency: Dist,
    /// Messages whose number was not greater than the one before in their room.
    pub(crate) misordered: u64,
    /// Rooms that are followed.
    pub(crate) subscribed: u64,
}

#[derive(Deserialize)]
struct Frame {
    #[serde(rename = "type")]
    kind: String,
    #[serde(rename = "roomId", default)]
    room: String,
    #[serde(default)]
    seq: u64,
    #[serde(default)]
    timestamp: String,
}

/// Follows the first `rooms` rooms until the connection ends or the task is stopped.
pub(crate) async fn listen(target: Target, rooms: u64, heard: Arc<Mutex<Heard>>) {
    let path = format!("{}/v1/ws?user=listener", target.prefix);
    let Ok((mut wire, mut reader)) = open(&target, &path, crate::machine::seed()).await else { return };
    let mut ear = Ear { heard, masks: SeededRandom::new(crate::machine::seed()), last: Default::default() };
    for number in 0..rooms {
        let room = Texts::room_name(number);
        let request = format!("{{\"type\":\"subscribe\",\"roomId\":\"{room}\",\"last\":0}}");
        write::write_masked(&mut wire.out, Opcode::Text, request.as_bytes(), mask(&ear.masks));
    }
    poll_fn(|cx| ear.poll(cx, &mut wire, &mut reader)).await;
}

struct Ear {
    heard: Arc<Mutex<Heard>>,
    masks: SeededRandom,
    last: std::collections::HashMap<String, u64>,
}

impl Ear {
    /// Ready when the connection is gone.
    fn poll(&mut self, cx: &mut Context<'_>, wire: &mut Wire, reader: &mut Reader) -> Poll<()> {
        loop {
            if let Poll::Ready(Err(_)) = wire.poll_flush(cx) {
                return Poll::Ready(());
            }
            match wire.poll_read(cx, |bytes, out| self.hear(reader, bytes, out)) {
                Poll::Ready(Ok(Ok(()))) => {}
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn hear(&mut self, reader: &mut Reader, bytes: &mut [u8], out: &mut Vec<u8>) -> Result<(), Cause> {
        let mut frames = reader.feed(bytes);
        while let Some(event) = frames.next()? {
            match event {
                Event::Text(text) => {
                    let frame: Frame = serde_json::from_str(text).map_err(|_| Cause::Protocol)?;
                    note(&mut self.heard.lock(), &mut self.last, &frame);
                }
                Event::Ping(payload) => write::write_masked(out, Opcode::Pong, payload, mask(&self.masks)),
                Event::Close { .. } => return Err(Cause::Closed),
                _ => {}
            }
        }
        Ok(())
    }
}

fn note(heard: &mut Heard, last: &mut std::collections::HashMap<String, u64>, frame: &Frame) {
    match frame.kind.as_str() {
        "subscribed" => heard.subscribed += 1,
        "message" => {
            if last.insert(frame.room.clone(), frame.seq).is_some_and(|last| frame.seq <= last) {
                heard.misordered += 1;
            }
            if let Some(sent) = Timestamp::parse(&frame.timestamp) {
                let us = crate::machine::now().as_micros().saturating_sub(sent.as_micros());
                heard.latency.add(u64::try_from(us).unwrap_or(0));
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_again_is_noticed() {
        let (mut heard, mut last) = (Heard::default(), Default::default());
        for (room, seq) in [("a", 1), ("b", 1), ("a", 2), ("a", 2)] {
            let text = format!(
                "{{\"type\":\"message\",\"roomId\":\"{room}\",\"seq\":{seq},\"timestamp\":\"2026-01-01T00:00:00Z\"}}"
            );
            note(&mut heard, &mut last, &serde_json::from_str(&text).unwrap());
        }
        assert_eq!((heard.misordered, heard.latency.len()), (1, 4));
    }
}
