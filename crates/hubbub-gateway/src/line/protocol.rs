//! The line protocol as a protocol of [`crate::connection`]: commands in, lines out.

use std::net::IpAddr;
use std::sync::Arc;
use std::task::Context;

use hubbub_core::queue::{Audience, Due, QueueOp, QueueSend, Take, TakeFilter, TakeMode};
use hubbub_core::text::check_text;
use hubbub_core::{ErrorCode, OpBatch};
use hubbub_pipeline::Waiter;

use super::answers::Answers;
use super::durations::Durations;
use super::parse::{Command, Parser, Selection};
use super::permission;
use super::queries::Query;
use super::responses::{BAD_REQUEST, ERROR, FORBIDDEN, Name, OK, UNAUTHORIZED};
use crate::Gateway;
use crate::auth::FIRST_TOKEN_TIMEOUT;
use crate::auth::caller::{Caller, Identity};
use crate::auth::open_connections::{ConnectionKind, Listed};
use crate::auth::request_token::refused;
use crate::auth::session::Session;
use crate::connection::socket::Socket;
use crate::connection::{Flow, Io, Protocol};
use crate::incoming_memory::{FREE_BYTES, Share};
use crate::problem::Problem;
use crate::rates::{Charged, REFUSED_MAX};

/// Characters of a message.
const CONTENT_CHARS_MAX: usize = 3_000;

pub(super) struct LineProtocol {
    gateway: Arc<Gateway>,
    parser: Parser,
    answers: Answers,
    durations: Durations,
    client: Option<u64>,
    /// `None` = not known yet.
    caller: Option<Caller>,
    listed: Arc<Listed>,
    /// Ends with the caller's token.
    session: Option<Session>,
    /// Whether the session began after the task registered.
    is_new: bool,
    /// Whom it asked to register as, last.
    registering: u64,
    /// What was read and is no whole command, or waits for what is before it.
    input: Vec<u8>,
    /// What is kept of a command that has not arrived whole.
    share: Share,
    /// Whether `input` may hold whole commands.
    holds_commands: bool,
    charged: Charged,
    /// Commands refused since one was not.
    refused_in_a_row: u32,
    /// Another protocol began: nothing behind it is taken.
    is_foreign: bool,
}

impl LineProtocol {
    pub(super) fn new(
        gateway: Arc<Gateway>,
        waiter: Arc<Waiter>,
        (address, charged): (IpAddr, Charged),
    ) -> Self {
        let caller = if gateway.auth.is_on() { Identity::Nobody } else { Identity::Anyone };
        let caller = Caller::unnamed(caller).ok();
        let listed = Listed::new(&gateway.auth, ConnectionKind::Line, address);
        let session = caller.as_ref().map(|caller| Session::listed(&gateway.auth, caller, &listed));
        Self {
            caller,
            listed,
            is_new: session.is_some(),
            session,
            share: Share::new(&gateway.incoming_memory),
            gateway,
            parser: Parser::default(),
            answers: Answers::new(waiter),
            durations: Durations::default(),
            client: None,
            registering: 0,
            input: Vec::new(),
            holds_commands: false,
            charged,
            refused_in_a_row: 0,
            is_foreign: false,
        }
    }

    /// Processes the commands of `input`, submits them, and keeps what is left. How many there were.
    fn process(&mut self, input: &[u8], ops: &mut OpBatch) -> u64 {
        let (mut rest, mut commands) = (input, 0);
        self.holds_commands = false;
        loop {
            if self.answers.is_barred() || self.answers.unanswered() >= Self::UNANSWERED_MAX {
                self.holds_commands = !rest.is_empty();
                break;
            }
            let (used, command) = self.parser.next(rest);
            rest = rest.get(used..).unwrap_or_default();
            let Some(command) = command else { break };
            commands += 1;
            // What is meant for another port ends the connection, whatever it may have had.
            if command != Command::Foreign && self.is_exceeded(used) {
                self.refuse_for_rate(&command, ops);
            } else {
                self.on_command(command, ops);
            }
            if self.is_foreign {
                break;
            }
        }
        self.answers.submit(&self.gateway, ops);
        self.input.extend_from_slice(rest);
        commands
    }

