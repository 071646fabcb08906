//! One WebSocket from its upgrade to its end.
//!
//! A turn: answers that are ready, then live frames, then one write, then a read and what it brought. The task is
//! woken by the socket, by the batch it waits for, by its outbox, by its timer, or by the shutdown; whichever it
//! was, the whole turn is taken, so no wake-up can be lost between them.

use std::cell::RefCell;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hubbub_core::{OpBatch, RoomId};
use hubbub_pipeline::Waiter;
use hubbub_ws::{Event, Reader, write};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

use super::answers::{Sends, UNANSWERED_MAX};
use super::api::{self, ApiWording};
use super::chat::{self, ChatRoom, ChatWording};
use super::close;
use super::subscriptions::{Announce, BACKLOG_BYTES_MAX, Subscriptions};
use crate::Gateway;
use crate::auth::Caller;
use crate::connection::socket::{READ_BYTES, Socket};
use crate::follow::{Audience, OnReset, Start, Wanted};
use crate::server::Shutdown;

/// Reads before other connections of the thread get their turn.
const READS_PER_TURN: usize = 8;
/// Time for the close frame to be sent and the peer's to come.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// What the socket speaks.
pub(super) enum Dialect {
    /// `/v1/ws`.
    Api { caller: Caller },
    /// `/chat/{room}`.
    Chat { room: RoomId, caller: Caller, echo: bool, live: bool, pad: bool },
}

enum State {
    Open,
    /// Nothing is read any more; what was submitted is still answered.
    Draining {
        code: u16,
        reason: String,
    },
    /// The close frame is on its way; whatever comes is dropped until the peer closes.
    Closing {
        has_shut_down: bool,
    },
}

/// Where the connection stands between two pings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heartbeat {
    /// The timer ends the time until the next ping.
    Quiet,
    /// The timer ends the time for the pong.
    Pinged,
    /// The pong came before the timer.
    Answered,
}

/// Buffers that all connections of a thread share: a read is processed before the thread turns to the next one.
struct Scratch {
    bytes: Vec<u8>,
    ops: OpBatch,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch { bytes: vec![0; READ_BYTES], ops: OpBatch::default() });
}

pub(super) struct Connection {
    gateway: Arc<Gateway>,
    socket: Socket,
    reader: Reader,
    dialect: Dialect,
    waiter: Arc<Waiter>,
    sends: Sends,
    subscriptions: Subscriptions,
    timer: Pin<Box<Sleep>>,
    heartbeat: Heartbeat,
    state: State,
    /// What the client sent together with its handshake.
    early: Bytes,
}

impl Connection {
    /// `early`: what the client sent together with its handshake. `sent`: bytes of the response to that.
    pub(super) fn new(
        gateway: Arc<Gateway>,
        stream: TcpStream,
        (early, sent): (Bytes, u64),
        dialect: Dialect,
    ) -> Self {
        let waiter = Arc::new(Waiter::ordered());
        let (Dialect::Api { caller } | Dialect::Chat { caller, .. }) = &dialect;
        let mut subscriptions = Subscriptions::new(gateway.clone(), waiter.clone(), caller.user.clone());
        if matches!(dialect, Dialect::Api { .. }) {
            subscriptions.open();
        }
        if let Dialect::Chat { room, live: true, .. } = &dialect {
            let (start, on_reset, audience) = (Start::Live, OnReset::Live, Audience::Readers);
            let wanted = Wanted { start, epoch: None, on_reset, audience };
            // The first subscription of a socket is within every limit.
            let _ = subscriptions.subscribe(room.clone(), wanted, Announce::Not);
        }
        Self {
            socket: Socket::new(stream, sent),
            reader: super::reader(&gateway),
            dialect,
            sends: Sends::new(waiter.clone()),
            waiter,
            subscriptions,
            timer: Box::pin(tokio::time::sleep(gateway.server.ping_interval)),
            heartbeat: Heartbeat::Quiet,
            state: State::Open,
            early,
            gateway,
        }
    }

