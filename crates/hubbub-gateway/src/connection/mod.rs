//! One connection from its first byte to its end, whatever it speaks.
//!
//! A turn: answers that are ready, one write, then a read and the requests it brought. The socket, a batch of this
//! connection, its outbox, its timer and the shutdown wake the task. Every wake-up takes a whole turn, so that none is
//! lost between them. What is decoded and encoded is for the [`Protocol`]; answers keep their order in [`pending`].
//!
//! Invariants
//! - A connection is one task. A read is decoded before the thread turns to another connection.
//! - Nothing is read while too many requests are unanswered or too many bytes are unsent.
//! - What is sent before a close is a prefix of what the peer was to get.
//! - A connection on which nothing is unsent keeps no output buffer.

pub(crate) mod patient;
pub(crate) mod pending;
pub(crate) mod socket;
pub(crate) mod stream;
mod timer;

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hubbub_core::OpBatch;
use hubbub_pipeline::Waiter;

use crate::outgoing_memory::{Reader, Share};
use crate::server::Shutdown;
use socket::Socket;
use timer::Timer;

/// Bytes one read takes. Larger ones halve the rate of connections that send one message at a time.
const READ_BYTES: usize = 16 * 1024;
/// Reads before other connections of the thread get their turn.
const READS_PER_TURN: usize = 8;
/// Time for the server's last bytes to be taken and for the peer to close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// How a connection goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    Continue,
    /// Nothing more is read; the connection closes when everything that was read is answered.
    Drain,
    /// The connection closes now. The peer does not get what waits for it.
    Cut,
}

/// What a connection speaks.
pub(crate) trait Protocol {
    /// Requests that may be unanswered; with more, nothing is read.
    const UNANSWERED_MAX: usize;
    /// Whether a peer that has finished sending still gets its answers.
    const ANSWERS_HALF_CLOSED: bool;

