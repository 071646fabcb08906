//! The dialect of `/v1/ws`: JSON frames with a `type`, many rooms over one socket.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use hubbub_core::draft::{Loose, MessageDraft, Rules};
use hubbub_core::id::ID_RULE;
use hubbub_core::number::WHOLE_NUMBER_RULE;
use hubbub_core::text::repeated;
use hubbub_core::{ErrorCode, FieldError, Op, ReadMark, RoomId};
use hubbub_ws::write;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::all_rooms::AllRoomsRequest;
use super::answers::Responses;
use super::close;
use super::frames::{write_authenticated, write_error, write_ref, write_simple};
use super::peer::SocketPeer;
use super::permission::{self, FramePermission};
use super::protocol::{Dialect, Turn};
use super::request_queue::{Request, Subject};
use super::subscriptions::{Announce, Subscriptions};
use super::write_mark;
use crate::Gateway;
use crate::auth::Right;
use crate::auth::caller::{Caller, Requirement};
use crate::auth::request_token::refused;
use crate::follow::{Audience, FollowRequest, OnReset, Start};
use crate::http::query::require;
use crate::http::send_receipt;
use crate::json::{self, write_plain};
use crate::problem::{Problem, Sent};
use crate::submit::Ingest;
use crate::submit::mark_read;

/// Longest `ref` a client may ask to have repeated, as JSON.
const REF_BYTES_MAX: usize = 256;

pub(super) struct Api;

impl Dialect for Api {
    type Responses<'a> = ApiResponses<'a>;

    fn on_start(&self, subscriptions: &mut Subscriptions) {
        subscriptions.open();
    }

    fn on_text(&self, turn: &mut Turn<'_>, text: &str) {
        self.handle(turn, text);
    }

    fn responses<'a>(&'a self, gateway: &Gateway, peer: &'a SocketPeer, _: u64) -> ApiResponses<'a> {
        let user = peer.caller().and_then(Caller::as_str).unwrap_or_default();
        ApiResponses { epoch: gateway.store.epoch(), user }
    }
}

pub(super) struct ApiResponses<'a> {
    epoch: Arc<str>,
    user: &'a str,
}

impl Responses for ApiResponses<'_> {
    fn committed_in(&mut self, epoch: &Arc<str>) {
        self.epoch.clone_from(epoch);
    }

    fn success(&self, id: &str, request: Request<'_>, sent: Sent<'_>, out: &mut Vec<u8>) {
        let start = write::begin_text(out);
        out.extend_from_slice(b"{\"type\":\"ack\",");
        write_ref(request.extra, out);
        send_receipt(id, sent, &self.epoch, out);
        out.push(b'}');
        write::end_text(out, start);
    }

    fn marked(&self, room: &str, request: Request<'_>, mark: &ReadMark, out: &mut Vec<u8>) {
        // A frame without a ref gets no answer; if the mark moved, all sockets of the user are notified.
        if request.extra.is_empty() {
            return;
        }
        let start = write::begin_text(out);
        out.extend_from_slice(b"{\"type\":\"read\",");
        write_ref(request.extra, out);
        write_plain("\"roomId\":\"", room, out);
        write_plain(",\"userId\":\"", self.user, out);
        write_mark(mark, out);
        out.push(b'}');
        write::end_text(out, start);
    }

    fn failure(&self, request: Request<'_>, problem: &Problem, out: &mut Vec<u8>) {
        match request.subject {
            Subject::Message(id) => {
                let problem = Problem { message_id: Some(id.to_owned()), ..problem.clone() };
                write_error(request.extra, None, &problem, out);
            }
            Subject::Mark(_) => write_error(request.extra, None, problem, out),
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
    #[serde(borrow)]
    token: Option<Cow<'a, str>>,
}

impl Frame<'_> {
    fn is_all(&self) -> bool {
        matches!(&self.room, Some(Loose::Text(room)) if room == "*")
    }
}

