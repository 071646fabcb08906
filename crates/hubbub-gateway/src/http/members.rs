//! Who belongs to a room, who follows it now, and how far they read.

use hubbub_core::draft::Loose;
use hubbub_core::store::ReadError;
use hubbub_core::{Outcome, RoomChange, RoomId, UserId};
use hyper::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::endpoint::Call;
use super::page::cut;
use super::types::Id;
use super::{Answer, json_of, no_content};
use crate::json::object_of_bytes;
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
    let reading = async { Ok(gateway.hub.present(room.as_str())) };
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
    /// Messages that are kept and lie behind it.
    unread: u64,
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
    let mark = ReadMark { room_id: Id(room), read_seq: mark.seq, unread: mark.unread };
    json_of(StatusCode::OK, &mark)
}
