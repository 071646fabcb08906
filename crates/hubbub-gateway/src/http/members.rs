//! Who belongs to a room, who follows it now, and how far they read.

use hubbub_core::draft::Loose;
use hubbub_core::store::ReadError;
use hubbub_core::{Fault, Outcome, UserId, What};
use hyper::StatusCode;
use serde::Deserialize;

use super::endpoint::Call;
use super::page::{Page, PageQuery};
use super::query::refuse_faults;
use super::rooms::{write_next, write_numbers};
use super::{Answer, json, no_content};
use crate::json::object_of_bytes;
use crate::problem::Problem;

/// `GET /v1/rooms/{room}/members`.
pub(super) async fn list(call: Call) -> Answer {
    let gateway = call.gateway();
    let room = call.room()?;
    let query = call.query();
    let caller = call.caller_in(&query)?;
    let mut faults = Vec::new();
    let PageQuery { after, limit } = PageQuery::of(&query, UserId::new, &mut faults);
    refuse_faults(faults)?;
    let reading = async {
        gateway.store.room(room.clone()).await?.ok_or(ReadError::UnknownRoom)?;
        gateway.store.members(room.clone(), after, limit + 1).await
    };
    let members = gateway.read_as(&room, &caller, reading).await?;
    let page = Page::of(members, limit, |last| last.user.as_str().to_owned());
    let mut out = b"{\"members\":[".to_vec();
    for (index, member) in page.items.iter().enumerate() {
        out.extend_from_slice(if index == 0 { b"{\"userId\":\"" } else { b",{\"userId\":\"" });
        out.extend_from_slice(member.user.as_str().as_bytes());
        out.push(b'"');
        write_numbers(&[("readSeq", member.read_seq)], &mut out);
        out.push(b'}');
    }
    out.push(b']');
    write_next(page.next.as_deref(), &mut out);
    Ok(json(StatusCode::OK, out))
}

/// `PUT /v1/rooms/{room}/members/{user}`.
pub(super) async fn add(call: Call) -> Answer {
    let gateway = call.gateway();
    let (room, user) = (call.room()?, call.user()?);
    let what = What::AddMember { room: room.as_str(), user: user.as_str() };
    gateway.change(&call.caller()?, what).await?;
    Ok(no_content())
}

/// `DELETE /v1/rooms/{room}/members/{user}`. Once it is answered, the user gets nothing of the room any more.
pub(super) async fn remove(call: Call) -> Answer {
    let gateway = call.gateway();
    let (room, user) = (call.room()?, call.user()?);
    let what = What::RemoveMember { room: room.as_str(), user: user.as_str() };
    gateway.change(&call.caller()?, what).await?;
    Ok(no_content())
}

/// `GET /v1/rooms/{room}/presence`: who follows the room now.
pub(super) async fn presence(call: Call) -> Answer {
    let gateway = call.gateway();
    let room = call.room()?;
    let reading = async { Ok(gateway.hub.present(room.as_str())) };
    let users = gateway.read_as(&room, &call.caller()?, reading).await?;
    let users: Vec<&str> = users.iter().map(UserId::as_str).collect();
    Ok(json(StatusCode::OK, serde_json::json!({ "users": users }).to_string().into_bytes()))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ReadBody<'a> {
    #[serde(borrow)]
    seq: Option<Loose<'a>>,
}

/// `PUT /v1/rooms/{room}/read`: the caller has read everything up to `seq`.
pub(super) async fn mark_read(mut call: Call) -> Answer {
    let room = call.room()?;
    let caller = call.caller()?;
    let body = call.body().await?;
    let gateway = call.gateway();
    let body: ReadBody<'_> = object_of_bytes(&body)?;
    let seq = match body.seq {
        None => Err("is required"),
        Some(Loose::Int(seq, _)) => u64::try_from(seq).map_err(|_| SEQ_RULE),
        Some(_) => Err(SEQ_RULE),
    };
    let mut faults = Vec::new();
    let seq = seq.map_err(|rule| faults.push(Fault::new("seq", rule))).unwrap_or_default();
    if caller.user.is_none() {
        faults.extend(Problem::no_user().faults);
    }
    refuse_faults(faults)?;
    let what = What::MarkRead { room: room.as_str(), user: caller.as_str().unwrap_or_default(), seq };
    let Outcome::Read(mark) = gateway.change(&caller, what).await? else { return Err(Problem::no_outcome()) };
    let mut out = Vec::with_capacity(128);
    out.extend_from_slice(b"{\"roomId\":\"");
    out.extend_from_slice(room.as_str().as_bytes());
    out.push(b'"');
    write_numbers(&[("readSeq", mark.seq), ("unread", mark.unread)], &mut out);
    out.push(b'}');
    Ok(json(StatusCode::OK, out))
}

const SEQ_RULE: &str = "must be a whole number from 0 on";
