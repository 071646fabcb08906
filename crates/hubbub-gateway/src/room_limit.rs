//! Bounds the rooms that one user is a member of (`limits.user_rooms`), on every store alike: the rooms are counted before
//! the change is submitted.
//!
//! Joins of one user over this server take turns from the count to the answer, so that those that come together are not all
//! counted before any of them. Each other server of the store may add one at the same moment. Administrators are not bound.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use hubbub_core::store::{Access, ReadError};
use hubbub_core::{Change, ErrorCode, RoomChange, RoomId, UserId};
use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

use crate::Gateway;
use crate::problem::Problem;

/// Joins of one user that may be under way: as many as requests of one connection over HTTP/2.
const JOINS_MAX: usize = 64;
/// How long a join waits for its turn.
const PATIENCE: Duration = Duration::from_secs(5);

/// Who joins rooms now. Users do not wait for each other.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    users: Mutex<HashMap<UserId, Joins>>,
}

#[derive(Debug, Default)]
struct Joins {
    under_way: usize,
    turn: Arc<tokio::sync::Mutex<()>>,
}

/// The turn of one join, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    _turn: OwnedMutexGuard<()>,
    _join: JoinUnderWay,
}

/// A join that is under way.
#[derive(Debug)]
struct JoinUnderWay {
    turns: Arc<Turns>,
    user: UserId,
}

impl Turns {
    /// Waits for the user's turn to join, but not for long: whoever is before may wait for the store.
    async fn take(self: &Arc<Self>, user: UserId, patience: Duration) -> Result<Turn, Problem> {
        let turn = {
            let mut users = self.users.lock();
            let joins = users.entry(user.clone()).or_default();
            if joins.under_way >= JOINS_MAX {
                return Err(overloaded());
            }
            joins.under_way += 1;
            joins.turn.clone()
        };
        let join = JoinUnderWay { turns: self.clone(), user };
        match tokio::time::timeout(patience, turn.lock_owned()).await {
            Ok(turn) => Ok(Turn { _turn: turn, _join: join }),
            Err(_) => Err(overloaded()),
        }
    }
}

impl Drop for JoinUnderWay {
    fn drop(&mut self) {
        let mut users = self.turns.users.lock();
        if let Some(joins) = users.get_mut(&self.user) {
            joins.under_way -= 1;
            if joins.under_way == 0 {
                users.remove(&self.user);
            }
        }
    }
}

fn overloaded() -> Problem {
    Problem::new(ErrorCode::Overloaded, "too many joins of this user wait for each other")
}

impl Gateway {
    /// Refuses a change that would make somebody a member of more rooms than allowed. Hold what it returns until the change
    /// is made, also where nobody waits for the answer any more.
    pub(crate) async fn admit_membership(&self, change: &Change<'_>) -> Result<Option<Turn>, Problem> {
        let (Some(most), Some(by)) = (self.rates.user_rooms(), change.by) else { return Ok(None) };
        let (room, user) = match change.what {
            RoomChange::AddMember { room, user } => (room, user),
            // Whoever creates a room is its first member.
            RoomChange::PutRoom { room, .. } => (room, by),
            _ => return Ok(None),
        };
        let ids = (RoomId::new(room), UserId::new(user), UserId::new(by));
        let (Ok(room), Ok(user), Ok(by)) = ids else { return Ok(None) };
        let turn = Some(self.rates.joining.take(user.clone(), PATIENCE).await?);
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

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_secs(60);

    fn user(name: &str) -> UserId {
        UserId::new(name).unwrap()
    }

    #[tokio::test]
    async fn nobody_waits_for_others_nor_for_long() {
        let turns = Arc::new(Turns::default());
        let held = turns.take(user("ada"), LONG).await.unwrap();
        let mut others = Vec::new();
        for number in 0..1_000 {
            others.push(turns.take(user(&number.to_string()), SHORT).await.unwrap());
        }
        assert_eq!(turns.take(user("ada"), SHORT).await.unwrap_err().code, ErrorCode::Overloaded);
        drop(held);
        assert!(turns.take(user("ada"), SHORT).await.is_ok());
        drop(others);
        assert!(turns.users.lock().is_empty(), "nothing is kept of them");
    }

    #[tokio::test]
    async fn few_joins_of_a_user_wait() {
        let turns = Arc::new(Turns::default());
        let held = turns.take(user("ada"), LONG).await.unwrap();
        let wait = |_| {
            let turns = turns.clone();
            tokio::spawn(async move { turns.take(user("ada"), LONG).await.map(drop) })
        };
        let waiting: Vec<_> = (1..JOINS_MAX).map(wait).collect();
        while turns.users.lock()[&user("ada")].under_way < JOINS_MAX {
            tokio::task::yield_now().await;
        }
        // Without a place it is refused at once.
        assert_eq!(turns.take(user("ada"), LONG).await.unwrap_err().code, ErrorCode::Overloaded);
        drop(held);
        for waiting in waiting {
            assert_eq!(waiting.await.unwrap(), Ok(()));
        }
        assert!(turns.users.lock().is_empty());
    }
}