impl Api {
    fn handle(&self, turn: &mut Turn<'_>, text: &str) {
        let frame: Frame<'_> = match json::object(text) {
            Ok(frame) => frame,
            Err(problem) => return refuse(turn, "", &problem),
        };
        let reference = frame.reference.map_or("", RawValue::get);
        if reference.len() > REF_BYTES_MAX {
            let rule = format!("must be at most {REF_BYTES_MAX} bytes of JSON");
            return refuse(turn, "", &Problem::invalid(vec![FieldError::new("ref", rule)]));
        }
        let known = frame.kind.as_deref().map(|kind| permission::of_frame(kind).ok_or(kind));
        let result = match known {
            Some(Ok(permission)) => self.handle_known(turn, (text, &frame, reference), permission),
            // What is no message has no order to keep.
            Some(Err(_)) if turn.exceeded.is_some() => refuse_exceeded(turn),
            Some(Err(other)) => Err(unknown_type(other)),
            None => Err(Problem::invalid(vec![FieldError::new("type", "is required")])),
        };
        // Whoever is not known yet has one attempt.
        if turn.peer.caller().is_none() {
            let refused = result.as_ref().err();
            let reason = refused.map_or_else(String::new, |problem| problem.detail().into_owned());
            let code = refused.map_or(close::UNAUTHORIZED, |problem| close::of_first_frame(problem.code));
            turn.end = Some((code, reason));
        }
        if let Err(problem) = result {
            refuse(turn, reference, &problem);
        }
    }

    fn handle_known(
        &self,
        turn: &mut Turn<'_>,
        (text, frame, reference): (&str, &Frame<'_>, &str),
        permission: FramePermission,
    ) -> Result<(), Problem> {
        if permission == FramePermission::Open {
            if turn.exceeded.is_some() {
                return refuse_exceeded(turn);
            }
            return authenticate(turn, frame, reference);
        }
        let caller =
            turn.peer.caller().ok_or_else(|| refused("the first frame must be auth, with a token"))?;
        let kind = frame.kind.as_deref().unwrap_or_default();
        // A message is checked with what else it says. A room that is none is refused by whoever reads the frame.
        if kind != "send"
            && !frame.is_all()
            && let Some(room) = frame.room.as_ref().and_then(Loose::as_id)
        {
            permission::check_room(permission, caller, room)?;
        }
        match kind {
            "send" => self.send(turn, text, reference),
            "read" => self.mark_read(turn, frame, reference),
            // What is no message has no order to keep.
            _ if turn.exceeded.is_some() => refuse_exceeded(turn),
            "subscribe" if frame.is_all() => self.subscribe_all(turn, frame, reference),
            "subscribe" => subscribe(turn, frame, reference),
            "unsubscribe" => unsubscribe(turn, frame, reference),
            "typing" => typing(turn, frame),
            "ping" => {
                turn.answer(|out| write_simple("pong", reference, None, out));
                Ok(())
            }
            other => Err(unknown_type(other)),
        }
    }

    fn send(&self, turn: &mut Turn<'_>, text: &str, reference: &str) -> Result<(), Problem> {
        let draft: MessageDraft<'_> = json::object(text)?;
        let Turn { gateway, answers, ops, now, exceeded, peer, .. } = turn;
        let caller = peer.caller().ok_or_else(no_caller)?;
        let ingest = Ingest { rules: Rules::Api, room: None, caller, key: None, now: *now };
        gateway.check(&draft, &ingest, |sent| {
            let request = Request { subject: Subject::Message(sent.id), extra: reference, received_at: *now };
            answers.stage(gateway, ops, &Op::Send(*sent), request, *exceeded);
        })
    }

    fn subscribe_all(&self, turn: &mut Turn<'_>, frame: &Frame<'_>, reference: &str) -> Result<(), Problem> {
        let mut faults = Vec::new();
        for (field, given) in [("after", &frame.after), ("last", &frame.last)] {
            let rule = "cannot be combined with roomId \"*\"; cursors takes one for each room";
            require(given.is_none().then_some(()), field, rule, &mut faults);
        }
        // They are kept for rooms that may come.
        let most = turn.gateway.limits.all_rooms;
        let cursors = frame.cursors.map_or_else(|| Some(HashMap::new()), cursors);
        let cursors = cursors.filter(|cursors| cursors.len() <= most);
        let rule =
            format!("must be an object of at most {most} room ids, each with a whole number from 0 on");
        let cursors = require(cursors, "cursors", rule, &mut faults);
        let epoch = epoch(frame, &mut faults);
        let on_reset = on_reset(frame, &mut faults);
        if turn.peer.caller().is_none_or(|caller| caller.user.is_none()) {
            faults.extend(Problem::no_user().faults);
        }
        let Some(cursors) = cursors.filter(|_| faults.is_empty()) else {
            return Err(Problem::invalid(faults));
        };
        turn.subscriptions.subscribe_all(AllRoomsRequest {
            reference: reference.into(),
            cursors,
            epoch,
            on_reset,
        })
    }

    /// A read mark goes to the log like a message, and is answered in its order.
    fn mark_read(&self, turn: &mut Turn<'_>, frame: &Frame<'_>, reference: &str) -> Result<(), Problem> {
        let mut faults = Vec::new();
        let room = room(frame, &mut faults);
        let caller = turn.peer.caller().ok_or_else(no_caller)?;
        let change = mark_read(room.as_ref(), caller, frame.seq.as_ref(), &mut faults);
        let (Some(room), Some(change)) = (&room, change) else { return Err(Problem::invalid(faults)) };
        let request =
            Request { subject: Subject::Mark(room.as_str()), extra: reference, received_at: turn.now };
        let op = Op::Change(change);
        turn.answers.stage(turn.gateway, turn.ops, &op, request, turn.exceeded);
        Ok(())
    }
}

