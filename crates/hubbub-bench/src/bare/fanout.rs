//! One room: what comes in on `/chat/…` goes out to every subscriber on `/v1/ws`, encoded once for each read.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes};
use hubbub_core::message::write_u64;
use hubbub_ws::{Event, Reader, Role, write};
use parking_lot::Mutex;
use tokio::io::AsyncWrite;
use tokio::net::TcpStream;

use super::ws::{Acks, MESSAGE_BYTES_MAX};
use crate::wire::Wire;

#[derive(Default)]
pub(super) struct Hub {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    head: u64,
    outboxes: Vec<Arc<Mutex<Outbox>>>,
}

#[derive(Default)]
struct Outbox {
    frames: VecDeque<Bytes>,
    waker: Option<Waker>,
    closed: bool,
}

pub(super) async fn serve(stream: TcpStream, hub: Arc<Hub>) -> anyhow::Result<()> {
    let (wire, path) = super::upgrade(stream).await?;
    let mut reader = Reader::new(Role::Server, MESSAGE_BYTES_MAX);
    if path.contains("/chat/") {
        return super::converse(wire, |bytes, out| publish(&mut reader, bytes, &hub, out)).await;
    }
    let (outbox, writing) = Default::default();
    let mut subscriber = Subscriber { wire, reader, hub, outbox, subscribed: false, writing };
    let result = poll_fn(|cx| subscriber.poll(cx)).await;
    *subscriber.outbox.lock() = Outbox { closed: true, ..Outbox::default() };
    Ok(result?)
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
    state.outboxes.retain(|outbox| {
        let mut outbox = outbox.lock();
        if outbox.closed {
            return false;
        }
        outbox.frames.push_back(run.clone());
        let waker = outbox.waker.take();
        drop(outbox);
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    });
    Ok(())
}

struct Subscriber {
    wire: Wire,
    reader: Reader,
    hub: Arc<Hub>,
    outbox: Arc<Mutex<Outbox>>,
    subscribed: bool,
    writing: VecDeque<Bytes>,
}

/// As many pieces as one write takes.
const SLICES: usize = 64;

impl Subscriber {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.poll_read(cx)?.is_ready() {}
        if self.wire.poll_flush(cx)?.is_pending() {
            return Poll::Pending;
        }
        loop {
            if self.writing.is_empty() {
                let mut outbox = self.outbox.lock();
                std::mem::swap(&mut self.writing, &mut outbox.frames);
                if self.writing.is_empty() {
                    outbox.waker = Some(cx.waker().clone());
                    return Poll::Pending;
                }
            }
            if self.poll_write(cx)?.is_pending() {
                return Poll::Pending;
            }
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut slices = [IoSlice::new(&[]); SLICES];
        let mut used = 0;
        for (slice, bytes) in slices.iter_mut().zip(&self.writing) {
            *slice = IoSlice::new(bytes);
            used += 1;
        }
        let slices = slices.get(..used).unwrap_or_default();
        let Poll::Ready(result) = Pin::new(self.wire.stream()).poll_write_vectored(cx, slices) else {
            return Poll::Pending;
        };
        let mut written = result?;
        while let Some(front) = self.writing.front_mut() {
            if front.len() > written {
                front.advance(written);
                break;
            }
            written -= front.len();
            self.writing.pop_front();
        }
        Poll::Ready(Ok(()))
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { wire, reader, subscribed, .. } = self;
        let read = wire.poll_read(cx, |bytes, out| {
            let mut frames = reader.feed(bytes);
            while let Some(event) = frames.next().map_err(io::Error::other)? {
                match event {
                    Event::Text(_) => *subscribed = true,
                    Event::Ping(payload) => write::write_pong(out, payload),
                    Event::Close { .. } => return Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
                    _ => {}
                }
            }
            Ok(())
        });
        let Poll::Ready(result) = read else { return Poll::Pending };
        result??;
        if std::mem::take(&mut self.subscribed) {
            self.subscribe();
        }
        Poll::Ready(Ok(()))
    }

    /// The answer goes into the same queue as what follows it.
    fn subscribe(&mut self) {
        let mut state = self.hub.state.lock();
        let mut answer = Vec::new();
        let text = format!("{{\"type\":\"subscribed\",\"roomId\":\"1\",\"head\":{}}}", state.head);
        write::write_text(&mut answer, text.as_bytes());
        self.outbox.lock().frames.push_back(Bytes::from(answer));
        state.outboxes.push(Arc::clone(&self.outbox));
    }
}
