//! Bounds the rooms that one user is a member of (`limits.user_rooms`), on every store alike: the rooms are counted before
//! the change is submitted.
//!
//! Joins of one user over this server take turns from the count to the answer, so that those that come together are not all
//! counted before any of them. Each other server of the store may add one at the same moment. Administrators are not bound.

use std::hash::{BuildHasher, RandomState};

use hubbub_core::store::{Access, ReadError};
use hubbub_core::{Change, ErrorCode, RoomChange, RoomId, UserId};
use tokio::sync::{Mutex, MutexGuard};

use crate::Gateway;
use crate::problem::Problem;

/// Users whose joins take turns together share one.
const TURNS: usize = 64;

/// Who joins rooms now, by hash of the user.
#[derive(Debug)]
pub(crate) struct Turns {
    hasher: RandomState,
    held: [Mutex<()>; TURNS],
}

impl Default for Turns {
    fn default() -> Self {
        Self { hasher: RandomState::new(), held: std::array::from_fn(|_| Mutex::default()) }
    }
}

impl Turns {
    async fn take(&self, user: &UserId) -> Option<MutexGuard<'_, ()>> {
        let place = self.hasher.hash_one(user.as_str()) % TURNS as u64;
        Some(self.held.get(usize::try_from(place).ok()?)?.lock().await)
    }
}

impl Gateway {
    /// Refuses a change that would make somebody a member of more rooms than allowed. Hold what it returns until the change
    /// is answered.
    pub(crate) async fn admit_membership(
        &self,
        change: &Change<'_>,
    ) -> Result<Option<MutexGuard<'_, ()>>, Problem> {
        let (Some(most), Some(by)) = (self.rates.user_rooms(), change.by) else { return Ok(None) };
        let (room, user) = match change.what {
            RoomChange::AddMember { room, user } => (room, user),
            // Whoever creates a room is its first member.
            RoomChange::PutRoom { room, .. } => (room, by),
            _ => return Ok(None),
        };
        let ids = (RoomId::new(room), UserId::new(user), UserId::new(by));
        let (Ok(room), Ok(user), Ok(by)) = ids else { return Ok(None) };
        let turn = self.rates.joining.take(&user).await;
        if self.store.user_room_count(user.clone(), most).await? < most {
            return Ok(turn);
        }
        let is_put = matches!(change.what, RoomChange::PutRoom { .. });
        if !self.makes_member(is_put, &room, &user, &by).await? {
            return Ok(turn);
        }
        let detail = format!(
            "{user} is a member of {most} rooms, as many as allowed (limits.user_rooms); leave one first"
        );
        Err(Problem::new(ErrorCode::TooManyRooms, detail))
    }

    /// Whether the store would make `user` a member now. Where it refuses the change, its answer is the one to give.
    async fn makes_member(
        &self,
        is_put: bool,
        room: &RoomId,
        user: &UserId,
        by: &UserId,
    ) -> Result<bool, ReadError> {
        let access = self.store.access(room.clone(), by.clone()).await?;
        Ok(match access {
            Access::Unknown => is_put,
            _ if is_put => false,
            Access::Closed => false,
            Access::Open => user == by,
            Access::Member { .. } => {
                let access = self.store.access(room.clone(), user.clone()).await?;
                !matches!(access, Access::Member { .. })
            }
        })
    }
}