fn no_caller() -> Problem {
    refused("a token is required")
}

/// Refuses a frame that is more than its sender may send.
fn refuse_exceeded(turn: &Turn<'_>) -> Result<(), Problem> {
    turn.exceeded.map_or(Ok(()), |exceeded| Err(exceeded.into()))
}

fn unknown_type(kind: &str) -> Problem {
    let known: Vec<&str> = permission::FRAMES.iter().map(|(name, _)| *name).collect();
    let (kind, known) = (repeated(kind), known.join(", "));
    Problem::new(ErrorCode::UnknownType, format!("type '{kind}' is not one of {known}"))
}

/// Takes a token: the first one, or one that replaces the last. Subscriptions that it does not allow end.
fn authenticate(turn: &mut Turn<'_>, frame: &Frame<'_>, reference: &str) -> Result<(), Problem> {
    let token = frame.token.as_deref();
    let token = token.ok_or_else(|| Problem::invalid(vec![FieldError::new("token", "is required")]))?;
    let was_known = turn.peer.caller().is_some();
    if let Err(problem) = turn.peer.authenticate(token) {
        if problem.code == ErrorCode::Forbidden && was_known {
            turn.end = Some((close::FORBIDDEN, problem.detail().into_owned()));
        }
        return Err(problem);
    }
    let Some(caller) = turn.peer.caller().cloned() else { return Err(no_caller()) };
    let lost = turn.subscriptions.set_caller(&caller);
    if !was_known {
        turn.subscriptions.open();
    }
    let mut frames = Vec::new();
    write_authenticated(reference, &caller, &mut frames);
    for room in lost {
        if let Err(problem) = caller.may(Requirement::Room(Right::Read, room.as_str())) {
            write_error("", Some(&room), &problem, &mut frames);
        }
    }
    // Nothing of the rooms follows the errors.
    let end = turn.subscriptions.outbox_end();
    turn.answers.push_behind_outbox(turn.gateway, turn.ops, frames, end);
    Ok(())
}

fn refuse(turn: &mut Turn<'_>, reference: &str, problem: &Problem) {
    turn.gateway.metrics.reject(problem.code, 1);
    turn.answer(|out| write_error(reference, None, problem, out));
}