    /// Whether a command of so many bytes is more than this connection may send.
    fn is_exceeded(&mut self, bytes: usize) -> bool {
        if self.charged.is_nobody() {
            return false;
        }
        let now = self.gateway.clock.monotonic();
        let is_exceeded = self.gateway.rates.charge(&self.charged, bytes, now).is_err();
        self.refused_in_a_row = if is_exceeded { self.refused_in_a_row + 1 } else { 0 };
        is_exceeded
    }

    /// What follows a message in its queue is refused too until its sender can know.
    fn refuse_for_rate(&mut self, command: &Command<'_>, ops: &mut OpBatch) {
        self.gateway.metrics.reject(ErrorCode::TooManyRequests, 1);
        match command {
            Command::Send { queue, .. } => {
                self.answers.refuse_send(&self.gateway, ops, Name::of(*queue).as_str())
            }
            Command::Unregister => self.answers.push_leave(&self.gateway, ops),
            _ => self.answers.push_line(&self.gateway, ops, ERROR),
        }
    }

    fn on_command(&mut self, command: Command<'_>, ops: &mut OpBatch) {
        let allowed = match (&command, &self.caller) {
            (Command::Auth { .. } | Command::Foreign | Command::Bad, _) => Ok(()),
            (_, Some(caller)) => permission::authorize(caller, &command, self.client),
            (_, None) => Err(refused("a token is required")),
        };
        if let Err(problem) = allowed {
            return self.refuse_caller(&problem, ops);
        }
        match command {
            Command::Auth { token } => match self.authenticate(token) {
                Ok(()) => self.answers.push_line(&self.gateway, ops, OK),
                Err(problem) => self.refuse_caller(&problem, ops),
            },
            Command::Register { client } => {
                self.stage(QueueOp::Register { client: Name::of(client).as_str() }, ops);
                self.registering = client;
                self.answers.bar();
            }
            Command::Unregister => self.answers.push_leave(&self.gateway, ops),
            Command::CreateQueue => self.stage(QueueOp::PutNumbered, ops),
            Command::DeleteQueue { queue } => {
                self.stage(QueueOp::Delete { queue: Name::of(queue).as_str(), force: false }, ops);
            }
            Command::Send { queue, sender, receiver, content } => {
                self.on_send(queue, sender, receiver, content, ops);
            }
            Command::Get(selection) => match self.client.or(selection.receiver) {
                Some(receiver) => self.on_get(&selection, receiver, ops),
                None => self.refuse(ops),
            },
            Command::Read(selection) => match self.client.or(selection.receiver) {
                Some(receiver) => {
                    let Selection { queue, sender, newest_first, .. } = selection;
                    self.query(Query::Message { queue, sender, receiver, newest_first }, ops);
                }
                None => self.refuse(ops),
            },
            Command::ListUsers => self.query(Query::Users, ops),
            Command::ListQueues => self.query(Query::Queues, ops),
            Command::ListHolding { receiver } => self.query(Query::Holding { receiver }, ops),
            Command::Ping => self.answers.push_line(&self.gateway, ops, OK),
            Command::Foreign => {
                self.refuse(ops);
                self.is_foreign = true;
            }
            Command::Bad => self.refuse(ops),
        }
    }

