//! `/v1/rooms` and `/v1/rooms/{room}`: lists, shows, creates, changes and deletes rooms.

use std::sync::LazyLock;

use hubbub_core::change::{RETENTION_S_MAX, TITLE_BYTES_MAX, TITLE_RULE, is_valid_title};
use hubbub_core::store::{ReadError, RoomInfo};
use hubbub_core::{FieldError, Outcome, RoomChange, RoomId, RoomSettings, duration};
use hubbub_pipeline::AccessLevel;
use hyper::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::endpoint::Call;
use super::members_known::KnownMembers;
use super::query::{cut, refuse_faults, require};
use super::types::{Epoch, Id, OrNull, Time};
use super::{Answer, json_of, no_content};
use crate::Gateway;
use crate::auth::Right;
use crate::auth::caller::{Caller, Requirement};
use crate::json::object_or_default;
use crate::problem::Problem;

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Room {
    room_id: Id<RoomId>,
    /// A name for people; `null` = none.
    #[schemars(length(max = TITLE_BYTES_MAX))]
    title: Option<String>,
    /// Whether only members may read and write.
    members_only: bool,
    /// Seconds its messages are kept; `null` = as those of other rooms.
    retention: Option<u64>,
    /// The newest message's `seq`.
    head: u64,
    /// The oldest message that is kept.
    oldest: u64,
    /// How many are kept.
    messages: u64,
    /// How many there are.
    members: u64,
    last_received_at: Option<Time>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct RoomList {
    rooms: Vec<Room>,
    epoch: Epoch,
    /// The `after` of the next page; `null` at the end.
    next: Option<String>,
}

impl From<RoomInfo> for Room {
    fn from(info: RoomInfo) -> Self {
        Self {
            room_id: Id(info.room),
            title: info.title,
            members_only: info.members_only,
            retention: info.retention_s,
            head: info.head,
            oldest: info.oldest,
            messages: info.messages,
            members: info.members,
            // Of a message that is gone it says nothing to those who come anew.
            last_received_at: info.last_received_at.filter(|_| info.messages > 0).map(Time),
        }
    }
}

pub(super) async fn list(call: Call) -> Answer {
    let gateway = call.gateway();
    let caller = call.caller()?;
    let (after, limit) = call.page(RoomId::new)?;
    let epoch = gateway.store.epoch();
    let rooms = shown(gateway, &caller, after, limit + 1).await?;
    let (rooms, next) = cut(rooms, limit, |last| last.room.to_string());
    let rooms = rooms.into_iter().map(Room::from).collect();
    json_of(StatusCode::OK, &RoomList { rooms, epoch: Epoch(epoch), next })
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
                _ if !caller.is_allowed(Requirement::Room(Right::Read, room.room.as_str())) => false,
                Some(user) if room.members_only => {
                    gateway.members.cached_access(&room.room, user).await? == AccessLevel::Member
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

// The body of a `PUT`. It is read by `settings`, which tells `null` from what is left out and names every fault.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "it is its schema")]
#[schemars(rename = "RoomSettings", deny_unknown_fields)]
pub(super) struct RoomSettingsBody {
    /// A name for people; `null` = none.
    #[schemars(length(max = TITLE_BYTES_MAX))]
    title: Option<OrNull<String>>,
    /// Whether only members may read and write.
    members_only: Option<bool>,
    /// How long its messages are kept: seconds, or a time such as `12h` or `30d`; `null` = as those of other rooms.
    retention: Option<OrNull<Retention>>,
}

#[derive(JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
#[expect(dead_code, reason = "it is its schema")]
enum Retention {
    Seconds(#[schemars(range(min = 1, max = RETENTION_S_MAX))] u64),
    Text(String),
}

pub(super) async fn get(call: Call) -> Answer {
    let gateway = call.gateway();
    let (room, caller) = (call.room()?, call.caller()?);
    let info = gateway.read_as(&room, &caller, gateway.store.room(room.clone())).await?;
    show(info, StatusCode::OK)
}

static MEMBERS: LazyLock<KnownMembers> = LazyLock::new(KnownMembers::of::<RoomSettingsBody, Room>);

pub(super) async fn put(mut call: Call) -> Answer {
    let room = call.room()?;
    let caller = call.caller()?;
    let body = call.body().await?;
    let gateway = call.gateway();
    // A room needs no settings, so that no body is fine.
    let mut faults = Vec::new();
    MEMBERS.check(&body, &mut faults)?;
    let body: Map<String, Value> = object_or_default(&body)?;
    let settings = settings(&body, faults)?;
    let outcome = gateway.change(&caller, RoomChange::PutRoom { room: room.as_str(), settings }).await?;
    let status = match outcome {
        Outcome::Room { created: true } => StatusCode::CREATED,
        Outcome::Room { created: false } => StatusCode::OK,
        _ => return Err(Problem::no_outcome()),
    };
    show(gateway.store.room(room).await?, status)
}

pub(super) async fn delete(call: Call) -> Answer {
    let gateway = call.gateway();
    let (room, caller) = (call.room()?, call.caller()?);
    match gateway.change(&caller, RoomChange::DeleteRoom { room: room.as_str() }).await? {
        Outcome::Changed { changed: true } => Ok(no_content()),
        Outcome::Changed { changed: false } => Err(ReadError::UnknownRoom.into()),
        _ => Err(Problem::no_outcome()),
    }
}

fn show(info: Option<RoomInfo>, status: StatusCode) -> Answer {
    json_of(status, &Room::from(info.ok_or(ReadError::UnknownRoom)?))
}

/// What the body says; members that are not there stay as they are.
fn settings(body: &Map<String, Value>, mut faults: Vec<FieldError>) -> Result<RoomSettings<'_>, Problem> {
    let rule = format!("must be null or a string of {TITLE_RULE}");
    let title = body.get("title").and_then(|value| require(title(value), "title", rule, &mut faults));
    let rule = "must be true or false";
    let members_only = body.get("membersOnly");
    let members_only =
        members_only.and_then(|value| require(value.as_bool(), "membersOnly", rule, &mut faults));
    let rule = format!("must be null, seconds from 1 to {RETENTION_S_MAX}, or a time such as 12h or 30d");
    let retention_s = body.get("retention");
    let retention_s = retention_s.and_then(|value| require(retention(value), "retention", rule, &mut faults));
    refuse_faults(faults)?;
    Ok(RoomSettings { title, members_only, retention_s })
}

/// Empty = none.
fn title(value: &Value) -> Option<&str> {
    match value {
        Value::Null => Some(""),
        Value::String(title) => title_of_text(title),
        _ => None,
    }
}

/// The title that a text is, if it may be one.
pub(super) fn title_of_text(text: &str) -> Option<&str> {
    is_valid_title(text).then_some(text)
}

/// In seconds; 0 = as the server keeps messages of other rooms.
fn retention(value: &Value) -> Option<u64> {
    let seconds = match value {
        Value::Null => return Some(0),
        Value::Number(seconds) => seconds.as_u64()?,
        Value::String(text) => duration::parse(text)?.as_secs(),
        _ => return None,
    };
    (1..=RETENTION_S_MAX).contains(&seconds).then_some(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn settings_leave_what_they_do_not_name() {
        let parse = |value: Value| {
            let body = value.as_object().unwrap().clone();
            settings(&body, Vec::new()).map(|s| (s.title.map(str::to_owned), s.members_only, s.retention_s))
        };
        assert_eq!(parse(json!({})), Ok((None, None, None)));
        let all = json!({"title": "Tea", "membersOnly": false, "retention": 5});
        assert_eq!(parse(all), Ok((Some("Tea".into()), Some(false), Some(5))));
        let none = json!({"title": null, "retention": null});
        assert_eq!(parse(none), Ok((Some(String::new()), None, Some(0))));
        assert_eq!(parse(json!({"retention": "2h"})).unwrap().2, Some(7_200));
        let bad = json!({"title": "x".repeat(257), "membersOnly": null, "retention": "500ms"});
        let fields: Vec<_> = parse(bad).unwrap_err().faults.iter().map(|fault| fault.field).collect();
        assert_eq!(fields, ["title", "membersOnly", "retention"]);
        for (field, value) in [
            ("title", json!("a\u{7}")),
            ("title", json!(1)),
            ("membersOnly", json!("yes")),
            ("retention", json!(0)),
            ("retention", json!(-1)),
            ("retention", json!(1.5)),
            ("retention", json!(RETENTION_S_MAX + 1)),
            ("retention", json!("soon")),
        ] {
            let problem = parse(json!({field: value})).unwrap_err();
            assert_eq!(problem.faults[0].field, field);
        }
    }
}