fn subscribe(turn: &mut Turn<'_>, frame: &Frame<'_>, reference: &str) -> Result<(), Problem> {
    let mut faults = Vec::new();
    let room = room(frame, &mut faults);
    let after = number("after", frame.after.as_ref(), &mut faults);
    let last = number("last", frame.last.as_ref(), &mut faults);
    let epoch = epoch(frame, &mut faults);
    let on_reset = on_reset(frame, &mut faults);
    if after.is_some() && last.is_some() {
        faults.push(FieldError::new("last", "cannot be combined with after"));
    }
    let page_max = turn.gateway.limits.page_messages;
    let start = match (after, last.map(usize::try_from)) {
        (Some(after), _) => Start::After(after),
        (None, None | Some(Ok(0))) => Start::Live,
        (None, Some(Ok(last))) if last <= page_max => Start::Last(last),
        (None, Some(_)) => {
            faults.push(FieldError::new("last", format!("must be at most {page_max}")));
            Start::Live
        }
    };
    let Some(room) = room.filter(|_| faults.is_empty()) else { return Err(Problem::invalid(faults)) };
    let wanted = FollowRequest { start, epoch, on_reset, audience: Audience::Readers };
    turn.subscriptions.subscribe(room, wanted, Announce::With(reference.into()))
}

fn typing(turn: &mut Turn<'_>, frame: &Frame<'_>) -> Result<(), Problem> {
    let mut faults = Vec::new();
    let Some(room) = room(frame, &mut faults) else { return Err(Problem::invalid(faults)) };
    turn.subscriptions.typing(&room)
}

fn unsubscribe(turn: &mut Turn<'_>, frame: &Frame<'_>, reference: &str) -> Result<(), Problem> {
    let mut faults = Vec::new();
    let (name, was_subscribed) = if frame.is_all() {
        ("*".to_owned(), turn.subscriptions.unsubscribe_all())
    } else {
        let Some(room) = room(frame, &mut faults) else { return Err(Problem::invalid(faults)) };
        (room.to_string(), turn.subscriptions.unsubscribe(&room))
    };
    if !was_subscribed {
        let fault = FieldError::new("roomId", "is not subscribed on this socket");
        return Err(Problem::invalid(vec![fault]));
    }
    // Nothing of the room may follow the answer, and nothing of the others may change its order for that.
    let mut frame = Vec::new();
    write_simple("unsubscribed", reference, Some(&name), &mut frame);
    let end = turn.subscriptions.outbox_end();
    turn.answers.push_behind_outbox(turn.gateway, turn.ops, frame, end);
    Ok(())
}

fn epoch(frame: &Frame<'_>, faults: &mut Vec<FieldError>) -> Option<String> {
    let epoch = match frame.epoch.as_ref()? {
        // It is kept with the subscription. One that is longer than any is none of this store, as its beginning is.
        Loose::Text(epoch) => Some(repeated(epoch).into_owned()),
        _ => None,
    };
    require(epoch, "epoch", "must be a string", faults)
}

fn on_reset(frame: &Frame<'_>, faults: &mut Vec<FieldError>) -> OnReset {
    let Some(given) = &frame.on_reset else { return OnReset::Replay };
    let on_reset = match given {
        Loose::Text(text) => OnReset::parse(text),
        _ => None,
    };
    require(on_reset, "onReset", OnReset::RULE, faults).unwrap_or(OnReset::Replay)
}

/// Rooms and where to begin in them; `None` when it is something else.
fn cursors(value: &RawValue) -> Option<HashMap<RoomId, u64>> {
    let cursors: HashMap<Cow<'_, str>, u64> = json::object(value.get()).ok()?;
    cursors.into_iter().map(|(room, seq)| Some((RoomId::new(&room).ok()?, seq))).collect()
}

fn room(frame: &Frame<'_>, faults: &mut Vec<FieldError>) -> Option<RoomId> {
    let room = match &frame.room {
        None => Err("is required"),
        Some(value) => value.as_id().and_then(|id| RoomId::new(id).ok()).ok_or(ID_RULE),
    };
    room.map_err(|rule| faults.push(FieldError::new("roomId", rule))).ok()
}

fn number(field: &'static str, value: Option<&Loose<'_>>, faults: &mut Vec<FieldError>) -> Option<u64> {
    require(value?.as_u64(), field, WHOLE_NUMBER_RULE, faults)
}
