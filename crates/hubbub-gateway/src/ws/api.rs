//! The dialect of `/v1/ws`: JSON frames with a `type`, many rooms over one socket.

use std::borrow::Cow;
use std::collections::HashMap;

use hubbub_core::draft::{Loose, MessageDraft, Rules};
use hubbub_core::id::ID_RULE;
use hubbub_core::{Change, ErrorCode, Fault, Op, OpBatch, ReadMark, RoomId, Timestamp, What};
use hubbub_ws::write;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::all::WantedRooms;
use super::answers::{Sends, Wording};
use super::frames::{write_error, write_ref, write_simple};
use super::request_queue::{About, Label};
use super::subscriptions::{Announce, Subscriptions};
use super::write_mark;
use crate::Gateway;
use crate::auth::Caller;
use crate::follow::{Audience, OnReset, Start, Wanted};
use crate::http::send_receipt;
use crate::intake::Intake;
use crate::json;
use crate::problem::{Problem, Sent};

/// Longest `ref` a client may ask to have repeated, as JSON.
const REF_BYTES_MAX: usize = 256;

/// How answers of `/v1/ws` are worded.
pub(super) struct ApiWording<'a> {
    pub(super) epoch: &'a str,
    pub(super) caller: &'a Caller,
}

impl Wording for ApiWording<'_> {
    fn success(&self, id: &str, label: Label<'_>, sent: Sent<'_>, out: &mut Vec<u8>) {
        let start = write::begin_text(out);
        out.extend_from_slice(b"{\"type\":\"ack\",");
        write_ref(label.extra, out);
        send_receipt(id, sent, self.epoch, out);
        out.push(b'}');
        write::end_text(out, start);
    }

    fn marked(&self, room: &str, label: Label<'_>, mark: &ReadMark, out: &mut Vec<u8>) {
        // Whoever gave no ref asked for no answer; if the mark moved, all sockets of the user are told.
        if label.extra.is_empty() {
            return;
        }
        let start = write::begin_text(out);
        out.extend_from_slice(b"{\"type\":\"read\",");
        write_ref(label.extra, out);
        // Ids are ASCII without anything to escape.
        for part in
            ["\"roomId\":\"", room, "\",\"userId\":\"", self.caller.as_str().unwrap_or_default(), "\""]
        {
            out.extend_from_slice(part.as_bytes());
        }
        write_mark(mark, out);
        out.push(b'}');
        write::end_text(out, start);
    }

    fn failure(&self, label: Label<'_>, problem: &Problem, out: &mut Vec<u8>) {
        match label.about {
            About::Message(id) => {
                let problem = Problem { message_id: Some(id.to_owned()), ..problem.clone() };
                write_error(label.extra, &problem, out);
            }
            About::Mark(_) => write_error(label.extra, problem, out),
        }
    }

    fn finish(&self, _: usize, _: &mut Vec<u8>) {}
}

/// What every frame may have; what a message has beyond it is read in a second pass.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Frame<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "ref")]
    reference: Option<&'a RawValue>,
    #[serde(borrow, rename = "roomId")]
    room: Option<Loose<'a>>,
    #[serde(borrow)]
    after: Option<Loose<'a>>,
    #[serde(borrow)]
    last: Option<Loose<'a>>,
    #[serde(borrow)]
    epoch: Option<Loose<'a>>,
    #[serde(borrow, rename = "onReset")]
    on_reset: Option<Loose<'a>>,
    #[serde(borrow)]
    cursors: Option<&'a RawValue>,
    #[serde(borrow)]
    seq: Option<Loose<'a>>,
}

impl Frame<'_> {
    /// Whether it is about all rooms of the user.
    fn is_all(&self) -> bool {
        matches!(&self.room, Some(Loose::Text(room)) if room == "*")
    }
}

/// The parts of a connection that a frame can touch.
pub(super) struct Parts<'a> {
    pub(super) gateway: &'a Gateway,
    pub(super) caller: &'a Caller,
    pub(super) sends: &'a mut Sends,
    pub(super) subscriptions: &'a mut Subscriptions,
    pub(super) ops: &'a mut OpBatch,
}