    /// Takes a token: the first one, or another one for the same caller.
    fn authenticate(&mut self, token: &str) -> Result<(), Problem> {
        let auth = &self.gateway.auth;
        if !auth.is_on() {
            return Ok(());
        }
        let access = auth.verify_at_once(token)?;
        let caller = match &self.caller {
            None => Caller::unnamed(Identity::Somebody(access))?,
            Some(caller) => caller.renewed(access).ok_or_else(|| {
                Problem::new(ErrorCode::Forbidden, "the token is for somebody else; open another connection")
            })?,
        };
        self.session = Some(Session::listed(auth, &caller, &self.listed));
        self.is_new = true;
        let rates = &self.gateway.rates;
        if rates.is_limited() {
            rates.charge_user(&mut self.charged, caller.user.as_ref(), self.gateway.clock.monotonic());
        }
        self.caller = Some(caller);
        Ok(())
    }

    fn refuse_caller(&mut self, problem: &Problem, ops: &mut OpBatch) {
        self.gateway.metrics.reject(problem.code, 1);
        let line = match problem.code {
            ErrorCode::Forbidden => FORBIDDEN,
            ErrorCode::Unavailable => ERROR,
            _ => UNAUTHORIZED,
        };
        self.answers.push_line(&self.gateway, ops, line);
    }

    fn on_send(&mut self, queue: u64, sender: u64, receiver: Option<u64>, content: &str, ops: &mut OpBatch) {
        let bytes_max = self.gateway.limits.queue_message_bytes;
        if check_text(content, Some(CONTENT_CHARS_MAX), bytes_max).is_err() {
            return self.answers.push_line(&self.gateway, ops, ERROR);
        }
        let (queue, sender, receiver) = (Name::of(queue), Name::of(sender), receiver.map(Name::of));
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
        self.stage(QueueOp::Send(send), ops);
    }

    fn on_get(&mut self, selection: &Selection, receiver: u64, ops: &mut OpBatch) {
        let (queue, sender) = (selection.queue.map(Name::of), selection.sender.map(Name::of));
        let receiver = Name::of(receiver);
        let wanted = TakeFilter {
            queue: queue.as_ref().map(Name::as_str),
            receiver: Some(receiver.as_str()),
            sender: sender.as_ref().map(Name::as_str),
            newest_first: selection.newest_first,
        };
        self.stage(QueueOp::Take(Take { wanted, max: 1, how: TakeMode::Away, registers: false }), ops);
    }

    fn stage(&mut self, op: QueueOp<'_>, ops: &mut OpBatch) {
        self.answers.stage(&self.gateway, ops, op);
    }

    fn query(&mut self, query: Query, ops: &mut OpBatch) {
        let caller = self.caller.clone();
        self.answers.push_query(&self.gateway, ops, (query, caller));
    }

    fn refuse(&mut self, ops: &mut OpBatch) {
        self.gateway.metrics.line_bad_requests.inc();
        self.answers.push_line(&self.gateway, ops, BAD_REQUEST);
    }

    /// Has the task woken when the connection is to end. A task's waker stays the same, so once for each session is enough.
    fn register_anew(&mut self, context: &Context<'_>) {
        if std::mem::take(&mut self.is_new)
            && let Some(session) = &self.session
        {
            session.register(context);
        }
    }

    /// How much of a command is kept that has not arrived whole.
    fn unfinished_bytes(&self) -> usize {
        if self.holds_commands { 0 } else { self.input.len() }
    }

    fn drop_input(&mut self, io: &mut Io) {
        (self.input, self.holds_commands) = (Vec::new(), false);
        let _ = self.share.set(0);
        io.timer.stop();
    }
}

impl Protocol for LineProtocol {
    const UNANSWERED_MAX: usize = 256;
    /// `netcat` finishes sending at the end of its input.
    const ANSWERS_HALF_CLOSED: bool = true;

    fn on_start(&mut self, context: &mut Context<'_>, io: &mut Io) {
        self.register_anew(context);
        if self.caller.is_none() {
            io.timer.set(context, FIRST_TOKEN_TIMEOUT);
        }
    }

