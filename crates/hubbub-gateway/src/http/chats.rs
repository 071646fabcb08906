//! The form interface (`--compat chats`): users, chats and messages as HTML forms, for clients of an older kind.
//!
//! A chat is a room for members only, whose title is the chat's name. A user's name is the user's id; that it is taken is a
//! key. The cookie `user_id` names the caller and proves nothing, so the interface is off by default and served on loopback
//! addresses, unless `--insecure` is given. It translates; every rule is the rooms'.

use std::borrow::Cow;

use hubbub_core::draft::{Loose, MessageDraft, Rules};
use hubbub_core::id::ID_RULE;
use hubbub_core::kv::Condition;
use hubbub_core::store::ReadError;
use hubbub_core::{
    Change, ErrorCode, FieldError, KvOp, Op, OpBatch, Outcome, Refusal, RoomChange, RoomId, RoomSettings,
    UserId,
};
use hubbub_pipeline::AccessLevel;
use hyper::StatusCode;
use hyper::header::{COOKIE, HeaderValue, LOCATION, SET_COOKIE};

use super::endpoint::{Call, Endpoint, get, post};
use super::permission::Permission;
use super::query::Query;
use super::rooms::title_of_text;
use super::send::idempotency_key;
use super::{Answer, ITEMS_MAX, empty, json, respond};
use crate::auth::caller::{Caller, Identity};
use crate::json::write_plain;
use crate::problem::{Problem, sent};
use crate::submit::Ingest;
use crate::ws;

/// The paths of the interface. None of them is part of the API, and none is served where callers have to prove who they are.
pub(super) static ENDPOINTS: &[Endpoint] = &[
    post("/users", |call| Box::pin(register(call))).needs(Permission::Open),
    post("/login", |call| Box::pin(log_in(call))).needs(Permission::Open),
    post("/chats", |call| Box::pin(create(call))).needs(Permission::Open),
    post("/chats/{room}/messages", |call| Box::pin(send(call))).needs(Permission::Open),
    get("/ws/connect/{user}", |call| Box::pin(ws::upgrade_chats(call)))
        .without_head()
        .needs(Permission::Open),
];

const COOKIE_NAME: &str = "user_id";

/// The key that says that a name is taken.
fn name_key(user: &UserId) -> Vec<u8> {
    format!("hubbub/compat/chats/users/{user}").into_bytes()
}

fn fault(field: &'static str, rule: impl Into<Cow<'static, str>>) -> Problem {
    Problem::invalid(vec![FieldError::new(field, rule)])
}

/// A form in the body of a request: `name=value&name=value`.
async fn form(call: &mut Call) -> Result<Query, Problem> {
    let body = call.body().await?;
    let text = std::str::from_utf8(&body)
        .map_err(|_| Problem::new(ErrorCode::Malformed, "the body is no form: it is not UTF-8"))?;
    Ok(Query::parse(Some(text)))
}

fn user(form: &Query, field: &'static str) -> Result<UserId, Problem> {
    UserId::new(form.get(field).unwrap_or_default()).map_err(|_| fault(field, ID_RULE))
}

/// Who calls, by the cookie.
fn caller(call: &Call) -> Result<Option<UserId>, Problem> {
    let cookies = call.headers().get_all(COOKIE).into_iter().filter_map(|cookies| cookies.to_str().ok());
    let mut pairs =
        cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let Some((_, name)) = pairs.find(|(name, _)| *name == COOKIE_NAME) else { return Ok(None) };
    UserId::new(name).map(Some).map_err(|_| fault(COOKIE_NAME, ID_RULE))
}

/// `POST /users`: takes a name.
async fn register(mut call: Call) -> Answer {
    let user = user(&form(&mut call).await?, "username")?;
    let (key, condition) = (name_key(&user), Condition::Absent);
    let mut ops = OpBatch::default();
    ops.push(&Op::Kv(KvOp::Put { key: &key, value: b"", ttl_ms: None, condition }));
    let applied = call.gateway().apply(&ops).await?;
    match applied.outcomes() {
        [Outcome::Kv(_)] => Ok(empty(StatusCode::CREATED)),
        [Outcome::Refused(Refusal::Condition { .. })] => {
            Ok(respond(StatusCode::CONFLICT, "text/plain", "the name is taken"))
        }
        [Outcome::Refused(refusal)] => Err(Problem::refusal(*refusal)),
        _ => Err(Problem::no_outcome()),
    }
}