/// Takes one text frame.
pub(super) fn on_text(parts: &mut Parts<'_>, text: &str, now: Timestamp) {
    let frame: Frame<'_> = match json::object(text) {
        Ok(frame) => frame,
        Err(problem) => return parts.refuse("", problem),
    };
    let reference = frame.reference.map_or("", RawValue::get);
    if reference.len() > REF_BYTES_MAX {
        let rule = format!("must be at most {REF_BYTES_MAX} bytes of JSON");
        return parts.refuse("", Problem::invalid(vec![Fault::new("ref", rule)]));
    }
    let result = match frame.kind.as_deref() {
        Some("send") => parts.send(text, reference, now),
        Some("subscribe") if frame.is_all() => parts.subscribe_all(&frame, reference),
        Some("subscribe") => parts.subscribe(&frame, reference),
        Some("unsubscribe") => parts.unsubscribe(&frame, reference),
        Some("read") => parts.read(&frame, reference, now),
        Some("typing") => parts.typing(&frame),
        Some("ping") => {
            parts.answer(|out| write_simple("pong", reference, None, out));
            Ok(())
        }
        Some(other) => Err(Problem::new(
            ErrorCode::UnknownType,
            format!("type '{other}' is not one of send, subscribe, unsubscribe, read, typing, ping"),
        )),
        None => Err(Problem::invalid(vec![Fault::new("type", "is required")])),
    };
    if let Err(problem) = result {
        parts.refuse(reference, problem);
    }
}

impl Parts<'_> {
    fn answer(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let mut frame = Vec::new();
        write(&mut frame);
        self.sends.submit(&self.gateway.log, &self.gateway.metrics, self.ops);
        self.sends.push_frame(frame);
    }

    fn refuse(&mut self, reference: &str, problem: Problem) {
        self.gateway.metrics.reject(problem.code, 1);
        self.answer(|out| write_error(reference, &problem, out));
    }

    fn send(&mut self, text: &str, reference: &str, now: Timestamp) -> Result<(), Problem> {
        let draft: MessageDraft<'_> = json::object(text)?;
        let intake = Intake { rules: Rules::Api, room: None, caller: self.caller, key: None, now };
        self.gateway.check(&draft, &intake, |sent| {
            let label = Label { about: About::Message(sent.id), extra: reference, received_at: now };
            self.sends.stage(&self.gateway.log, &self.gateway.metrics, self.ops, &Op::Send(*sent), label);
        })
    }

    fn subscribe(&mut self, frame: &Frame<'_>, reference: &str) -> Result<(), Problem> {
        let mut faults = Vec::new();
        let room = room(frame, &mut faults);
        let after = number("after", frame.after.as_ref(), &mut faults);
        let last = number("last", frame.last.as_ref(), &mut faults);
        let epoch = epoch(frame, &mut faults);
        let on_reset = on_reset(frame, &mut faults);
        if after.is_some() && last.is_some() {
            faults.push(Fault::new("last", "cannot be combined with after"));
        }
        let page_max = self.gateway.limits.page_messages;
        let start = match (after, last.map(usize::try_from)) {
            (Some(after), _) => Start::After(after),
            (None, None | Some(Ok(0))) => Start::Live,
            (None, Some(Ok(last))) if last <= page_max => Start::Last(last),
            (None, Some(_)) => {
                faults.push(Fault::new("last", format!("must be at most {page_max}")));
                Start::Live
            }
        };
        let Some(room) = room.filter(|_| faults.is_empty()) else { return Err(Problem::invalid(faults)) };
        let wanted = Wanted { start, epoch, on_reset, audience: Audience::Readers };
        self.subscriptions.subscribe(room, wanted, Announce::With(reference.into()))
    }

    fn subscribe_all(&mut self, frame: &Frame<'_>, reference: &str) -> Result<(), Problem> {
        let mut faults = Vec::new();
        for (field, given) in [("after", &frame.after), ("last", &frame.last)] {
            if given.is_some() {
                faults.push(Fault::new(
                    field,
                    "cannot be combined with roomId \"*\"; cursors takes one for each room",
                ));
            }
        }
        let cursors = frame.cursors.map_or_else(|| Some(HashMap::new()), cursors);
        if cursors.is_none() {
            faults.push(Fault::new(
                "cursors",
                "must be an object of room ids, each with a whole number from 0 on",
            ));
        }
        let epoch = epoch(frame, &mut faults);
        let on_reset = on_reset(frame, &mut faults);
        if self.caller.user.is_none() {
            faults.extend(Problem::no_user().faults);
        }
        let Some(cursors) = cursors.filter(|_| faults.is_empty()) else {
            return Err(Problem::invalid(faults));
        };
        self.subscriptions.subscribe_all(WantedRooms {
            reference: reference.into(),
            cursors,
            epoch,
            on_reset,
        })
    }

    /// A read mark goes to the log like a message, and is answered in its order.
    fn read(&mut self, frame: &Frame<'_>, reference: &str, now: Timestamp) -> Result<(), Problem> {
        let mut faults = Vec::new();
        let room = room(frame, &mut faults);
        if frame.seq.is_none() {
            faults.push(Fault::new("seq", "is required"));
        }
        let seq = number("seq", frame.seq.as_ref(), &mut faults);
        if self.caller.user.is_none() {
            faults.extend(Problem::no_user().faults);
        }
        let (Some(room), Some(seq), Some(user)) = (room, seq, self.caller.as_str()) else {
            return Err(Problem::invalid(faults));
        };
        let what = What::MarkRead { room: room.as_str(), user, seq };
        let label = Label { about: About::Mark(room.as_str()), extra: reference, received_at: now };
        let op = Op::Change(Change { by: Some(user), what });
        self.sends.stage(&self.gateway.log, &self.gateway.metrics, self.ops, &op, label);
        Ok(())
    }

    fn typing(&mut self, frame: &Frame<'_>) -> Result<(), Problem> {
        let mut faults = Vec::new();
        let Some(room) = room(frame, &mut faults) else { return Err(Problem::invalid(faults)) };
        self.subscriptions.typing(&room)
    }

    fn unsubscribe(&mut self, frame: &Frame<'_>, reference: &str) -> Result<(), Problem> {
        let mut faults = Vec::new();
        let (name, was_subscribed) = if frame.is_all() {
            ("*".to_owned(), self.subscriptions.unsubscribe_all())
        } else {
            let Some(room) = room(frame, &mut faults) else { return Err(Problem::invalid(faults)) };
            (room.to_string(), self.subscriptions.unsubscribe(&room))
        };
        if !was_subscribed {
            let fault = Fault::new("roomId", "is not subscribed on this socket");
            return Err(Problem::invalid(vec![fault]));
        }
        // Nothing of the room may follow the answer, and nothing of the others may change its order for that.
        let mut frame = Vec::new();
        write_simple("unsubscribed", reference, Some(&name), &mut frame);
        self.sends.submit(&self.gateway.log, &self.gateway.metrics, self.ops);
        self.sends.push_behind_outbox(frame, self.subscriptions.outbox_end());
        Ok(())
    }
}