    /// Serves the socket until it is closed, at the latest at shutdown.
    pub(super) async fn run(mut self, shutdown: &Shutdown) {
        let mut stop = Box::pin({
            let mut shutdown = shutdown.clone();
            async move { shutdown.requested().await }
        });
        let mut is_registered = false;
        std::future::poll_fn(|context| {
            self.waiter.register(context);
            // A task's waker stays the same, so being polled once is enough to be woken by timer and shutdown.
            if !is_registered {
                is_registered = true;
                let _ = self.timer.as_mut().poll(context);
                let _ = stop.as_mut().poll(context);
            }
            if shutdown.is_requested() && matches!(self.state, State::Open) {
                let seconds = self.gateway.server.drain_timeout.as_secs().max(1);
                self.drain(close::GOING_AWAY, format!("shutting down; reconnect within {seconds} s"));
            }
            if self.timer.is_elapsed() && self.on_timer(context).is_ready() {
                return Poll::Ready(());
            }
            self.turn(context)
        })
        .await;
    }

    fn turn(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.emit(context);
        if self.subscriptions.is_cut() && !matches!(self.state, State::Closing { .. }) {
            self.socket.drop_backlog();
            self.close(close::TOO_SLOW, "too slow: resume from your last seq");
        }
        if self.is_drained()
            && let State::Draining { code, reason } = std::mem::replace(&mut self.state, State::Open)
        {
            self.close(code, &reason);
        }
        if !self.flush(context) {
            return Poll::Ready(());
        }
        match self.state {
            State::Open => self.read(context),
            State::Draining { .. } => Poll::Pending,
            State::Closing { .. } => self.finish(context),
        }
    }

    /// Appends everything that is ready for the peer.
    fn emit(&mut self, context: &mut Context<'_>) {
        if matches!(self.state, State::Closing { .. }) {
            return;
        }
        self.answer();
        loop {
            // A room that is followed again begins behind the answer that ended it before.
            let may_catch_up = !self.sends.waits_for_outbox();
            self.subscriptions.poll(context, &mut self.socket, may_catch_up);
            if may_catch_up || !self.answer() {
                return;
            }
        }
    }

    /// Appends the answers that are ready; `false` when there are none.
    fn answer(&mut self) -> bool {
        let Self { gateway, socket, sends, dialect, subscriptions, .. } = self;
        let has_passed = |end| subscriptions.has_passed(end);
        if !sends.has_answers(has_passed) {
            return false;
        }
        match dialect {
            Dialect::Api { caller } => {
                let wording = ApiWording { epoch: &gateway.store.epoch(), caller };
                sends.answer(&wording, has_passed, socket.out());
            }
            Dialect::Chat { pad, .. } => {
                let aligned_from = pad.then(|| socket.out_begins_at());
                let wording = ChatWording { now: gateway.now(), aligned_from };
                sends.answer(&wording, has_passed, socket.out());
            }
        }
        true
    }

    /// Writes what waits, as much as the peer takes; `false` when the connection is lost.
    fn flush(&mut self, context: &mut Context<'_>) -> bool {
        let is_held_back = self.subscriptions.take_held_back();
        match self.socket.poll_flush(context) {
            Poll::Ready(Err(error)) => {
                tracing::debug!(%error, "write failed");
                return false;
            }
            // There may be more where this came from: it was held back for a backlog that is gone already, and nobody
            // else wakes this task for it.
            Poll::Ready(Ok(())) if is_held_back => context.waker().wake_by_ref(),
            _ => {}
        }
        true
    }

