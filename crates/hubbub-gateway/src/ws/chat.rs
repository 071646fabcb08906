//! The dialect of `/chat/{room}`: each text frame is a message, each is answered in order once durable.

use hubbub_core::draft::{MessageDraft, Rules};
use hubbub_core::message::{write_json_string, write_u64};
use hubbub_core::{Op, OpBatch, ReadMark, RoomId, Timestamp};
use hubbub_ws::write;

use super::align::align;
use super::answers::{Sends, Wording};
use super::request_queue::{About, Label};
use crate::Gateway;
use crate::auth::Caller;
use crate::intake::Intake;
use crate::json;
use crate::problem::{Problem, Sent};

/// How answers of `/chat` are worded.
pub(super) struct ChatWording {
    pub(super) now: Timestamp,
    /// Where in the connection's stream the buffer of the answers begins; `None` = they are not aligned.
    pub(super) aligned_from: Option<u64>,
}

impl Wording for ChatWording {
    fn success(&self, id: &str, label: Label<'_>, sent: Sent<'_>, out: &mut Vec<u8>) {
        let start = write::begin_text(out);
        out.extend_from_slice(b"{\"status\":\"success\",\"messageId\":\"");
        out.extend_from_slice(id.as_bytes());
        out.push(b'"');
        if let Sent::Stored(receipt, _) = sent {
            out.extend_from_slice(b",\"seq\":");
            write_u64(receipt.seq, out);
        }
        out.extend_from_slice(b",\"serverReceiveTime\":\"");
        label.received_at.write(out);
        out.extend_from_slice(b"\",\"serverSendTime\":\"");
        self.now.write(out);
        out.push(b'"');
        if matches!(sent, Sent::Stored(_, true)) {
            out.extend_from_slice(b",\"duplicate\":true");
        }
        if !label.extra.is_empty() {
            out.extend_from_slice(b",\"originalMessage\":");
            out.extend_from_slice(label.extra.as_bytes());
        }
        out.push(b'}');
        write::end_text(out, start);
    }

    /// There are no read marks in this dialect.
    fn marked(&self, _: &str, _: Label<'_>, _: &ReadMark, _: &mut Vec<u8>) {}

    fn failure(&self, label: Label<'_>, problem: &Problem, out: &mut Vec<u8>) {
        if let About::Message(id) = label.about {
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
        write_json_string(&problem.detail(), out);
    }
    for (index, fault) in problem.faults.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_json_string(&format!("{} {}", fault.field, fault.rule), out);
    }
    out.extend_from_slice(b"],\"code\":\"");
    out.extend_from_slice(problem.code.as_str().as_bytes());
    out.extend_from_slice(if problem.code.is_retryable() {
        b"\",\"retryable\":true"
    } else {
        b"\",\"retryable\":false"
    });
    if !message_id.is_empty() {
        out.extend_from_slice(b",\"messageId\":");
        write_json_string(message_id, out);
    }
    out.push(b'}');
    write::end_text(out, start);
}

/// What one `/chat` socket is about.
pub(super) struct ChatRoom<'a> {
    pub(super) room: &'a RoomId,
    pub(super) caller: &'a Caller,
    pub(super) echo: bool,
}

/// Takes one text frame.
pub(super) fn on_text(
    gateway: &Gateway,
    chat: &ChatRoom<'_>,
    sends: &mut Sends,
    ops: &mut OpBatch,
    text: &str,
    now: Timestamp,
) {
    if let Err(problem) = take(gateway, chat, sends, ops, text, now) {
        gateway.metrics.reject(problem.code, 1);
        sends.submit(&gateway.log, &gateway.metrics, ops);
        let mut frame = Vec::new();
        write_error(problem.message_id.as_deref().unwrap_or_default(), &problem, &mut frame);
        sends.push_frame(frame);
    }
}

fn take(
    gateway: &Gateway,
    chat: &ChatRoom<'_>,
    sends: &mut Sends,
    ops: &mut OpBatch,
    text: &str,
    now: Timestamp,
) -> Result<(), Problem> {
    let draft: MessageDraft<'_> = json::object(text)?;
    let room = Some(chat.room.as_str());
    let intake = Intake { rules: Rules::Chat, room, caller: chat.caller, key: None, now };
    gateway.check(&draft, &intake, |sent| {
        let extra = if chat.echo { text } else { "" };
        let label = Label { about: About::Message(sent.id), extra, received_at: now };
        sends.stage(&gateway.log, &gateway.metrics, ops, &Op::Send(*sent), label);
    })
}