fn epoch(frame: &Frame<'_>, faults: &mut Vec<Fault>) -> Option<String> {
    match &frame.epoch {
        None => None,
        Some(Loose::Text(epoch)) => Some(epoch.to_string()),
        Some(_) => {
            faults.push(Fault::new("epoch", "must be a string"));
            None
        }
    }
}

fn on_reset(frame: &Frame<'_>, faults: &mut Vec<Fault>) -> OnReset {
    match &frame.on_reset {
        None => OnReset::Replay,
        Some(Loose::Text(text)) if text == "replay" => OnReset::Replay,
        Some(Loose::Text(text)) if text == "live" => OnReset::Live,
        Some(_) => {
            faults.push(Fault::new("onReset", "must be replay or live"));
            OnReset::Replay
        }
    }
}

/// Rooms and where to begin in them; `None` when it is something else.
fn cursors(value: &RawValue) -> Option<HashMap<RoomId, u64>> {
    let cursors: HashMap<Cow<'_, str>, u64> = json::object(value.get()).ok()?;
    cursors.into_iter().map(|(room, seq)| Some((RoomId::new(&room).ok()?, seq))).collect()
}

fn room(frame: &Frame<'_>, faults: &mut Vec<Fault>) -> Option<RoomId> {
    let room = match &frame.room {
        None => Err("is required"),
        Some(value) => value.as_id().and_then(|id| RoomId::new(id).ok()).ok_or(ID_RULE),
    };
    room.map_err(|rule| faults.push(Fault::new("roomId", rule))).ok()
}

fn number(field: &'static str, value: Option<&Loose<'_>>, faults: &mut Vec<Fault>) -> Option<u64> {
    let number = match value? {
        Loose::Int(number, _) => u64::try_from(*number).ok(),
        _ => None,
    };
    if number.is_none() {
        faults.push(Fault::new(field, "must be a whole number from 0 on"));
    }
    number
}
