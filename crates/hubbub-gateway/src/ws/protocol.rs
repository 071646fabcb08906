//! WebSocket as a protocol of [`crate::connection`]: frames in, frames out, pings in between.

use std::net::IpAddr;
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use hubbub_core::{OpBatch, Timestamp};
use hubbub_pipeline::Waiter;
use hubbub_ws::{Event, ProtocolError, Reader, Role, write};

use super::answers::{Answers, Responses};
use super::close;
use super::heartbeat::Heartbeat;
use super::peer::{Opening, SocketPeer};
use super::subscriptions::Subscriptions;
use crate::Gateway;
use crate::auth::session::Ended;
use crate::auth::{FIRST_TOKEN_TIMEOUT, TOKEN_BYTES_MAX};
use crate::connection::socket::Socket;
use crate::connection::{Flow, Io, Protocol};
use crate::incoming_memory::{Full, Share};
use crate::rates::{Charged, Exceeded, REFUSED_MAX};

/// Bytes a frame may have beyond the longest text: field names, ids, and the text's JSON escapes.
const FRAME_OVERHEAD: usize = 4 * 1024;
const OVERDUE: &str = "the rest of a frame did not come in time";
const REFUSING: &str = "messages of too many rooms were refused at once";
/// Bytes of a first frame with a token.
const FIRST_FRAME_BYTES: usize = TOKEN_BYTES_MAX + FRAME_OVERHEAD;

/// Bytes of a frame of somebody who is known. JSON may escape every byte of a text as \u00XX.
fn frame_bytes(gateway: &Gateway) -> usize {
    gateway.limits.message_bytes.saturating_mul(6) + FRAME_OVERHEAD
}

pub(super) trait Dialect {
    type Responses<'a>: Responses
    where
        Self: 'a;

    /// Begins what the socket follows without asking, once it is known who is there.
    fn on_start(&self, subscriptions: &mut Subscriptions);
    fn on_text(&self, turn: &mut Turn<'_>, text: &str);
    /// `out_begins_at`: the position in the connection's stream of the buffer that answers are appended to.
    fn responses<'a>(
        &'a self,
        gateway: &Gateway,
        peer: &'a SocketPeer,
        out_begins_at: u64,
    ) -> Self::Responses<'a>;
}

pub(super) struct Turn<'a> {
    pub(super) gateway: &'a Gateway,
    pub(super) answers: &'a mut Answers,
    pub(super) subscriptions: &'a mut Subscriptions,
    pub(super) ops: &'a mut OpBatch,
    pub(super) now: Timestamp,
    /// Whether this frame is more than its sender may send.
    pub(super) exceeded: Option<Exceeded>,
    pub(super) peer: &'a mut SocketPeer,
    /// Code and reason of the close frame, if the connection is to end behind the answers.
    pub(super) end: Option<(u16, String)>,
}

impl Turn<'_> {
    /// Answers with a frame that needs no operation, behind the answers before it.
    pub(super) fn answer(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let mut frame = Vec::new();
        write(&mut frame);
        self.answers.push_frame(self.gateway, self.ops, frame);
    }
}

pub(super) struct WebSocket<D> {
    gateway: Arc<Gateway>,
    dialect: D,
    peer: SocketPeer,
    reader: Reader,
    answers: Answers,
    subscriptions: Subscriptions,
    heartbeat: Heartbeat,
    charged: Charged,
    /// Frames refused since one was not.
    refused_in_a_row: u32,
    /// What is held of a message that goes on, and since when it does.
    share: Share,
    unfinished_since: Option<Duration>,
    /// Code and reason of the close frame, once the connection is to end.
    end: Option<(u16, String)>,
}

impl<D: Dialect> WebSocket<D> {
    pub(super) fn new(
        gateway: Arc<Gateway>,
        waiter: Arc<Waiter>,
        dialect: D,
        opening: Opening,
        (address, charged): (IpAddr, Charged),
    ) -> Self {
        let peer = SocketPeer::new(gateway.clone(), opening, address);
        let mut subscriptions = Subscriptions::new(gateway.clone(), waiter.clone());
        if let Some(caller) = peer.caller() {
            subscriptions.set_caller(caller);
            dialect.on_start(&mut subscriptions);
        }
        // Whoever is not known has the server hold no more than a token.
        let frame_bytes = if peer.caller().is_some() { frame_bytes(&gateway) } else { FIRST_FRAME_BYTES };
        Self {
            dialect,
            peer,
            reader: Reader::new(Role::Server, frame_bytes).text_only(),
            answers: Answers::new(waiter),
            subscriptions,
            heartbeat: Heartbeat::Quiet,
            charged,
            refused_in_a_row: 0,
            share: Share::new(&gateway.incoming_memory),
            unfinished_since: None,
            end: None,
            gateway,
        }
    }

