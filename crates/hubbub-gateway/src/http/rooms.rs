//! `GET /v1/rooms`: all rooms, page by page.

use hubbub_core::RoomId;
use hubbub_core::message::{write_json_string, write_u64};
use hubbub_core::store::RoomInfo;
use hubbub_pipeline::Standing;
use hyper::StatusCode;

use super::endpoint::Call;
use super::page::{Page, PageQuery};
use super::query::refuse_faults;
use super::{Answer, json};
use crate::Gateway;
use crate::auth::Caller;
use crate::problem::Problem;

pub(super) async fn list(call: Call) -> Answer {
    let gateway = call.gateway();
    let query = call.query();
    let caller = call.caller_in(&query)?;
    let mut faults = Vec::new();
    let PageQuery { after, limit } = PageQuery::of(&query, RoomId::new, &mut faults);
    refuse_faults(faults)?;
    let epoch = gateway.store.epoch();
    let rooms = shown(gateway, &caller, after, limit + 1).await?;
    let page = Page::of(rooms, limit, |last| last.room.as_str().to_owned());
    let mut out = b"{\"rooms\":[".to_vec();
    for (index, room) in page.items.iter().enumerate() {
        out.extend_from_slice(if index == 0 { b"{" } else { b",{" });
        write_room(room, &mut out);
        out.push(b'}');
    }
    out.extend_from_slice(b"],\"epoch\":");
    write_json_string(&epoch, &mut out);
    write_next(page.next.as_deref(), &mut out);
    Ok(json(StatusCode::OK, out))
}

/// Up to `limit` rooms behind `after` that the caller may know of: rooms for members only are their members' business.
async fn shown(
    gateway: &Gateway,
    caller: &Caller,
    mut after: Option<RoomId>,
    limit: usize,
) -> Result<Vec<RoomInfo>, Problem> {
    let mut shown = Vec::new();
    loop {
        let page = gateway.store.rooms(after, limit).await?;
        let is_last = page.len() < limit;
        after = page.last().map(|room| room.room.clone());
        for room in page {
            let is_shown = match &caller.user {
                Some(user) if room.members_only => {
                    gateway.members.standing(&room.room, user).await? == Standing::Member
                }
                _ => true,
            };
            if is_shown {
                shown.push(room);
            }
            if shown.len() == limit {
                return Ok(shown);
            }
        }
        if is_last {
            return Ok(shown);
        }
        // However many are not shown, others get their turn.
        tokio::task::yield_now().await;
    }
}

/// Appends where a list goes on, and its end.
pub(super) fn write_next(next: Option<&str>, out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"next\":");
    match next {
        Some(next) => write_json_string(next, out),
        None => out.extend_from_slice(b"null"),
    }
    out.push(b'}');
}

/// Appends the members of a room's object.
pub(super) fn write_room(room: &RoomInfo, out: &mut Vec<u8>) {
    write_settings(room, out);
    out.extend_from_slice(b",\"retention\":");
    match room.retention_s {
        Some(seconds) => write_u64(seconds, out),
        None => out.extend_from_slice(b"null"),
    }
    write_numbers(
        &[
            ("head", room.head),
            ("oldest", room.oldest),
            ("messages", room.messages),
            ("members", room.members),
        ],
        out,
    );
    out.extend_from_slice(b",\"lastReceivedAt\":");
    match room.last_received_at {
        Some(time) => {
            out.push(b'"');
            time.write(out);
            out.push(b'"');
        }
        None => out.extend_from_slice(b"null"),
    }
}

/// Appends what somebody chose for a room and everybody in it sees.
pub(super) fn write_settings(room: &RoomInfo, out: &mut Vec<u8>) {
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
pub(super) fn write_numbers(numbers: &[(&str, u64)], out: &mut Vec<u8>) {
    for (name, value) in numbers {
        out.extend_from_slice(b",\"");
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"\":");
        write_u64(*value, out);
    }
}