    fn decode(
        &mut self,
        context: &mut Context<'_>,
        io: &mut Io,
        input: &mut [u8],
        ops: &mut OpBatch,
    ) -> Flow {
        if self.session.as_ref().is_some_and(|session| session.ended_at(|| self.gateway.now()).is_some()) {
            self.drop_input(io);
            return Flow::Drain;
        }
        if !input.is_empty() {
            self.durations.begin(self.gateway.clock.monotonic());
        }
        let unanswered = self.answers.unanswered();
        let commands = if self.input.is_empty() {
            self.process(input, ops)
        } else {
            let mut kept = std::mem::take(&mut self.input);
            kept.extend_from_slice(input);
            self.process(&kept, ops)
        };
        self.durations.came(self.answers.unanswered().saturating_sub(unanswered));
        self.register_anew(context);
        self.gateway.metrics.line_commands.inc_by(commands);
        if self.caller.is_none() {
            // The time for the token goes on.
        } else if !self.parser.waits_for_arguments() && self.unfinished_bytes() <= FREE_BYTES {
            io.timer.stop();
        } else if commands > 0 || !io.timer.is_set() {
            io.timer.set(context, self.gateway.server.terms_timeout);
        }
        if self.is_foreign {
            self.drop_input(io);
            return Flow::Drain;
        }
        if self.share.set_or_refuse(self.unfinished_bytes()).is_err() {
            self.answers.push_line(&self.gateway, ops, ERROR);
            self.drop_input(io);
            return Flow::Drain;
        }
        if self.refused_in_a_row >= REFUSED_MAX {
            self.gateway.metrics.flooding_sockets.inc();
            self.drop_input(io);
            return Flow::Drain;
        }
        Flow::Continue
    }

    fn encode(&mut self, context: &mut Context<'_>, io: &mut Io) -> Flow {
        let is_given_up = self.share.poll_given_up(context).is_ready();
        if is_given_up {
            self.share = Share::new(&self.gateway.incoming_memory);
            self.answers.push_line(&self.gateway, &mut OpBatch::default(), ERROR);
            self.drop_input(io);
        }
        let unanswered = self.answers.unanswered();
        let encoded = self.answers.encode(&self.gateway, context, self.registering, &mut io.socket);
        let answered = unanswered.saturating_sub(self.answers.unanswered());
        if answered > 0 {
            let Gateway { clock, metrics, .. } = &*self.gateway;
            self.durations.answered(clock.monotonic(), answered, &metrics.line_time);
        }
        if encoded.has_registered {
            self.client = Some(self.registering);
        }
        if is_given_up
            || encoded.has_left
            || self.session.as_ref().is_some_and(|session| session.ended().is_some())
        {
            self.drop_input(io);
            return Flow::Drain;
        }
        Flow::Continue
    }

    fn unanswered(&self) -> usize {
        self.answers.unanswered()
    }

    fn is_barred(&self) -> bool {
        self.answers.is_barred()
    }

    fn holds_input(&self) -> bool {
        self.holds_commands
    }

    /// The peer has all the time it takes for its answers; only the end of the stream is timed.
    fn is_drained(&self, socket: &Socket) -> bool {
        self.answers.unanswered() == 0 && !self.holds_commands && socket.is_flushed()
    }

    fn on_quiet(&mut self) {
        self.answers.on_quiet();
    }

    /// Refuses a command whose arguments did not come, and ends a connection whose token or long line did not.
    fn on_timer(&mut self, _context: &mut Context<'_>, io: &mut Io) -> Flow {
        if self.caller.is_none() {
            return Flow::Cut;
        }
        self.parser.give_up();
        self.durations.begin(self.gateway.clock.monotonic());
        self.refuse(&mut OpBatch::default());
        self.durations.came(1);
        if self.unfinished_bytes() > FREE_BYTES {
            self.drop_input(io);
            return Flow::Drain;
        }
        Flow::Continue
    }

    fn on_shutdown(&mut self, io: &mut Io) {
        self.drop_input(io);
    }

    fn on_half_close(&mut self, io: &mut Io) {
        self.drop_input(io);
    }
}
