//! Encodes the frames of `/v1/ws` that are used in several places or answer no operation.

use hubbub_core::RoomId;
use hubbub_ws::write;

use crate::auth::caller::Caller;
use crate::json::{write_number, write_plain, write_time};
use crate::problem::{Problem, Reset};

/// Appends the client's `ref`, if there is one, and a comma.
pub(super) fn write_ref(reference: &str, out: &mut Vec<u8>) {
    if !reference.is_empty() {
        out.extend_from_slice(b"\"ref\":");
        out.extend_from_slice(reference.as_bytes());
        out.push(b',');
    }
}

/// Appends an error; one that ended a subscription, or the request for one, names the room.
pub(super) fn write_error(reference: &str, room: Option<&RoomId>, problem: &Problem, out: &mut Vec<u8>) {
    let start = write::begin_text(out);
    out.extend_from_slice(b"{\"type\":\"error\",");
    write_ref(reference, out);
    if let Some(room) = room {
        write_plain("\"roomId\":\"", room.as_str(), out);
        out.push(b',');
    }
    problem.write_members(out);
    out.push(b'}');
    write::end_text(out, start);
}

/// Appends the answer to a token.
pub(super) fn write_authenticated(reference: &str, caller: &Caller, out: &mut Vec<u8>) {
    let start = write::begin_text(out);
    out.extend_from_slice(b"{\"type\":\"authenticated\"");
    if !reference.is_empty() {
        out.extend_from_slice(b",\"ref\":");
        out.extend_from_slice(reference.as_bytes());
    }
    if let Some(user) = caller.as_str() {
        write_plain(",\"userId\":\"", user, out);
    }
    if let Some(expires_at) = caller.access().expires_at {
        write_time(",\"expiresAt\":\"", expires_at, out);
    }
    out.push(b'}');
    write::end_text(out, start);
}

/// Appends a frame that has a `type`, perhaps a `ref`, and perhaps a room.
pub(super) fn write_simple(kind: &str, reference: &str, room: Option<&str>, out: &mut Vec<u8>) {
    let start = write::begin_text(out);
    out.push(b'{');
    write_ref(reference, out);
    write_plain("\"type\":\"", kind, out);
    if let Some(room) = room {
        write_plain(",\"roomId\":\"", room, out);
    }
    out.push(b'}');
    write::end_text(out, start);
}

pub(super) fn write_room_frame(
    kind: &str,
    reference: &str,
    room: &RoomId,
    (at, read_seq): (&Reset, Option<u64>),
    out: &mut Vec<u8>,
) {
    let start = write::begin_text(out);
    begin_frame(kind, reference, room.as_str(), out);
    out.push(b',');
    at.write_members(out);
    if let Some(read_seq) = read_seq {
        write_number(",\"readSeq\":", read_seq, out);
    }
    out.push(b'}');
    write::end_text(out, start);
}

pub(super) fn write_all_live(reference: &str, rooms: usize, out: &mut Vec<u8>) {
    let start = write::begin_text(out);
    begin_frame("subscribed", reference, "*", out);
    write_number(",\"rooms\":", rooms as u64, out);
    out.push(b'}');
    write::end_text(out, start);
}

fn begin_frame(kind: &str, reference: &str, room: &str, out: &mut Vec<u8>) {
    write_plain("{\"type\":\"", kind, out);
    if !reference.is_empty() {
        out.extend_from_slice(b",\"ref\":");
        out.extend_from_slice(reference.as_bytes());
    }
    write_plain(",\"roomId\":\"", room, out);
}
