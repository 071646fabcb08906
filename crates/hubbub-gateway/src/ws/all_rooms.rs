//! `"*"`: all rooms that a user is a member of. Present memberships are read page by page, and each room is followed as
//! soon as it is read. Later memberships come through the outbox, whichever server of a shared store adds them: the hub
//! compares what the store lists later with what it listed before the first page.

use std::collections::{HashMap, HashSet};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hubbub_core::store::{LastMessages, ReadError, UserRooms};
use hubbub_core::{RoomId, UserId};
use hubbub_pipeline::hub::Outbox;

use crate::Gateway;
use crate::follow::{Audience, FollowRequest, OnReset, Start};

/// Rooms of one page. The next page is read when these rooms are live.
const PAGE_ROOMS: usize = 100;

#[derive(Debug, Clone)]
pub(super) struct AllRoomsRequest {
    pub(super) reference: Arc<str>,
    /// Where to begin in some rooms. In the others it is the read mark.
    pub(super) cursors: HashMap<RoomId, u64>,
    pub(super) epoch: Option<String>,
    pub(super) on_reset: OnReset,
}

enum Stage {
    /// Rooms behind this one are to be read.
    Reading {
        after: Option<RoomId>,
    },
    /// All rooms are followed. The client is notified once they are live.
    Listed,
    Complete,
}

type Fetch = Pin<Box<dyn Future<Output = Result<Page, ReadError>> + Send>>;

/// A page of rooms, and with the first one what was listed before it.
type Page = (Vec<RoomId>, UserRooms);

pub(super) enum AllRoomsStep {
    Rooms(Vec<(RoomId, u64)>),
    /// Notify the client that all are live. Comes once.
    Announce,
    Failed(ReadError),
}

pub(super) struct AllRooms {
    pub(super) request: AllRoomsRequest,
    stage: Stage,
    fetch: Option<Fetch>,
    /// Rooms that were listed before the first page, and that no page has brought yet.
    unread: HashSet<RoomId>,
    /// Whether the client was notified that all are live.
    is_announced: bool,
    /// Whether rooms are missing that the caller's token may not read.
    pub(super) has_left_out: bool,
    /// Rooms that the client has unsubscribed, each with the last reading of all rooms that it was a part of, or that was the last
    /// one when it was unsubscribed. They come again only when they are joined again.
    unsubscribed: HashMap<RoomId, u64>,
    reading: u64,
    /// With so many, all rooms are read again: the user may have left most of them since.
    unsubscribed_max: usize,
}

impl AllRooms {
    pub(super) fn new(request: AllRoomsRequest) -> Self {
        let (stage, fetch, unread) = (Stage::Reading { after: None }, None, HashSet::new());
        Self {
            request,
            stage,
            fetch,
            unread,
            is_announced: false,
            has_left_out: false,
            unsubscribed: HashMap::new(),
            reading: 0,
            unsubscribed_max: PAGE_ROOMS,
        }
    }

    #[cfg(test)]
    pub(super) const fn is_complete(&self) -> bool {
        matches!(self.stage, Stage::Complete)
    }

    #[cfg(test)]
    pub(super) fn unsubscribed_count(&self) -> usize {
        self.unsubscribed.len()
    }

    pub(super) fn unsubscribe(&mut self, room: &RoomId) {
        self.unsubscribed.insert(room.clone(), self.reading);
        if self.unsubscribed.len() >= self.unsubscribed_max && matches!(self.stage, Stage::Complete) {
            self.read_again();
        }
    }

    /// All rooms were read: what they lacked the user has left, and gets again with the next join.
    fn forget_left(&mut self) {
        self.unsubscribed.retain(|_, reading| *reading == self.reading);
        self.unsubscribed_max = PAGE_ROOMS.max(2 * self.unsubscribed.len());
    }

    /// The user joins a room, perhaps again.
    pub(super) fn join(&mut self, room: &RoomId) {
        self.unsubscribed.remove(room);
    }

    /// Reads all rooms once more, for those that were left out. The client is notified of each as of one that is joined later.
    pub(super) fn read_again(&mut self) {
        (self.stage, self.fetch, self.has_left_out) = (Stage::Reading { after: None }, None, false);
        self.unread.clear();
        self.reading += 1;
    }

    /// The next step once all rooms listed so far are live. Pending when all rooms were read, until [`Self::read_again`].
    pub(super) fn poll_next(
        &mut self,
        gateway: &Arc<Gateway>,
        (user, outbox): (&UserId, &Arc<Outbox>),
        context: &mut Context<'_>,
    ) -> Poll<AllRoomsStep> {
        let after = match &self.stage {
            Stage::Reading { after } => after.clone(),
            Stage::Listed => {
                self.stage = Stage::Complete;
                self.forget_left();
                // The user was no member then, and may be one since: these are to be looked at like new ones.
                gateway.hub.forget_unread(user, outbox, &std::mem::take(&mut self.unread));
                if std::mem::replace(&mut self.is_announced, true) {
                    return Poll::Pending;
                }
                return Poll::Ready(AllRoomsStep::Announce);
            }
            Stage::Complete => return Poll::Pending,
        };
        let fetch = self.fetch.get_or_insert_with(|| {
            let (gateway, user, outbox) = (gateway.clone(), user.clone(), outbox.clone());
            Box::pin(async move {
                let mut unread = Vec::new();
                if after.is_none() {
                    let listed = gateway.store.memberships(vec![user.clone()]).await?.into_iter().next();
                    let listed = listed.flatten();
                    unread.extend(listed.iter().flatten().map(|listed| listed.room.clone()));
                    gateway.hub.expect_joins(&user, &outbox, listed);
                }
                let page = gateway.store.user_rooms(user, after, PAGE_ROOMS, LastMessages::Leave).await?;
                Ok((unread, page))
            })
        });
        let page = ready!(fetch.as_mut().poll(context));
        self.fetch = None;
        Poll::Ready(match page {
            Ok((unread, page)) => {
                self.unread.extend(unread);
                let rooms: Vec<_> =
                    page.rooms.into_iter().map(|room| (room.info.room, room.read_seq)).collect();
                rooms.iter().for_each(|(room, _)| _ = self.unread.remove(room));
                gateway.hub.expect_no_joins(user, outbox, rooms.iter().map(|(room, _)| room));
                self.stage = match rooms.last() {
                    Some((last, _)) if rooms.len() == PAGE_ROOMS => {
                        Stage::Reading { after: Some(last.clone()) }
                    }
                    _ => Stage::Listed,
                };
                let is_wanted = |(room, _): &(RoomId, u64)| match self.unsubscribed.get_mut(room) {
                    Some(reading) => {
                        *reading = self.reading;
                        false
                    }
                    None => true,
                };
                AllRoomsStep::Rooms(rooms.into_iter().filter(is_wanted).collect())
            }
            Err(error) => AllRoomsStep::Failed(error),
        })
    }

    pub(super) fn begin(&mut self, room: &RoomId, start: u64) -> FollowRequest {
        let (on_reset, audience) = (self.request.on_reset, Audience::Members);
        match self.request.cursors.remove(room) {
            Some(after) => FollowRequest {
                start: Start::After(after),
                epoch: self.request.epoch.clone(),
                on_reset,
                audience,
            },
            None => FollowRequest { start: Start::Mark(start), epoch: None, on_reset, audience },
        }
    }
}
