//! What belongs to one user: the rooms, and everything the user wrote, to be erased.

use hubbub_core::store::UserRoom;
use hubbub_core::{ErrorCode, Outcome, RoomChange, RoomId, UserId};
use hyper::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;

use super::endpoint::Call;
use super::types::Id;
use super::{Answer, json, json_of};
use crate::auth::Caller;
use crate::json::{write_flag, write_items, write_number, write_plain, write_text, write_text_or_null};
use crate::problem::Problem;

/// Estimated bytes of a room in the list, without the text of its last message.
const ROOM_BYTES: usize = 512;

/// `GET /v1/users/{user}/rooms`: the rooms the user is a member of, with what is unread. Written by hand, because there
/// may be a thousand and the list is the first thing a chat page asks for.
pub(super) async fn rooms(call: Call) -> Answer {
    let gateway = call.gateway();
    let user = call.user()?;
    check_self(&call.caller()?, &user)?;
    let (after, limit) = call.page(RoomId::new)?;
    let epoch = gateway.store.epoch();
    let page = gateway.store.user_rooms(user, after, limit + 1).await?;
    let mut out = Vec::with_capacity(page.last.bytes() + page.rooms.len() * ROOM_BYTES + 64);
    out.extend_from_slice(b"{\"rooms\":[");
    let mut messages = page.last.iter().peekable();
    write_items(page.rooms.iter().take(limit), &mut out, |UserRoom { info, read_seq, unread }, out| {
        write_plain("{\"roomId\":\"", info.room.as_str(), out);
        write_text_or_null(",\"title\":", info.title.as_deref(), out);
        write_flag(",\"membersOnly\":", info.members_only, out);
        write_number(",\"head\":", info.head, out);
        write_number(",\"oldest\":", info.oldest, out);
        write_number(",\"messages\":", info.messages, out);
        write_number(",\"readSeq\":", *read_seq, out);
        write_number(",\"unread\":", *unread, out);
        out.extend_from_slice(b",\"lastMessage\":");
        match messages.next_if(|message| message.sent.room == info.room.as_str()) {
            Some(message) => message.write_json(out),
            None => out.extend_from_slice(b"null"),
        }
        out.push(b'}');
    });
    write_text("],\"epoch\":", &epoch, &mut out);
    let last = limit.checked_sub(1).and_then(|last| page.rooms.get(last));
    let next = last.filter(|_| page.rooms.len() > limit).map(|last| last.info.room.as_str());
    write_text_or_null(",\"next\":", next, &mut out);
    out.push(b'}');
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
