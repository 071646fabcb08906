//! Who belongs to a room, who follows it now, how far they read; and the rooms and messages that belong to one user.

use hubbub_core::draft::Loose;
use hubbub_core::store::{LastMessages, ReadError, UserRoom};
use hubbub_core::{Message, Outcome, RoomChange, RoomId, UserId};
use hyper::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::endpoint::Call;
use super::history::PAGE_BYTES_MAX;
use super::query::cut;
use super::types::Id;
use super::{Answer, json, json_of, no_content};
use crate::auth::Right;
use crate::auth::caller::Requirement;
use crate::json::{object_of_bytes, write_flag, write_number, write_plain, write_text, write_text_or_null};
use crate::problem::Problem;
use crate::submit::mark_read as check_mark;

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
struct Member {
    user_id: Id<UserId>,
    /// Everything up to here is read.
    read_seq: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct MemberList {
    members: Vec<Member>,
    /// The `after` of the next page; `null` at the end.
    next: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Presence {
    /// Who follows the room now.
    users: Vec<Id<UserId>>,
}

pub(super) async fn list(call: Call) -> Answer {
    let gateway = call.gateway();
    let room = call.room()?;
    let caller = call.caller()?;
    let (after, limit) = call.page(UserId::new)?;
    let reading = async {
        gateway.store.room(room.clone()).await?.ok_or(ReadError::UnknownRoom)?;
        gateway.store.members(room.clone(), after, limit + 1).await
    };
    let members = gateway.read_as(&room, &caller, reading).await?;
    let (members, next) = cut(members, limit, |last| last.user.to_string());
    let member =
        |member: hubbub_core::store::Member| Member { user_id: Id(member.user), read_seq: member.read_seq };
    let members = members.into_iter().map(member).collect();
    json_of(StatusCode::OK, &MemberList { members, next })
}

pub(super) async fn add(call: Call) -> Answer {
    let gateway = call.gateway();
    let (room, user) = (call.room()?, call.user()?);
    let what = RoomChange::AddMember { room: room.as_str(), user: user.as_str() };
    gateway.change(&call.caller()?, what).await?;
    Ok(no_content())
}

/// `DELETE /v1/rooms/{room}/members/{user}`. Once it is answered, the user gets nothing of the room any more.
pub(super) async fn remove(call: Call) -> Answer {
    let gateway = call.gateway();
    let (room, user) = (call.room()?, call.user()?);
    let what = RoomChange::RemoveMember { room: room.as_str(), user: user.as_str() };
    gateway.change(&call.caller()?, what).await?;
    Ok(no_content())
}

pub(super) async fn presence(call: Call) -> Answer {
    let gateway = call.gateway();
    let room = call.room()?;
    let reading = async { Ok(gateway.hub.present_everywhere(&room, &*gateway.clock).await) };
    let users = gateway.read_as(&room, &call.caller()?, reading).await?;
    json_of(StatusCode::OK, &Presence { users: users.into_iter().map(Id).collect() })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(expecting = "an object")]
pub(super) struct ReadBody<'a> {
    /// Everything up to here is read.
    #[serde(borrow)]
    #[schemars(with = "u64", required)]
    seq: Option<Loose<'a>>,
}

/// How far a member has read.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReadMark {
    room_id: Id<RoomId>,
    /// Everything up to here is read.
    read_seq: u64,
    /// Messages that are kept and lie behind it, up to `head`.
    unread: u64,
    /// The room's newest message when this was so.
    head: u64,
}

pub(super) async fn mark_read(mut call: Call) -> Answer {
    let room = call.room()?;
    let caller = call.caller()?;
    let body = call.body().await?;
    let gateway = call.gateway();
    let body: ReadBody<'_> = object_of_bytes(&body)?;
    let mut faults = Vec::new();
    let change = check_mark(Some(&room), &caller, body.seq.as_ref(), &mut faults);
    let change = change.ok_or_else(|| Problem::invalid(faults))?;
    let Outcome::Read(mark) = gateway.change(&caller, change.what).await? else {
        return Err(Problem::no_outcome());
    };
    let mark = ReadMark { room_id: Id(room), read_seq: mark.seq, unread: mark.unread, head: mark.head };
    json_of(StatusCode::OK, &mark)
}