/// `POST /login`: sets the cookie, and leads to the page.
async fn log_in(mut call: Call) -> Answer {
    let user = user(&form(&mut call).await?, "username")?;
    if call.gateway().keys.get(&name_key(&user)).await?.value.is_none() {
        return Err(Problem::new(ErrorCode::Forbidden, format!("there is no user '{user}'")));
    }
    let mut response = empty(StatusCode::SEE_OTHER);
    let cookie = format!("{COOKIE_NAME}={user}; Path=/; HttpOnly; SameSite=Lax");
    // Ids may stand in a header.
    let cookie = HeaderValue::try_from(cookie).map_err(|_| fault("username", ID_RULE))?;
    response.headers_mut().insert(SET_COOKIE, cookie);
    response.headers_mut().insert(LOCATION, HeaderValue::from_static("/"));
    Ok(response)
}

/// `POST /chats`: creates a room with members. The caller is one of them, if there is a cookie.
async fn create(mut call: Call) -> Answer {
    let form = form(&mut call).await?;
    let name = form.get("name").unwrap_or_default();
    let title = title_of_text(name).filter(|name| !name.is_empty());
    let title =
        title.ok_or_else(|| fault("name", "must be a text of 1 to 256 bytes without control characters"))?;
    let founder = caller(&call)?;
    let members: Result<Vec<UserId>, _> = form.all("members").map(UserId::new).collect();
    let mut members = members.map_err(|_| fault("members", ID_RULE))?;
    let is_within = members.len() <= ITEMS_MAX;
    members.extend(founder);
    if members.is_empty() || !is_within {
        return Err(fault("members", format!("must be given 1 to {ITEMS_MAX} times")));
    }
    let gateway = call.gateway();
    let room = gateway.make_id(gateway.now());
    let settings = RoomSettings { title: Some(title), members_only: Some(true), ..RoomSettings::default() };
    let by_server = Caller::unnamed(Identity::Anyone)?;
    gateway.change(&by_server, RoomChange::PutRoom { room: &room, settings }).await?;
    let mut ops = OpBatch::default();
    for user in &members {
        let what = RoomChange::AddMember { room: &room, user: user.as_str() };
        ops.push(&Op::Change(Change { by: None, what }));
    }
    for outcome in gateway.apply(&ops).await?.outcomes() {
        if let Outcome::Refused(refusal) = outcome {
            return Err(Problem::refusal(*refusal));
        }
    }
    let mut out = Vec::with_capacity(64);
    write_plain("{\"chat_id\":\"", &room, &mut out);
    out.push(b'}');
    Ok(json(StatusCode::CREATED, out))
}

/// `POST /chats/{room}/messages`: sends a message as the user of the cookie.
async fn send(mut call: Call) -> Answer {
    let room = call.room()?;
    let user =
        caller(&call)?.ok_or_else(|| fault(COOKIE_NAME, "is required: the cookie that POST /login sets"))?;
    let form = form(&mut call).await?;
    let gateway = call.gateway();
    check_member(&call, &room, &user).await?;
    let message = form.get("content").map(|content| Loose::Text(Cow::Borrowed(content)));
    let draft = MessageDraft { message, ..MessageDraft::default() };
    let (caller, now) = (Caller::named(Identity::Anyone, Some(user))?, gateway.now());
    let key = idempotency_key(&call, None)?;
    let ingest = Ingest { rules: Rules::Api, room: Some(room.as_str()), caller: &caller, key, now };
    let mut ops = OpBatch::default();
    gateway.check(&draft, &ingest, |message| ops.push(&Op::Send(*message)))?;
    let applied = gateway.apply(&ops).await?;
    sent(applied.outcomes().first().ok_or_else(Problem::no_outcome)?)?;
    Ok(empty(StatusCode::OK))
}

/// Chats are not created by messages, so the sender must be a member of one.
async fn check_member(call: &Call, room: &RoomId, user: &UserId) -> Result<(), Problem> {
    let gateway = call.gateway();
    match gateway.members.cached_access(room, user).await? {
        AccessLevel::Member => Ok(()),
        _ if gateway.store.room(room.clone()).await?.is_none() => Err(ReadError::UnknownRoom.into()),
        _ => Err(Problem::not_member()),
    }
}
