//! The dialect of `/chat/{room}`: each text frame is a message, each is answered in order once durable.

use hubbub_core::draft::{MessageDraft, Rules};
use hubbub_core::{Op, ReadMark, RoomId, Timestamp};
use hubbub_ws::write;

use super::align::align;
use super::answers::Responses;
use super::peer::SocketPeer;
use super::protocol::{Dialect, Turn};
use super::request_queue::{Request, Subject};
use super::subscriptions::{Announce, Subscriptions};
use crate::Gateway;
use crate::auth::request_token::refused;
use crate::follow::{Audience, FollowRequest, OnReset, Start};
use crate::json::{self, write_flag, write_items, write_number, write_plain, write_text, write_time};
use crate::problem::{Problem, Sent};
use crate::submit::Ingest;

pub(super) struct Chat {
    pub(super) room: RoomId,
    pub(super) echo: bool,
    pub(super) live: bool,
    pub(super) pad: bool,
}

impl Dialect for Chat {
    type Responses<'a> = ChatResponses;

    fn on_start(&self, subscriptions: &mut Subscriptions) {
        if self.live {
            let (start, on_reset, audience) = (Start::Live, OnReset::Live, Audience::Readers);
            let wanted = FollowRequest { start, epoch: None, on_reset, audience };
            // The first subscription of a socket is within every limit.
            let _ = subscriptions.subscribe(self.room.clone(), wanted, Announce::Nothing);
        }
    }

    fn on_text(&self, turn: &mut Turn<'_>, text: &str) {
        if let Err(problem) = self.send(turn, text) {
            turn.gateway.metrics.reject(problem.code, 1);
            let message_id = problem.message_id.as_deref().unwrap_or_default();
            turn.answer(|out| write_error(message_id, &problem, out));
        }
    }

    fn responses(&self, gateway: &Gateway, _: &SocketPeer, out_begins_at: u64) -> ChatResponses {
        ChatResponses { now: gateway.now(), aligned_from: self.pad.then_some(out_begins_at) }
    }
}

impl Chat {
    fn send(&self, turn: &mut Turn<'_>, text: &str) -> Result<(), Problem> {
        let draft: MessageDraft<'_> = json::object(text)?;
        let Turn { gateway, answers, ops, now, exceeded, peer, .. } = turn;
        let caller = peer.caller().ok_or_else(|| refused("a token is required"))?;
        let room = Some(self.room.as_str());
        let ingest = Ingest { rules: Rules::Chat, room, caller, key: None, now: *now };
        gateway.check(&draft, &ingest, |sent| {
            let extra = if self.echo { text } else { "" };
            let request = Request { subject: Subject::Message(sent.id), extra, received_at: *now };
            answers.stage(gateway, ops, &Op::Send(*sent), request, *exceeded);
        })
    }
}

pub(super) struct ChatResponses {
    now: Timestamp,
    /// The position in the connection's stream at which the buffer of the answers begins; `None` = they are not aligned.
    aligned_from: Option<u64>,
}

impl Responses for ChatResponses {
    fn success(&self, id: &str, request: Request<'_>, sent: Sent<'_>, out: &mut Vec<u8>) {
        let start = write::begin_text(out);
        write_plain("{\"status\":\"success\",\"messageId\":\"", id, out);
        if let Sent::Stored(receipt, _) = sent {
            write_number(",\"seq\":", receipt.seq, out);
        }
        write_time(",\"serverReceiveTime\":\"", request.received_at, out);
        write_time(",\"serverSendTime\":\"", self.now, out);
        if matches!(sent, Sent::Stored(_, true)) {
            out.extend_from_slice(b",\"duplicate\":true");
        }
        if !request.extra.is_empty() {
            out.extend_from_slice(b",\"originalMessage\":");
            out.extend_from_slice(request.extra.as_bytes());
        }
        out.push(b'}');
        write::end_text(out, start);
    }

    /// There are no read marks in this dialect.
    fn marked(&self, _: &str, _: Request<'_>, _: &ReadMark, _: &mut Vec<u8>) {}

    fn failure(&self, request: Request<'_>, problem: &Problem, out: &mut Vec<u8>) {
        if let Subject::Message(id) = request.subject {
            write_error(id, problem, out);
        }
    }

    fn finish(&self, start: usize, out: &mut Vec<u8>) {
        if let Some(out_begins_at) = self.aligned_from
            && start < out.len()
        {
            align(out_begins_at, start, out);
        }
    }
}

fn write_error(message_id: &str, problem: &Problem, out: &mut Vec<u8>) {
    let start = write::begin_text(out);
    out.extend_from_slice(b"{\"status\":\"error\",\"errors\":[");
    if problem.faults.is_empty() {
        write_text("", &problem.detail(), out);
    }
    write_items(&problem.faults, out, |fault, out| {
        write_text("", &format!("{} {}", fault.field, fault.rule), out);
    });
    write_plain("],\"code\":\"", problem.code.as_str(), out);
    write_flag(",\"retryable\":", problem.code.is_retryable(), out);
    if !message_id.is_empty() {
        write_text(",\"messageId\":", message_id, out);
    }
    out.push(b'}');
    write::end_text(out, start);
}
