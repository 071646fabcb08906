//! One connection of the line protocol from its first byte to its end.
//!
//! A turn: answers that are ready, one write, then a read and what it brought. The task is woken by the socket, by the
//! batch it waits for, by its timer, or by the shutdown; whichever it was, the whole turn is taken, so no wake-up can
//! be lost between them.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hubbub_core::OpBatch;
use hubbub_core::queue::{Audience, Due, QueueOp, QueueSend, Take, TakeHow, Wanted};
use hubbub_pipeline::Waiter;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

use super::answers::Answers;
use super::parse::{Command, Parser, Wish};
use super::queries::{self, Look};
use super::responses::{BAD_REQUEST, ERROR, Name, OK};
use crate::Gateway;
use crate::server::Shutdown;

/// Bytes one read takes.
const READ_BYTES: usize = 16 * 1024;
/// Reads before other connections of the thread get their turn.
const READS_PER_TURN: usize = 8;
/// Bytes of answers that may wait for the peer; with more, nothing is read.
const BACKLOG_BYTES_MAX: usize = 256 * 1024;
/// Characters of a message.
const CONTENT_CHARS_MAX: usize = 3_000;
/// Time for the peer to close after the server did.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Buffers that all connections of a thread share: whatever is in them is dealt with, or moved to the connection,
/// before the thread turns to the next one.
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

/// A shared buffer that grew beyond this for one connection is given back.
const SCRATCH_BYTES_MAX: usize = 4 * BACKLOG_BYTES_MAX;

/// What must be answered before the next command is looked at, after everything before it.
enum Barrier {
    /// The connection becomes this client.
    Register(u64),
    /// The connection ends.
    Leave,
    /// What looks must see what came before it.
    Look(Look),
    Looking(Pin<Box<dyn Future<Output = Vec<u8>> + Send>>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// The peer sends nothing more; what it sent is answered.
    Ended,
    /// Nothing is read any more; what was read is answered.
    Draining,
    /// Everything is answered; the peer shall see that before the connection ends.
    Closing {
        has_shut_down: bool,
    },
}

pub(super) struct Connection {
    gateway: Arc<Gateway>,
    stream: TcpStream,
    parser: Parser,
    answers: Answers,
    waiter: Arc<Waiter>,
    /// Whom the connection registered as.
    client: Option<u64>,
    barrier: Option<Barrier>,
    /// What was read and is no whole command, or waits for what is before it.
    input: Vec<u8>,
    /// Whether `input` may hold whole commands.
    is_held: bool,
    /// Answers the peer has not taken.
    output: Vec<u8>,
    /// Ends the time for terms, or for the peer to close.
    timer: Option<Pin<Box<Sleep>>>,
    state: State,
}

impl Connection {
    pub(super) fn new(gateway: Arc<Gateway>, stream: TcpStream) -> Self {
        let waiter = Arc::new(Waiter::ordered());
        Self {
            gateway,
            stream,
            parser: Parser::default(),
            answers: Answers::new(waiter.clone()),
            waiter,
            client: None,
            barrier: None,
            input: Vec::new(),
            is_held: false,
            output: Vec::new(),
            timer: None,
            state: State::Open,
        }
    }

    /// Serves the connection until it is closed, at the latest at shutdown.
    pub(super) async fn run(mut self, shutdown: &Shutdown) {
        let mut stop = Box::pin({
            let mut shutdown = shutdown.clone();
            async move { shutdown.requested().await }
        });
        let mut is_registered = false;
        std::future::poll_fn(|context| {
            self.waiter.register(context);
            // A task's waker stays the same, so being polled once is enough to be woken by the shutdown.
            if !is_registered {
                is_registered = true;
                let _ = stop.as_mut().poll(context);
            }
            if shutdown.is_requested() && matches!(self.state, State::Open | State::Ended) {
                self.state = State::Draining;
                (self.input, self.is_held, self.timer) = (Vec::new(), false, None);
            }
            if self.timer.as_mut().is_some_and(|timer| timer.as_mut().poll(context).is_ready())
                && self.on_timer().is_ready()
            {
                return Poll::Ready(());
            }
            SCRATCH.with_borrow_mut(|scratch| {
                let turn = self.turn(context, scratch);
                if scratch.output.capacity() > SCRATCH_BYTES_MAX {
                    scratch.output = Vec::new();
                }
                turn
            })
        })
        .await;
    }

