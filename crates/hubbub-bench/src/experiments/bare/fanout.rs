//! One room: what comes in on `/chat/…` goes out to every subscriber on `/v1/ws`, encoded once for each read.

use std::io::{self, IoSlice};
use std::sync::Arc;

use anyhow::ensure;
use bytes::Bytes;
use hubbub_core::message::write_u64;
use hubbub_ws::{Event, Reader, Role, write};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::ws::{Acks, MESSAGE_BYTES_MAX};
use crate::client::stream::Stream;

#[derive(Default)]
pub(super) struct Hub {
    state: Mutex<State>,
}

/// Frames for one subscriber. The senders' window bounds how many there are.
type Outbox = UnboundedSender<Bytes>;

#[derive(Default)]
struct State {
    head: u64,
    outboxes: Vec<Outbox>,
}

pub(super) async fn serve(stream: TcpStream, hub: Arc<Hub>) -> anyhow::Result<()> {
    let (mut wire, path) = super::upgrade(stream).await?;
    let mut reader = Reader::new(Role::Server, MESSAGE_BYTES_MAX);
    if path.contains("/chat/") {
        return super::converse(wire, None, |bytes, out| publish(&mut reader, bytes, &hub, out)).await;
    }
    let (outbox, frames) = unbounded_channel();
    let Stream::Left(stream) = wire.stream() else { anyhow::bail!("bare servers do not encrypt") };
    let (input, output) = stream.split();
    tokio::select! {
        result = listen(input, reader, &hub, &outbox) => result,
        result = deliver(output, frames) => result,
    }
}

/// Puts all messages of one read into the outboxes as one run of frames, and acknowledges them.
fn publish(reader: &mut Reader, bytes: &mut [u8], hub: &Hub, out: &mut Vec<u8>) -> io::Result<()> {
    let mut acks = Acks::default();
    let mut run = Vec::with_capacity(bytes.len() * 2);
    let mut state = hub.state.lock();
    let mut frames = reader.feed(bytes);
    while let Some(event) = frames.next().map_err(io::Error::other)? {
        match event {
            Event::Text(text) => {
                state.head += 1;
                acks.write(text, state.head, out)?;
                let start = write::begin_text(&mut run);
                run.extend_from_slice(b"{\"type\":\"message\",\"roomId\":\"1\",");
                // The message as it was sent, without its opening and closing brace, in place of a real server's fields.
                run.extend_from_slice(text.get(1..text.len() - 1).unwrap_or_default().as_bytes());
                run.extend_from_slice(b",\"seq\":");
                write_u64(state.head, &mut run);
                run.extend_from_slice(b",\"receivedAt\":\"2026-01-31T12:00:00.000Z\"}");
                write::end_text(&mut run, start);
            }
            Event::Close { .. } => return Err(io::ErrorKind::UnexpectedEof.into()),
            _ => {}
        }
    }
    let run = Bytes::from(run);
    state.outboxes.retain(|outbox| outbox.send(run.clone()).is_ok());
    Ok(())
}

/// Subscribes when asked to. The answer goes into the same queue as what follows it.
async fn listen(
    mut input: ReadHalf<'_>,
    mut reader: Reader,
    hub: &Hub,
    outbox: &Outbox,
) -> anyhow::Result<()> {
    let mut buffer = vec![0; 4 * 1024];
    loop {
        let read = input.read(&mut buffer).await?;
        ensure!(read > 0, "the subscriber closed");
        let mut frames = reader.feed(buffer.get_mut(..read).unwrap_or_default());
        while let Some(event) = frames.next()? {
            let mut answer = Vec::new();
            match event {
                Event::Text(_) => {
                    let mut state = hub.state.lock();
                    let head = state.head;
                    let text = format!("{{\"type\":\"subscribed\",\"roomId\":\"1\",\"head\":{head}}}");
                    write::write_text(&mut answer, text.as_bytes());
                    outbox.send(answer.into())?;
                    state.outboxes.push(outbox.clone());
                }
                Event::Ping(payload) => {
                    write::write_pong(&mut answer, payload);
                    outbox.send(answer.into())?;
                }
                Event::Close { .. } => return Ok(()),
                _ => {}
            }
        }
    }
}

/// As many pieces as one write takes.
const SLICES: usize = 64;

async fn deliver(mut output: WriteHalf<'_>, mut frames: UnboundedReceiver<Bytes>) -> anyhow::Result<()> {
    let mut writing = Vec::with_capacity(SLICES);
    while frames.recv_many(&mut writing, SLICES).await > 0 {
        let mut slices: Vec<_> = writing.iter().map(|bytes| IoSlice::new(bytes)).collect();
        let mut rest = slices.as_mut_slice();
        while !rest.is_empty() {
            let written = output.write_vectored(rest).await?;
            ensure!(written > 0, "the subscriber closed");
            IoSlice::advance_slices(&mut rest, written);
        }
        writing.clear();
    }
    Ok(())
}
