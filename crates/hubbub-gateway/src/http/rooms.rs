//! `GET /v1/rooms`: all rooms, page by page.

use hubbub_core::RoomId;
use hubbub_core::change::TITLE_BYTES_MAX;
use hubbub_core::store::RoomInfo;
use hubbub_pipeline::AccessLevel;
use hyper::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;

use super::endpoint::Call;
use super::page::Page;
use super::types::{Epoch, Id, Time};
use super::{Answer, json_of};
use crate::Gateway;
use crate::auth::Caller;
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
            last_received_at: info.last_received_at.map(Time),
        }
    }
}

pub(super) async fn list(call: Call) -> Answer {
    let gateway = call.gateway();
    let caller = call.caller()?;
    let (after, limit) = call.page(RoomId::new)?;
    let epoch = gateway.store.epoch();
    let rooms = shown(gateway, &caller, after, limit + 1).await?;
    let page = Page::of(rooms, limit, |last| last.room.as_str().to_owned());
    let (rooms, next) = (page.items.into_iter().map(Room::from).collect(), page.next);
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
                Some(user) if room.members_only => {
                    gateway.members.standing(&room.room, user).await? == AccessLevel::Member
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