    /// Appends the answers that are ready; `false` when there are none.
    fn answer(&mut self, socket: &mut Socket) -> bool {
        let Self { gateway, dialect, peer, answers, subscriptions, reader, share, .. } = self;
        if !answers.pending.may_be_ready() {
            return false;
        }
        let responses = dialect.responses(gateway, peer, socket.out_begins_at());
        let is_any = answers.encode(responses, |end| subscriptions.has_passed(end), socket);
        // It is less than before, which is always taken.
        let _ = share.set(reader.unfinished_bytes() + answers.held_bytes());
        is_any
    }

    /// Ends the connection behind the answers to what was read: nothing else is sent or read any more.
    fn end_session(&mut self, ended: Ended) -> Flow {
        self.subscriptions.stop();
        self.end.get_or_insert_with(|| (close::of_session(ended), ended.reason().to_owned()));
        Flow::Drain
    }

    /// Counts what is held of a message that goes on, and of requests that wait for their answers; `has_come`: after another one.
    /// What ends the connection, if all connections hold too much, or the message takes too long.
    fn hold_unfinished(&mut self, has_come: bool) -> Option<(u16, String)> {
        let held_bytes = self.reader.unfinished_bytes() + self.answers.held_bytes();
        if self.share.set_or_refuse(held_bytes).is_err() {
            return Some((close::TRY_LATER, Full::REASON.to_owned()));
        }
        if self.reader.is_idle() {
            self.unfinished_since = None;
        } else if has_come || self.unfinished_since.is_none() || self.unanswered() > 0 {
            self.unfinished_since = Some(self.gateway.clock.monotonic());
        }
        self.is_overdue().then(|| (close::TIMEOUT, OVERDUE.to_owned()))
    }

    /// Whether the rest of a message takes longer than a body may. While the client waits for answers, it may be the server that
    /// does not read.
    fn is_overdue(&self) -> bool {
        let Gateway { clock, server, .. } = &*self.gateway;
        let is_over = |since| clock.monotonic().saturating_sub(since) > server.body_timeout;
        self.unanswered() == 0 && self.unfinished_since.is_some_and(is_over)
    }

    /// Lets go of what others need the memory of, and ends the connection.
    fn give_up(&mut self) -> Flow {
        self.reader = Reader::new(Role::Server, 0);
        self.answers.forget();
        self.share = Share::new(&self.gateway.incoming_memory);
        self.cut(close::TRY_LATER, Full::REASON)
    }

    fn cut(&mut self, code: u16, reason: &str) -> Flow {
        self.end = Some((code, reason.to_owned()));
        Flow::Cut
    }
}

impl<D: Dialect> Protocol for WebSocket<D> {
    const UNANSWERED_MAX: usize = 1_024;
    /// WebSockets end with a close frame; a stream that ends without one is broken.
    const ANSWERS_HALF_CLOSED: bool = false;

    fn on_start(&mut self, context: &mut Context<'_>, io: &mut Io) {
        self.peer.register_anew(context);
        let limits = &self.gateway.server;
        let is_known = self.peer.caller().is_some();
        io.timer.set(context, if is_known { limits.ping_interval } else { FIRST_TOKEN_TIMEOUT });
    }

    fn decode(
        &mut self,
        context: &mut Context<'_>,
        io: &mut Io,
        input: &mut [u8],
        ops: &mut OpBatch,
    ) -> Flow {
        self.heartbeat.on_input();
        let now = self.gateway.now();
        if let Some(ended) = self.peer.ended_at(now) {
            return self.end_session(ended);
        }
        let Self { gateway, dialect, peer, reader, answers, subscriptions, heartbeat, charged, .. } = self;
        let (gateway, refused): (&Gateway, _) = (gateway, &mut self.refused_in_a_row);
        let started = gateway.rates.is_limited().then(|| gateway.clock.monotonic());
        let mut has_come = false;
        let mut frames = reader.feed(input);
        let end = loop {
            match frames.next() {
                Ok(Some(Event::Text(text))) => {
                    has_come = true;
                    let charge = |started| gateway.rates.charge(charged, text.len(), started).err();
                    let exceeded = started.and_then(charge);
                    let was_known = peer.caller().is_some();
                    let mut turn =
                        Turn { gateway, answers, subscriptions, ops, now, exceeded, peer, end: None };
                    dialect.on_text(&mut turn, text);
                    if turn.end.is_some() {
                        break turn.end;
                    }
                    if answers.refusing.is_full() {
                        gateway.metrics.flooding_sockets.inc();
                        break Some((close::FLOODING, REFUSING.to_owned()));
                    }
                    *refused = if exceeded.is_some() { *refused + 1 } else { 0 };
                    if *refused >= REFUSED_MAX {
                        gateway.metrics.flooding_sockets.inc();
                        break Some((close::FLOODING, "too many requests".to_owned()));
                    }
                    if !was_known && let Some(caller) = peer.caller() {
                        frames.set_max_message_bytes(frame_bytes(gateway));
                        if let Some(started) = started {
                            gateway.rates.charge_user(charged, caller.user.as_ref(), started);
                        }
                    }
                }
                Ok(Some(Event::Ping(payload))) => write::write_pong(io.socket.out(), payload),
                Ok(Some(Event::Pong(payload))) => {
                    answers.on_pong(payload);
                    heartbeat.on_pong();
                }
                Ok(Some(Event::Binary(_))) | Err(ProtocolError::Binary) => {
                    gateway.metrics.websocket_bad_frames.inc();
                    break Some((close::BINARY, "binary frames are not taken".to_owned()));
                }
                Ok(Some(Event::Close { code, .. })) => {
                    break Some((code.unwrap_or(close::NORMAL), String::new()));
                }
                Ok(None) => break None,
                Err(error) => {
                    gateway.metrics.websocket_bad_frames.inc();
                    break Some((error.close_code(), error.to_string()));
                }
            }
        };
        answers.submit(gateway, ops);
        peer.register_anew(context);
        if let Some(end) = end.or_else(|| self.hold_unfinished(has_come)) {
            self.end = Some(end);
            // Nothing is read any more.
            self.reader = Reader::new(Role::Server, 0);
            let _ = self.share.set(self.answers.held_bytes());
        }
        if self.end.is_some() { Flow::Drain } else { Flow::Continue }
    }

