//! `"*"`: all rooms its user is a member of. Those of today are read page by page, each followed as soon as it is
//! known; those of tomorrow come through the outbox.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hubbub_core::store::{ReadError, UserRooms};
use hubbub_core::{RoomId, UserId};

use crate::Gateway;
use crate::follow::{Audience, OnReset, Start, Wanted};

/// Rooms read at once; the next are read when these are live.
const PAGE_ROOMS: usize = 100;

/// What a client asked for.
#[derive(Debug, Clone)]
pub(super) struct WantedRooms {
    /// The client's `ref` as JSON.
    pub(super) reference: Arc<str>,
    /// Where to begin in some rooms; in the others at the read mark.
    pub(super) cursors: HashMap<RoomId, u64>,
    /// The history the cursors belong to.
    pub(super) epoch: Option<String>,
    pub(super) on_reset: OnReset,
}

enum Stage {
    /// Rooms behind this one are to be read.
    Reading { after: Option<RoomId> },
    /// All are known and followed; the client is to be told once they are live.
    Known,
    /// The client was told.
    Told,
}

type Fetch = Pin<Box<dyn Future<Output = Result<UserRooms, ReadError>> + Send>>;

/// What is next.
pub(super) enum Next {
    /// These rooms, and their read marks.
    Rooms(Vec<(RoomId, u64)>),
    /// To tell the client that all are live; once.
    Tell,
    /// To give up.
    Failed(ReadError),
}

pub(super) struct AllRooms {
    pub(super) wanted: WantedRooms,
    stage: Stage,
    fetch: Option<Fetch>,
}

impl AllRooms {
    pub(super) fn new(wanted: WantedRooms) -> Self {
        Self { wanted, stage: Stage::Reading { after: None }, fetch: None }
    }

    /// What is to be done when all rooms known so far are live; pending for good once the client was told.
    pub(super) fn poll_next(
        &mut self,
        gateway: &Arc<Gateway>,
        user: &UserId,
        context: &mut Context<'_>,
    ) -> Poll<Next> {
        let after = match &self.stage {
            Stage::Reading { after } => after.clone(),
            Stage::Known => {
                self.stage = Stage::Told;
                return Poll::Ready(Next::Tell);
            }
            Stage::Told => return Poll::Pending,
        };
        let fetch = self.fetch.get_or_insert_with(|| {
            let (store, user) = (gateway.store.clone(), user.clone());
            Box::pin(async move { store.user_rooms(user, after, PAGE_ROOMS).await })
        });
        let page = ready!(fetch.as_mut().poll(context));
        self.fetch = None;
        Poll::Ready(match page {
            Ok(page) => {
                let rooms: Vec<_> =
                    page.rooms.into_iter().map(|room| (room.info.room, room.read_seq)).collect();
                self.stage = match rooms.last() {
                    Some((last, _)) if rooms.len() == PAGE_ROOMS => {
                        Stage::Reading { after: Some(last.clone()) }
                    }
                    _ => Stage::Known,
                };
                Next::Rooms(rooms)
            }
            Err(error) => Next::Failed(error),
        })
    }

    /// Where to begin in a room.
    pub(super) fn begin(&mut self, room: &RoomId, read_seq: u64) -> Wanted {
        let (on_reset, audience) = (self.wanted.on_reset, Audience::Members);
        match self.wanted.cursors.remove(room) {
            Some(after) => {
                Wanted { start: Start::After(after), epoch: self.wanted.epoch.clone(), on_reset, audience }
            }
            None => Wanted { start: Start::Mark(read_seq), epoch: None, on_reset, audience },
        }
    }
}
