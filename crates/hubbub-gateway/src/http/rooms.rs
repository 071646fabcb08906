//! `GET /v1/rooms`, `GET /v1/rooms/{room}` and who is in it.

use std::sync::Arc;

use hubbub_core::id::ID_RULE;
use hubbub_core::message::{write_json_string, write_u64};
use hubbub_core::store::{ReadError, RoomInfo};
use hubbub_core::{Fault, RoomId};
use hyper::body::Incoming;
use hyper::{Request, StatusCode};

use super::query::{Query, refuse_faults};
use super::{Answer, json, room_of};
use crate::Gateway;

pub(super) const LIMIT_DEFAULT: usize = 100;
pub(super) const LIMIT_MAX: usize = 1_000;

pub(super) async fn list(gateway: &Arc<Gateway>, request: &Request<Incoming>) -> Answer {
    let query = Query::parse(request.uri().query());
    let mut faults = Vec::new();
    let limit = query.limit(LIMIT_DEFAULT, LIMIT_MAX, &mut faults);
    let after = query.get("after").map(RoomId::new).transpose().unwrap_or_else(|_| {
        faults.push(Fault::new("after", ID_RULE));
        None
    });
    refuse_faults(faults)?;
    let mut rooms = gateway.store.rooms(after, limit + 1).await?;
    let has_more = rooms.len() > limit;
    rooms.truncate(limit);
    let mut out = b"{\"rooms\":[".to_vec();
    for (index, room) in rooms.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_room(room, &mut out);
    }
    out.extend_from_slice(b"],\"epoch\":");
    write_json_string(&gateway.store.epoch(), &mut out);
    out.extend_from_slice(b",\"next\":");
    match rooms.last().filter(|_| has_more) {
        Some(last) => write_json_string(last.room.as_str(), &mut out),
        None => out.extend_from_slice(b"null"),
    }
    out.push(b'}');
    Ok(json(StatusCode::OK, out))
}

pub(super) async fn get(gateway: &Arc<Gateway>, room: &str) -> Answer {
    let info = gateway.store.room(room_of(room)?).await?.ok_or(ReadError::UnknownRoom)?;
    let mut out = Vec::with_capacity(192);
    write_room(&info, &mut out);
    Ok(json(StatusCode::OK, out))
}

/// `GET /v1/rooms/{room}/presence`: who follows the room now.
pub(super) fn presence(gateway: &Arc<Gateway>, room: &str) -> Answer {
    let room = room_of(room)?;
    let users = gateway.hub.present(room.as_str());
    let users: Vec<&str> = users.iter().map(hubbub_core::UserId::as_str).collect();
    Ok(json(StatusCode::OK, serde_json::json!({ "users": users }).to_string().into_bytes()))
}

fn write_room(room: &RoomInfo, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"roomId\":");
    write_json_string(room.room.as_str(), out);
    for (name, value) in [("head", room.head), ("oldest", room.oldest), ("messages", room.messages)] {
        out.extend_from_slice(b",\"");
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"\":");
        write_u64(value, out);
    }
    out.extend_from_slice(b",\"lastReceivedAt\":");
    match room.last_received_at {
        Some(time) => {
            out.push(b'"');
            time.write(out);
            out.push(b'"');
        }
        None => out.extend_from_slice(b"null"),
    }
    out.push(b'}');
}
