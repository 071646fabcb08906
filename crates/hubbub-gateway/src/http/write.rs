//! JSON written by hand, for answers that are hot or long.

use hubbub_core::Timestamp;
use hubbub_core::message::{write_json_string, write_u64};
use hubbub_core::store::RoomInfo;

/// Appends the cursor of the next page and the end of the object.
pub(in crate::http) fn write_next(next: Option<&str>, out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"next\":");
    match next {
        Some(next) => write_json_string(next, out),
        None => out.extend_from_slice(b"null"),
    }
    out.push(b'}');
}

/// Appends the id and settings of a room, as its members see them.
pub(in crate::http) fn write_settings(room: &RoomInfo, out: &mut Vec<u8>) {
    // Ids are ASCII without anything to escape.
    out.extend_from_slice(b"\"roomId\":\"");
    out.extend_from_slice(room.room.as_str().as_bytes());
    out.extend_from_slice(b"\",\"title\":");
    match &room.title {
        Some(title) => write_json_string(title, out),
        None => out.extend_from_slice(b"null"),
    }
    out.extend_from_slice(b",\"membersOnly\":");
    out.extend_from_slice(if room.members_only { b"true" } else { b"false" });
}

/// Appends further members that are numbers.
pub(in crate::http) fn write_numbers(numbers: &[(&str, u64)], out: &mut Vec<u8>) {
    for (name, value) in numbers {
        out.extend_from_slice(b",\"");
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"\":");
        write_u64(*value, out);
    }
}

/// Appends a member whose value is a number's digits as a string; `name` as far as its quotation mark.
pub(in crate::http) fn write_id(name: &str, id: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    write_u64(id, out);
    out.push(b'"');
}

/// Appends a member whose value needs no escaping; `name` as far as its quotation mark.
pub(in crate::http) fn write_name(name: &str, value: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(value.as_bytes());
    out.push(b'"');
}

/// Appends a member whose value is a time or `null`; `name` as far as its colon.
pub(in crate::http) fn write_time(name: &str, time: Option<Timestamp>, out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    match time {
        Some(time) => {
            out.push(b'"');
            time.write(out);
            out.push(b'"');
        }
        None => out.extend_from_slice(b"null"),
    }
}