/// Rooms that are read at once: each brings its last message.
const ROOMS_AT_ONCE: usize = 128;

/// `GET /v1/users/{user}/rooms`: the rooms the user is a member of, with what is unread. Written by hand, because there
/// may be a thousand and the list is the first thing a chat page asks for. It ends early where it is long: a last message may be
/// 64 KiB, and JSON may take six bytes for one of them.
pub(super) async fn user_rooms(call: Call) -> Answer {
    let gateway = call.gateway();
    let user = call.user()?;
    let caller = call.caller()?;
    let (mut after, limit) = call.page(RoomId::new)?;
    let epoch = gateway.store.epoch();
    let may_read =
        |room: &&UserRoom| caller.is_allowed(Requirement::Room(Right::Read, room.info.room.as_str()));
    let mut out = b"{\"rooms\":[".to_vec();
    // Rooms that were looked at, of which the caller may read some.
    let (mut looked_at, mut count, mut last) = (0, 0, None);
    let mut turn = gateway.outgoing_memory.permit_large().await?;
    let next = 'pages: loop {
        let wanted = ROOMS_AT_ONCE.min(limit - looked_at);
        let page = gateway.store.user_rooms(user.clone(), after, wanted + 1, LastMessages::Read).await?;
        let mut messages = page.last.iter().peekable();
        for room in page.rooms.iter().take(wanted).filter(may_read) {
            let begin = out.len();
            out.extend_from_slice(if count > 0 { b"," } else { b"" });
            // Those before it are of rooms that are not shown.
            while messages.next_if(|message| message.sent.room < room.info.room.as_str()).is_some() {}
            let message = messages.next_if(|message| message.sent.room == room.info.room.as_str());
            write_room(room, message.as_ref(), &mut out);
            if count > 0 && out.len() > PAGE_BYTES_MAX {
                out.truncate(begin);
                break 'pages last;
            }
            count += 1;
            last = Some(room.info.room.clone());
        }
        if page.rooms.len() <= wanted {
            break None;
        }
        looked_at += wanted;
        after = page.rooms.into_iter().nth(wanted - 1).map(|room| room.info.room);
        if looked_at < limit {
            continue;
        }
        if count > 0 {
            break last;
        }
        // A page of which nothing may be shown could only say where to go on, which names a room.
        looked_at = 0;
        drop(turn);
        tokio::task::yield_now().await;
        turn = gateway.outgoing_memory.permit_large().await?;
    };
    write_text("],\"epoch\":", &epoch, &mut out);
    write_text_or_null(",\"next\":", next.as_ref().map(RoomId::as_str), &mut out);
    out.push(b'}');
    Ok(json(StatusCode::OK, out))
}

fn write_room(
    UserRoom { info, read_seq, unread }: &UserRoom,
    message: Option<&Message<'_>>,
    out: &mut Vec<u8>,
) {
    write_plain("{\"roomId\":\"", info.room.as_str(), out);
    write_text_or_null(",\"title\":", info.title.as_deref(), out);
    write_flag(",\"membersOnly\":", info.members_only, out);
    write_number(",\"head\":", info.head, out);
    write_number(",\"oldest\":", info.oldest, out);
    write_number(",\"messages\":", info.messages, out);
    write_number(",\"readSeq\":", *read_seq, out);
    write_number(",\"unread\":", *unread, out);
    out.extend_from_slice(b",\"lastMessage\":");
    match message {
        Some(message) => message.write_json(out),
        None => out.extend_from_slice(b"null"),
    }
    out.push(b'}');
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