    /// Ready when the connection is over.
    fn turn(&mut self, context: &mut Context<'_>, scratch: &mut Scratch) -> Poll<()> {
        for _ in 0..READS_PER_TURN {
            self.answer(context, &mut scratch.output);
            let has_made_room = match self.flush(context, &mut scratch.output) {
                Ok(has_made_room) => has_made_room,
                Err(error) => {
                    tracing::debug!(%error, "write failed");
                    return Poll::Ready(());
                }
            };
            if has_made_room || (self.answers.is_ready() && !self.is_backlogged()) {
                continue;
            }
            if self.is_finished() {
                match self.state {
                    State::Open => {}
                    State::Ended => return Poll::Ready(()),
                    State::Draining => self.close(context),
                    State::Closing { .. } => return self.finish(context, &mut scratch.input),
                }
            }
            // Whoever is held up here is woken when its answers are ready, or when its peer takes more.
            if self.barrier.is_some() || self.answers.is_full() || self.is_backlogged() {
                return Poll::Pending;
            }
            if self.is_held {
                let input = std::mem::take(&mut self.input);
                self.take(context, &input, &mut scratch.ops);
                continue;
            }
            if self.state != State::Open {
                if self.is_finished() {
                    continue;
                }
                return Poll::Pending;
            }
            ready!(self.read(context, scratch));
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Whether nothing is left to be answered or sent.
    fn is_finished(&self) -> bool {
        self.answers.is_empty() && self.barrier.is_none() && !self.is_held && self.output.is_empty()
    }

    /// Whether the peer must take some of its answers before it gets more.
    fn is_backlogged(&self) -> bool {
        self.output.len() >= BACKLOG_BYTES_MAX
    }

    /// Appends everything that is ready for the peer.
    fn answer(&mut self, context: &mut Context<'_>, out: &mut Vec<u8>) {
        if self.is_backlogged() {
            return;
        }
        let client = if let Some(Barrier::Register(client)) = self.barrier { client } else { 0 };
        let has_registered = self.answers.write(client, BACKLOG_BYTES_MAX, out);
        if !self.answers.is_empty() {
            return;
        }
        self.barrier = match self.barrier.take() {
            Some(Barrier::Register(client)) => {
                if has_registered {
                    self.client = Some(client);
                }
                None
            }
            Some(Barrier::Leave) => {
                out.extend_from_slice(OK);
                (self.input, self.is_held) = (Vec::new(), false);
                self.state = State::Draining;
                None
            }
            Some(Barrier::Look(look)) => {
                let answer: Pin<Box<dyn Future<Output = Vec<u8>> + Send>> =
                    Box::pin(queries::answer(self.gateway.clone(), look));
                looked(answer, context, out)
            }
            Some(Barrier::Looking(answer)) => looked(answer, context, out),
            None => None,
        };
    }

    /// Writes as much as the peer takes, and keeps the rest. Whether there is room for answers that was not before.
    fn flush(&mut self, context: &mut Context<'_>, out: &mut Vec<u8>) -> io::Result<bool> {
        if self.output.is_empty() {
            let written = write(&mut self.stream, context, out)?;
            self.output.extend_from_slice(out.get(written..).unwrap_or_default());
            out.clear();
            return Ok(false);
        }
        let was_backlogged = self.is_backlogged();
        self.output.append(out);
        let written = write(&mut self.stream, context, &self.output)?;
        if written == self.output.len() {
            self.output = Vec::new();
        } else {
            self.output.drain(..written);
        }
        Ok(was_backlogged && !self.is_backlogged())
    }

    /// Takes what one read brings; pending when there is nothing.
    fn read(&mut self, context: &mut Context<'_>, scratch: &mut Scratch) -> Poll<()> {
        let mut buffer = ReadBuf::new(&mut scratch.input);
        let Poll::Ready(read) = Pin::new(&mut self.stream).poll_read(context, &mut buffer) else {
            if self.is_finished() {
                self.answers.quiet();
            }
            return Poll::Pending;
        };
        if let Err(error) = &read {
            tracing::debug!(%error, "read failed");
        }
        let count = buffer.filled().len();
        if read.is_err() || count == 0 {
            self.state = State::Ended;
            (self.input, self.timer) = (Vec::new(), None);
            return Poll::Ready(());
        }
        let input = scratch.input.get(..count).unwrap_or_default();
        if self.input.is_empty() {
            self.take(context, input, &mut scratch.ops);
        } else {
            let mut kept = std::mem::take(&mut self.input);
            kept.extend_from_slice(input);
            self.take(context, &kept, &mut scratch.ops);
        }
        Poll::Ready(())
    }

    /// Processes the commands of `input`, submits them, and keeps what is left.
    fn take(&mut self, context: &mut Context<'_>, input: &[u8], ops: &mut OpBatch) {
        let (mut rest, mut commands) = (input, 0);
        self.is_held = false;
        loop {
            if self.barrier.is_some() || self.answers.is_full() {
                self.is_held = !rest.is_empty();
                break;
            }
            let (used, command) = self.parser.next(rest);
            rest = rest.get(used..).unwrap_or_default();
            let Some(command) = command else { break };
            commands += 1;
            self.on_command(command, ops);
        }
        self.answers.submit(&self.gateway.log, &self.gateway.metrics, ops);
        self.gateway.metrics.line_commands.inc_by(commands);
        self.input.extend_from_slice(rest);
        if !self.parser.waits_for_terms() {
            self.timer = None;
        } else if commands > 0 || self.timer.is_none() {
            self.set_timer(context, self.gateway.server.terms_timeout);
        }
    }

    fn on_command(&mut self, command: Command<'_>, ops: &mut OpBatch) {
        match command {
            Command::Register { client } => {
                self.answers.stage(ops, QueueOp::Register { client: Name::of(client).as_str() });
                self.barrier = Some(Barrier::Register(client));
            }
            Command::Unregister => self.barrier = Some(Barrier::Leave),
            Command::CreateQueue => self.answers.stage(ops, QueueOp::PutNumbered),
            Command::DeleteQueue { queue } => {
                self.answers.stage(ops, QueueOp::Delete { queue: Name::of(queue).as_str(), force: false });
            }
            Command::Send { queue, sender, receiver, content } => {
                self.on_send(queue, sender, receiver, content, ops);
            }
            Command::Get(wish) => match self.client.or(wish.receiver) {
                Some(receiver) => self.on_get(&wish, receiver, ops),
                None => self.refuse(ops),
            },
            Command::Read(Wish { queue, sender, receiver, newest_first }) => match self.client.or(receiver) {
                Some(receiver) => {
                    let look = Look::Message { queue, sender, receiver, newest_first };
                    self.barrier = Some(Barrier::Look(look));
                }
                None => self.refuse(ops),
            },
            Command::ListUsers => self.barrier = Some(Barrier::Look(Look::Users)),
            Command::ListQueues => self.barrier = Some(Barrier::Look(Look::Queues)),
            Command::ListHolding { receiver } => {
                self.barrier = Some(Barrier::Look(Look::Holding { receiver }));
            }
            Command::Ping => self.say(OK, ops),
            Command::Bad => self.refuse(ops),
        }
    }

    fn on_send(&mut self, queue: u64, sender: u64, receiver: Option<u64>, content: &str, ops: &mut OpBatch) {
        let is_too_long = content.len() > self.gateway.limits.queue_message_bytes
            || (content.len() > CONTENT_CHARS_MAX && content.chars().count() > CONTENT_CHARS_MAX);
        if is_too_long || memchr::memchr(0, content.as_bytes()).is_some() {
            return self.say(ERROR, ops);
        }
        let (queue, sender, receiver) = (Name::of(queue), Name::of(sender), receiver.map(Name::of));
        if self.answers.refuses(queue.as_str()) {
            self.answers.submit(&self.gateway.log, &self.gateway.metrics, ops);
            return self.answers.refuse(&self.gateway.metrics);
        }
        let send = QueueSend {
            queue: queue.as_str(),
            sender: sender.as_str(),
            audience: receiver.as_ref().map_or(Audience::Anyone, |name| Audience::One(name.as_str())),
            text: content,
            message_id: None,
            due: Due::Now,
            group: None,
            ttl_ms: None,
            registers: false,
        };
        self.answers.stage(ops, QueueOp::Send(send));
    }

    fn on_get(&mut self, wish: &Wish, receiver: u64, ops: &mut OpBatch) {
        let (queue, sender) = (wish.queue.map(Name::of), wish.sender.map(Name::of));
        let receiver = Name::of(receiver);
        let wanted = Wanted {
            queue: queue.as_ref().map(Name::as_str),
            receiver: Some(receiver.as_str()),
            sender: sender.as_ref().map(Name::as_str),
            newest_first: wish.newest_first,
        };
        let take = Take { wanted, max: 1, how: TakeHow::Away, registers: false };
        self.answers.stage(ops, QueueOp::Take(take));
    }

    fn refuse(&mut self, ops: &mut OpBatch) {
        self.gateway.metrics.line_bad_requests.inc();
        self.say(BAD_REQUEST, ops);
    }

    /// Answers without the store, behind everything before it.
    fn say(&mut self, words: &'static [u8], ops: &mut OpBatch) {
        self.answers.submit(&self.gateway.log, &self.gateway.metrics, ops);
        self.answers.push(words);
    }

    fn set_timer(&mut self, context: &mut Context<'_>, time: Duration) {
        let mut timer = Box::pin(tokio::time::sleep(time));
        // So that this task is woken when it ends.
        let _ = timer.as_mut().poll(context);
        self.timer = Some(timer);
    }

    /// Refuses a command whose terms did not come; ready when the peer did not close in time.
    fn on_timer(&mut self) -> Poll<()> {
        self.timer = None;
        if matches!(self.state, State::Closing { .. }) {
            return Poll::Ready(());
        }
        self.parser.give_up();
        self.gateway.metrics.line_bad_requests.inc();
        self.answers.push(BAD_REQUEST);
        Poll::Pending
    }

    fn close(&mut self, context: &mut Context<'_>) {
        self.state = State::Closing { has_shut_down: false };
        self.set_timer(context, CLOSE_TIMEOUT);
    }

    /// Waits for the peer to close after us; what it still sends is dropped, so that the system does not reset the
    /// connection before the peer has read its answers.
    fn finish(&mut self, context: &mut Context<'_>, input: &mut [u8]) -> Poll<()> {
        if let State::Closing { has_shut_down: false } = self.state {
            let has_shut_down = Pin::new(&mut self.stream).poll_shutdown(context).is_ready();
            self.state = State::Closing { has_shut_down };
        }
        loop {
            let mut buffer = ReadBuf::new(input);
            match ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => {}
                _ => return Poll::Ready(()),
            }
        }
    }
}

/// Appends the answer if it is there, else waits on.
fn looked(
    mut answer: Pin<Box<dyn Future<Output = Vec<u8>> + Send>>,
    context: &mut Context<'_>,
    out: &mut Vec<u8>,
) -> Option<Barrier> {
    match answer.as_mut().poll(context) {
        Poll::Ready(answer) => {
            out.extend_from_slice(&answer);
            None
        }
        Poll::Pending => Some(Barrier::Looking(answer)),
    }
}

/// Writes until all is written or the peer takes no more; how many bytes it took.
fn write(stream: &mut TcpStream, context: &mut Context<'_>, bytes: &[u8]) -> io::Result<usize> {
    let mut written = 0;
    while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
        match Pin::new(&mut *stream).poll_write(context, rest) {
            Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
            Poll::Ready(Ok(count)) => written += count,
            Poll::Ready(Err(error)) => return Err(error),
            Poll::Pending => break,
        }
    }
    Ok(written)
}
