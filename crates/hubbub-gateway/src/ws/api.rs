//! The dialect of `/v1/ws`: JSON frames with a `type`, many rooms over one socket.

use std::borrow::Cow;

use hubbub_core::draft::{Loose, MessageDraft, Rules};
use hubbub_core::id::ID_RULE;
use hubbub_core::message::write_json_string;
use hubbub_core::{ErrorCode, Fault, OpBatch, Receipt, RoomId, Timestamp};
use hubbub_ws::write;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::labels::Label;
use super::sends::{Sends, Wording};
use super::subscriptions::{Announce, Subscriptions};
use crate::Gateway;
use crate::auth::Caller;
use crate::follow::{OnReset, Start, Wanted};
use crate::http::send_receipt;
use crate::intake::Intake;
use crate::json;
use crate::problem::Problem;

/// Longest `ref` a client may ask to have repeated, as JSON.
const REF_BYTES_MAX: usize = 256;

/// How answers of `/v1/ws` are worded.
pub(super) struct ApiWording<'a> {
    pub(super) epoch: &'a str,
}

impl Wording for ApiWording<'_> {
    fn success(&self, label: Label<'_>, receipt: &Receipt, is_duplicate: bool, out: &mut Vec<u8>) {
        let start = write::begin_text(out);
        out.extend_from_slice(b"{\"type\":\"ack\",");
        write_ref(label.extra, out);
        send_receipt(label.message_id, receipt, is_duplicate, self.epoch, out);
        out.push(b'}');
        write::end_text(out, start);
    }

    fn failure(&self, label: Label<'_>, problem: &Problem, out: &mut Vec<u8>) {
        let problem = Problem { message_id: Some(label.message_id.to_owned()), ..problem.clone() };
        write_error(label.extra, &problem, out);
    }
}

fn write_ref(reference: &str, out: &mut Vec<u8>) {
    if !reference.is_empty() {
        out.extend_from_slice(b"\"ref\":");
        out.extend_from_slice(reference.as_bytes());
        out.push(b',');
    }
}

/// Appends an error frame.
pub(super) fn write_error(reference: &str, problem: &Problem, out: &mut Vec<u8>) {
    let start = write::begin_text(out);
    out.extend_from_slice(b"{\"type\":\"error\",");
    write_ref(reference, out);
    problem.write_members(out);
    out.push(b'}');
    write::end_text(out, start);
}

/// Appends a frame that has a `type`, perhaps a `ref`, and perhaps a room.
fn write_simple(kind: &str, reference: &str, room: Option<&str>, out: &mut Vec<u8>) {
    let start = write::begin_text(out);
    out.push(b'{');
    write_ref(reference, out);
    out.extend_from_slice(b"\"type\":");
    write_json_string(kind, out);
    if let Some(room) = room {
        out.extend_from_slice(b",\"roomId\":");
        write_json_string(room, out);
    }
    out.push(b'}');
    write::end_text(out, start);
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
        Some("subscribe") => parts.subscribe(&frame, reference),
        Some("unsubscribe") => parts.unsubscribe(&frame, reference),
        Some("typing") => parts.typing(&frame),
        Some("ping") => {
            parts.answer(|out| write_simple("pong", reference, None, out));
            Ok(())
        }
        Some(other) => Err(Problem::new(
            ErrorCode::UnknownType,
            format!("type '{other}' is not one of send, subscribe, unsubscribe, typing, ping"),
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
            let label = Label { message_id: sent.id, extra: reference, received_at: now };
            self.sends.stage(&self.gateway.log, &self.gateway.metrics, self.ops, sent, label);
        })
    }

    fn subscribe(&mut self, frame: &Frame<'_>, reference: &str) -> Result<(), Problem> {
        let mut faults = Vec::new();
        let room = room(frame, &mut faults);
        let after = number("after", frame.after.as_ref(), &mut faults);
        let last = number("last", frame.last.as_ref(), &mut faults);
        let epoch = match &frame.epoch {
            None => None,
            Some(Loose::Text(epoch)) => Some(epoch.to_string()),
            Some(_) => {
                faults.push(Fault::new("epoch", "must be a string"));
                None
            }
        };
        let on_reset = match &frame.on_reset {
            None => OnReset::Replay,
            Some(Loose::Text(text)) if text == "replay" => OnReset::Replay,
            Some(Loose::Text(text)) if text == "live" => OnReset::Live,
            Some(_) => {
                faults.push(Fault::new("onReset", "must be replay or live"));
                OnReset::Replay
            }
        };
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
        let wanted = Wanted { start, epoch, on_reset };
        self.subscriptions.subscribe(room, wanted, Announce::With(reference.to_owned()))
    }

    fn typing(&mut self, frame: &Frame<'_>) -> Result<(), Problem> {
        let mut faults = Vec::new();
        let Some(room) = room(frame, &mut faults) else { return Err(Problem::invalid(faults)) };
        self.subscriptions.typing(&room)
    }

    fn unsubscribe(&mut self, frame: &Frame<'_>, reference: &str) -> Result<(), Problem> {
        let mut faults = Vec::new();
        let Some(room) = room(frame, &mut faults) else { return Err(Problem::invalid(faults)) };
        if !self.subscriptions.unsubscribe(&room) {
            let fault = Fault::new("roomId", "is not subscribed on this socket");
            return Err(Problem::invalid(vec![fault]));
        }
        // Nothing of the room may follow the answer.
        for parcel in self.subscriptions.take_outbox() {
            self.answer(|out| out.extend_from_slice(&parcel.frames()));
        }
        self.answer(|out| write_simple("unsubscribed", reference, Some(room.as_str()), out));
        Ok(())
    }
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