    fn encode(&mut self, context: &mut Context<'_>, io: &mut Io) -> Flow {
        if self.share.poll_given_up(context).is_ready() {
            return self.give_up();
        }
        if let Some(problem) = self.peer.refusal() {
            let reason = problem.detail().into_owned();
            return self.cut(close::UNAUTHORIZED, &reason);
        }
        if let Some(ended) = self.peer.ended()
            && !self.subscriptions.is_stopped()
        {
            return self.end_session(ended);
        }
        self.answer(&mut io.socket);
        loop {
            // A room that is followed again begins behind the answer that ended it before.
            let may_catch_up = !self.answers.waits_for_outbox();
            self.subscriptions.poll(context, &mut io.socket, may_catch_up);
            if may_catch_up || !self.answer(&mut io.socket) {
                break;
            }
        }
        self.subscriptions.list_rooms(self.peer.listed());
        if self.answers.refusing.is_full() {
            self.gateway.metrics.flooding_sockets.inc();
            return self.cut(close::FLOODING, REFUSING);
        }
        if self.subscriptions.is_cut() {
            return self.cut(close::TOO_SLOW, "too slow: resume from your last seq");
        }
        Flow::Continue
    }

    fn unanswered(&self) -> usize {
        self.answers.pending.unanswered()
    }

    fn is_drained(&self, _socket: &Socket) -> bool {
        self.answers.pending.unanswered() == 0
    }

    /// Pings, or gives up.
    fn on_timer(&mut self, context: &mut Context<'_>, io: &mut Io) -> Flow {
        if self.peer.caller().is_none() {
            return self.cut(close::UNAUTHORIZED, "no token came in time");
        }
        if self.is_overdue() {
            return self.cut(close::TIMEOUT, OVERDUE);
        }
        let limits = &self.gateway.server;
        // Nothing is read before there are answers.
        let is_unread = self.unanswered() >= Self::UNANSWERED_MAX;
        let next = match &mut self.heartbeat {
            Heartbeat::Quiet => {
                let payload = self.answers.refusing.ping_payload();
                let payload = payload.as_ref().map_or(&[][..], |number| number);
                self.heartbeat = Heartbeat::ping(&mut io.socket, payload);
                // A connection that is pinged has often been idle for long: let it cost nothing.
                self.answers.release();
                limits.pong_timeout
            }
            Heartbeat::Answered => {
                self.heartbeat = Heartbeat::Quiet;
                io.socket.release();
                limits.ping_interval.saturating_sub(limits.pong_timeout)
            }
            Heartbeat::Pinged(ping) => {
                if !ping.may_wait(&io.socket) && !is_unread {
                    return self.cut(close::TIMEOUT, "no pong");
                }
                limits.pong_timeout
            }
        };
        io.timer.set(context, next);
        Flow::Continue
    }

    fn on_shutdown(&mut self, _io: &mut Io) {
        let after = self.gateway.reconnect_after_ms();
        let reason = || (close::GOING_AWAY, format!("shutting down; reconnect after {after} ms"));
        self.end.get_or_insert_with(reason);
    }

    fn on_close(&mut self, socket: &mut Socket) {
        if let Some((code, reason)) = &self.end {
            write::write_close(socket.out(), *code, reason);
        }
    }
}