    /// Called once, before everything else.
    fn on_start(&mut self, _context: &mut Context<'_>, _io: &mut Io) {}

    /// Decodes what one read brought and submits its operations, which `ops` collects. An empty `input` asks for what
    /// [`Self::holds_input`].
    fn decode(&mut self, context: &mut Context<'_>, io: &mut Io, input: &mut [u8], ops: &mut OpBatch)
    -> Flow;

    /// Appends to the socket what is ready for the peer.
    fn encode(&mut self, context: &mut Context<'_>, io: &mut Io) -> Flow;

    /// Requests that are not answered yet.
    fn unanswered(&self) -> usize;

    /// Whether the last request must be answered before anything behind it is decoded.
    fn is_barred(&self) -> bool {
        false
    }

    /// Whether requests that were read are still to be decoded.
    fn holds_input(&self) -> bool {
        false
    }

    /// Whether everything is answered, so that a connection that reads no more can close.
    fn is_drained(&self, socket: &Socket) -> bool;

    /// Everything is answered, and the peer has sent nothing since.
    fn on_quiet(&mut self) {}

    /// The timer has ended; it is not running now.
    fn on_timer(&mut self, context: &mut Context<'_>, io: &mut Io) -> Flow;

    /// The server shuts down: what was read but not decoded is dropped.
    fn on_shutdown(&mut self, io: &mut Io);

    /// The peer has finished sending. Only with [`Self::ANSWERS_HALF_CLOSED`].
    fn on_half_close(&mut self, _io: &mut Io) {}

    /// Appends the last bytes of the connection.
    fn on_close(&mut self, _socket: &mut Socket) {}
}

/// Both directions of the stream, and the connection's deadline.
pub(crate) struct Io {
    pub(crate) socket: Socket,
    pub(crate) timer: Timer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// Nothing is read any more; what was read is still answered.
    Draining,
    /// The last bytes are on their way; whatever comes is dropped until the peer closes.
    Closing {
        has_shut_down: bool,
    },
}

/// Buffers that all connections of a thread share.
struct Scratch {
    input: Vec<u8>,
    ops: OpBatch,
    output: Vec<u8>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch {
        input: vec![0; READ_BYTES],
        ops: OpBatch::default(),
        output: Vec::new(),
    });
}

pub(crate) struct Connection<P> {
    protocol: P,
    io: Io,
    waiter: Arc<Waiter>,
    state: State,
    is_shutting_down: bool,
    reader: Arc<Reader>,
    /// What waits in the socket.
    share: Share,
}

impl<P: Protocol> Connection<P> {
    /// `waiter` is what the protocol submits its operations with, `reader` who takes its answers.
    pub(crate) fn new(socket: Socket, waiter: Arc<Waiter>, reader: Arc<Reader>, protocol: P) -> Self {
        let io = Io { socket, timer: Timer::default() };
        let share = Share::new(&reader);
        Self { protocol, io, waiter, state: State::Open, is_shutting_down: false, reader, share }
    }

    /// Serves the connection until it is closed, at the latest at shutdown.
    pub(crate) async fn run(mut self, shutdown: &Shutdown) {
        let mut requested = Box::pin({
            let mut shutdown = shutdown.clone();
            async move { shutdown.requested().await }
        });
        let mut has_started = false;
        std::future::poll_fn(|context| {
            self.waiter.register(context);
            if !has_started {
                has_started = true;
                // A task's waker stays the same, so being polled once is enough to be woken by the shutdown.
                let _ = requested.as_mut().poll(context);
                self.reader.register(context);
                self.protocol.on_start(context, &mut self.io);
            }
            SCRATCH.with_borrow_mut(|scratch| {
                self.io.socket.lend(&mut scratch.output);
                let polled = self.poll(context, scratch, shutdown.is_requested());
                self.io.socket.reclaim(&mut scratch.output);
                self.share.set(self.io.socket.own_backlog_bytes());
                if self.io.socket.take_progress() {
                    self.reader.touch();
                }
                if self.reader.is_given_up() { Poll::Ready(()) } else { polled }
            })
        })
        .await;
    }

    /// Ready when the connection is over.
    fn poll(
        &mut self,
        context: &mut Context<'_>,
        scratch: &mut Scratch,
        is_shutdown_requested: bool,
    ) -> Poll<()> {
        if is_shutdown_requested && !self.is_shutting_down {
            self.is_shutting_down = true;
            if !self.is_closing() {
                self.protocol.on_shutdown(&mut self.io);
                self.state = State::Draining;
            }
        }
        if self.io.timer.has_ended(context) {
            if self.is_closing() {
                return Poll::Ready(());
            }
            let flow = self.protocol.on_timer(context, &mut self.io);
            self.go_on(context, flow);
        }
        self.turn(context, scratch)
    }

    fn turn(&mut self, context: &mut Context<'_>, scratch: &mut Scratch) -> Poll<()> {
        for _ in 0..READS_PER_TURN {
            if !self.is_closing() {
                let flow = self.protocol.encode(context, &mut self.io);
                self.go_on(context, flow);
            }
            if let Err(error) = self.flush(context) {
                tracing::debug!(%error, "write failed");
                return Poll::Ready(());
            }
            match self.state {
                State::Closing { .. } => return self.finish(context, &mut scratch.input),
                State::Draining if self.protocol.is_drained(&self.io.socket) => {
                    self.close(context);
                    continue;
                }
                State::Open | State::Draining => {}
            }
            if self.must_wait() {
                return Poll::Pending;
            }
            if self.protocol.holds_input() {
                self.decode(context, &mut [], &mut scratch.ops);
                continue;
            }
            if self.state == State::Draining {
                return Poll::Pending;
            }
            let count = ready!(self.read(context, &mut scratch.input));
            if count > 0 {
                let input = scratch.input.get_mut(..count).unwrap_or_default();
                self.decode(context, input, &mut scratch.ops);
            } else if P::ANSWERS_HALF_CLOSED {
                self.protocol.on_half_close(&mut self.io);
                self.state = State::Draining;
            } else {
                return Poll::Ready(());
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    fn is_closing(&self) -> bool {
        matches!(self.state, State::Closing { .. })
    }

    /// Whether nothing more may be decoded. The task is woken when answers are ready, or when the peer takes more.
    fn must_wait(&self) -> bool {
        self.protocol.is_barred()
            || self.protocol.unanswered() >= P::UNANSWERED_MAX
            || self.io.socket.is_full()
    }

    fn decode(&mut self, context: &mut Context<'_>, input: &mut [u8], ops: &mut OpBatch) {
        // Empty, unless the task of another connection panicked.
        ops.clear();
        let flow = self.protocol.decode(context, &mut self.io, input, ops);
        self.go_on(context, flow);
    }

    fn go_on(&mut self, context: &mut Context<'_>, flow: Flow) {
        match flow {
            Flow::Continue => {}
            Flow::Drain => self.state = State::Draining,
            Flow::Cut => {
                self.io.socket.drop_backlog();
                self.close(context);
            }
        }
    }

    /// Writes what waits, as much as the peer takes.
    fn flush(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        let is_held_back = self.io.socket.take_held_back();
        match self.io.socket.poll_flush(context) {
            Poll::Ready(Err(error)) => return Err(error),
            // More was held back for a backlog that is gone already, and nobody else wakes this task for it.
            Poll::Ready(Ok(())) if is_held_back => context.waker().wake_by_ref(),
            Poll::Ready(Ok(())) | Poll::Pending => {}
        }
        Ok(())
    }

    /// How many bytes one read brought; 0 at the end of the stream.
    fn read(&mut self, context: &mut Context<'_>, input: &mut [u8]) -> Poll<usize> {
        match self.io.socket.poll_read(context, input) {
            Poll::Ready(Ok(count)) => Poll::Ready(count),
            Poll::Ready(Err(error)) => {
                tracing::debug!(%error, "read failed");
                Poll::Ready(0)
            }
            Poll::Pending => {
                if self.protocol.is_drained(&self.io.socket) {
                    self.protocol.on_quiet();
                }
                Poll::Pending
            }
        }
    }

    fn close(&mut self, context: &mut Context<'_>) {
        self.protocol.on_close(&mut self.io.socket);
        self.state = State::Closing { has_shut_down: false };
        self.io.timer.set(context, CLOSE_TIMEOUT);
    }

    /// Waits for the peer to close after us; what it still sends is dropped, so that the system does not reset the
    /// connection before the peer has read our last bytes.
    fn finish(&mut self, context: &mut Context<'_>, input: &mut [u8]) -> Poll<()> {
        if !self.io.socket.is_flushed() {
            return Poll::Pending;
        }
        if self.state == (State::Closing { has_shut_down: false }) {
            let has_shut_down = self.io.socket.poll_shutdown(context).is_ready();
            self.state = State::Closing { has_shut_down };
        }
        loop {
            match ready!(self.io.socket.poll_read(context, input)) {
                Ok(0) | Err(_) => return Poll::Ready(()),
                Ok(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;
