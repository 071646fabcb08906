//! What belongs to one user: the rooms, and everything the user wrote, to be erased.

use hubbub_core::message::write_json_string;
use hubbub_core::{ErrorCode, Outcome, RoomChange, RoomId, UserId};
use hyper::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;

use super::endpoint::Call;
use super::page::PageQuery;
use super::query::refuse_faults;
use super::types::Id;
use super::write::{write_next, write_numbers, write_settings};
use super::{Answer, json, json_of};
use crate::auth::Caller;
use crate::problem::Problem;

/// Estimated bytes of a room in the list, without the text of its last message.
const ROOM_BYTES: usize = 512;

/// `GET /v1/users/{user}/rooms`: the rooms the user is a member of, with what is unread. Written by hand, because there
/// may be a thousand and the list is the first thing a chat page asks for.
pub(super) async fn rooms(call: Call) -> Answer {
    let gateway = call.gateway();
    let user = call.user()?;
    let query = call.query();
    check_self(&call.caller_in(&query)?, &user)?;
    let mut faults = Vec::new();
    let PageQuery { after, limit } = PageQuery::of(&query, RoomId::new, &mut faults);
    refuse_faults(faults)?;
    let epoch = gateway.store.epoch();
    let page = gateway.store.user_rooms(user, after, limit + 1).await?;
    let mut out = Vec::with_capacity(page.last.bytes() + page.rooms.len() * ROOM_BYTES + 64);
    out.extend_from_slice(b"{\"rooms\":[");
    let mut messages = page.last.iter().peekable();
    for (index, room) in page.rooms.iter().take(limit).enumerate() {
        out.extend_from_slice(if index == 0 { b"{" } else { b",{" });
        write_settings(&room.info, &mut out);
        write_numbers(
            &[
                ("head", room.info.head),
                ("oldest", room.info.oldest),
                ("messages", room.info.messages),
                ("readSeq", room.read_seq),
                ("unread", room.unread),
            ],
            &mut out,
        );
        out.extend_from_slice(b",\"lastMessage\":");
        match messages.next_if(|message| message.sent.room == room.info.room.as_str()) {
            Some(message) => message.write_json(&mut out),
            None => out.extend_from_slice(b"null"),
        }
        out.push(b'}');
    }
    out.extend_from_slice(b"],\"epoch\":");
    write_json_string(&epoch, &mut out);
    let last = limit.checked_sub(1).and_then(|last| page.rooms.get(last));
    let next = last.filter(|_| page.rooms.len() > limit).map(|last| last.info.room.as_str());
    write_next(next, &mut out);
    Ok(json(StatusCode::OK, out))
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Erased {
    user_id: Id<UserId>,
    /// How many were erased.
    messages: u64,
}

/// `DELETE /v1/users/{user}`: erases the user's messages and memberships. A request that is repeated goes on where the
/// last one stopped.
pub(super) async fn erase(call: Call) -> Answer {
    let gateway = call.gateway();
    let (user, caller) = (call.user()?, call.caller()?);
    check_self(&caller, &user)?;
    let mut erased = 0;
    loop {
        match gateway.change(&caller, RoomChange::EraseUser { user: user.as_str() }).await? {
            Outcome::Erased { messages, more } => {
                erased += messages;
                if !more {
                    break;
                }
            }
            _ => return Err(Problem::no_outcome()),
        }
    }
    json_of(StatusCode::OK, &Erased { user_id: Id(user), messages: erased })
}

/// What belongs to a user is for the user, and for administrators.
pub(super) fn check_self(caller: &Caller, user: &UserId) -> Result<(), Problem> {
    match &caller.user {
        Some(other) if other != user => {
            Err(Problem::new(ErrorCode::Forbidden, format!("this is for '{user}' and for administrators")))
        }
        _ => Ok(()),
    }
}