    fn read(&mut self, context: &mut Context<'_>) -> Poll<()> {
        for _ in 0..READS_PER_TURN {
            // Whoever is not read is woken when its answers are ready, or when its peer takes more.
            if self.sends.unanswered() >= UNANSWERED_MAX || self.socket.backlog_bytes() > BACKLOG_BYTES_MAX {
                return Poll::Pending;
            }
            let count = SCRATCH.with_borrow_mut(|scratch| {
                let count = if self.early.is_empty() {
                    std::task::ready!(self.socket.poll_read(context, &mut scratch.bytes))
                } else {
                    let part = self.early.split_to(self.early.len().min(scratch.bytes.len()));
                    scratch.bytes.get_mut(..part.len()).unwrap_or_default().copy_from_slice(&part);
                    Ok(part.len())
                };
                let count = count.unwrap_or_else(|error| {
                    tracing::debug!(%error, "read failed");
                    0
                });
                self.take(scratch.bytes.get_mut(..count).unwrap_or_default(), &mut scratch.ops);
                Poll::Ready(count)
            });
            match count {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(0) => return Poll::Ready(()),
                Poll::Ready(_) => {}
            }
            if !matches!(self.state, State::Open) {
                return self.turn(context);
            }
            self.emit(context);
            if !self.flush(context) {
                return Poll::Ready(());
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Processes what one read brought, and submits it.
    fn take(&mut self, bytes: &mut [u8], ops: &mut OpBatch) {
        let now = self.gateway.now();
        let mut end = None;
        let mut frames = self.reader.feed(bytes);
        loop {
            let event = match frames.next() {
                Ok(Some(event)) => event,
                Ok(None) => break,
                Err(error) => {
                    end = Some((error.close_code(), error.to_string()));
                    break;
                }
            };
            match event {
                Event::Text(text) => match &self.dialect {
                    Dialect::Chat { room, caller, echo, .. } => {
                        let chat = ChatRoom { room, caller, echo: *echo };
                        chat::on_text(&self.gateway, &chat, &mut self.sends, ops, text, now);
                    }
                    Dialect::Api { caller } => {
                        let (gateway, sends) = (&*self.gateway, &mut self.sends);
                        let subscriptions = &mut self.subscriptions;
                        api::on_text(
                            &mut api::Parts { gateway, caller, sends, subscriptions, ops },
                            text,
                            now,
                        );
                    }
                },
                Event::Binary(_) => {
                    end = Some((close::BINARY, "binary frames are not taken".to_owned()));
                    break;
                }
                Event::Ping(payload) => write::write_pong(self.socket.out(), payload),
                Event::Pong(payload) => {
                    self.sends.pong(payload);
                    if self.heartbeat == Heartbeat::Pinged {
                        self.heartbeat = Heartbeat::Answered;
                    }
                }
                Event::Close { code, .. } => {
                    end = Some((code.unwrap_or(close::NORMAL), String::new()));
                    break;
                }
            }
        }
        self.sends.submit(&self.gateway.log, &self.gateway.metrics, ops);
        if let Some((code, reason)) = end {
            self.drain(code, reason);
        }
    }

    fn drain(&mut self, code: u16, reason: String) {
        self.state = State::Draining { code, reason };
    }

    fn is_drained(&self) -> bool {
        matches!(self.state, State::Draining { .. }) && self.sends.unanswered() == 0
    }

    fn close(&mut self, code: u16, reason: &str) {
        write::write_close(self.socket.out(), code, reason);
        self.state = State::Closing { has_shut_down: false };
        self.timer.as_mut().reset(Instant::now() + CLOSE_TIMEOUT);
    }

    /// Waits for the peer to close after our close frame; what it still sends is dropped, so that the system does
    /// not reset the connection before the peer has read our last words.
    fn finish(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.timer.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        if self.socket.backlog_bytes() > 0 {
            return Poll::Pending;
        }
        if let State::Closing { has_shut_down } = &mut self.state
            && !*has_shut_down
        {
            *has_shut_down = self.socket.poll_shutdown(context).is_ready();
        }
        SCRATCH.with_borrow_mut(|scratch| {
            loop {
                match self.socket.poll_read(context, &mut scratch.bytes) {
                    Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(()),
                    Poll::Ready(Ok(_)) => {}
                    Poll::Pending => return Poll::Pending,
                }
            }
        })
    }

    /// Pings, or gives up; ready when the connection is over.
    fn on_timer(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if matches!(self.state, State::Closing { .. }) {
            return Poll::Ready(());
        }
        let limits = &self.gateway.server;
        let next = match self.heartbeat {
            Heartbeat::Quiet => {
                self.heartbeat = Heartbeat::Pinged;
                let payload = self.sends.ping_payload();
                write::write_ping(self.socket.out(), payload.as_ref().map_or(&[][..], |number| number));
                // A connection that is pinged has often been idle for long: let it cost nothing.
                self.sends.release();
                limits.pong_timeout
            }
            Heartbeat::Answered => {
                self.heartbeat = Heartbeat::Quiet;
                self.socket.release();
                limits.ping_interval.saturating_sub(limits.pong_timeout)
            }
            Heartbeat::Pinged => {
                self.socket.drop_backlog();
                self.close(close::NO_PONG, "no pong");
                return Poll::Pending;
            }
        };
        self.timer.as_mut().reset(Instant::now() + next);
        let _ = self.timer.as_mut().poll(context);
        Poll::Pending
    }
}
