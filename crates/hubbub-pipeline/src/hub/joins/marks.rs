//! Reads the marks that users joined with, for the hints to other servers.

use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use hubbub_core::store::Access;
use hubbub_core::{Change, Outcome, RoomChange, RoomId, UserId};
use tokio::time::timeout;

use super::super::changes::QUERIES_MAX;
use super::super::{Hub, QueryAccess};

/// Joins of one batch whose marks are read before it is answered, and how long that may delay the answer.
const MARKS_MAX: usize = QUERIES_MAX;
const MARKS_TIMEOUT: Duration = Duration::from_millis(250);
/// After it took longer than this, marks are not read for so many times as long as it took: a slow store delays answers for a
/// small share of the time.
const MARKS_SLOW: Duration = Duration::from_millis(50);
const MARKS_SHARE: u32 = 40;

/// Who became a member of which room, and with which read mark, if it is known.
pub(in super::super) struct Join {
    room: RoomId,
    user: UserId,
    mark: Option<u64>,
}

impl Join {
    /// The join that this change made.
    pub(in super::super) fn of(change: &Change<'_>, outcome: &Outcome) -> Option<Self> {
        // What was executed before was so by a server that may not have come to tell.
        let (room, user, mark) = match (change.what, outcome) {
            (
                RoomChange::AddMember { room, user },
                Outcome::Changed { changed: true } | Outcome::Accepted,
            ) => (room, user, None),
            // The room is new, and has no messages.
            (RoomChange::PutRoom { room, .. }, Outcome::Room { created: true }) => {
                (room, change.by?, Some(0))
            }
            (RoomChange::PutRoom { room, .. }, Outcome::Accepted) => (room, change.by?, None),
            _ => return None,
        };
        Some(Self { room: RoomId::new(room).ok()?, user: UserId::new(user).ok()?, mark })
    }
}

impl Hub {
    /// Gives other servers hints that users became members through this one. The marks are read before that is answered, as
    /// whoever knows of the membership may move the mark. Those that the store does not tell in time are left out.
    pub(in super::super) async fn broadcast_joined(&self, mut joins: Vec<Join>, access: &QueryAccess<'_>) {
        let Some(relay) = self.relay.get() else { return };
        let lacking = joins.iter_mut().filter(|join| join.mark.is_none());
        self.read_marks(lacking.take(MARKS_MAX).collect(), access).await;
        for Join { room, user, mark } in &joins {
            relay.joined(room, user, *mark);
        }
    }

    /// Tells other servers of a removal through this one.
    pub(in super::super) fn broadcast_left(&self, change: &Change<'_>, outcome: &Outcome) {
        if let (Some(relay), RoomChange::RemoveMember { room, user }) = (self.relay.get(), change.what)
            && matches!(outcome, Outcome::Changed { changed: true } | Outcome::Accepted)
            && let (Ok(room), Ok(user)) = (RoomId::new(room), UserId::new(user))
        {
            relay.left(&room, &user);
        }
    }

    async fn read_marks(&self, joins: Vec<&mut Join>, access: &QueryAccess<'_>) {
        if joins.is_empty() {
            return;
        }
        let reading = joins.into_iter().map(async |join| {
            if let Ok(Access::Member { read_seq }) = access(join.room.clone(), join.user.clone()).await {
                join.mark = Some(read_seq);
            }
        });
        let reading: FuturesUnordered<_> = reading.collect();
        self.if_quick(reading.for_each(async |()| {})).await;
    }

    /// Asks the store, while others wait, unless it was slow just before. `None` if it does not answer in time.
    pub(in super::super) async fn if_quick<T>(&self, asking: impl Future<Output = T>) -> Option<T> {
        let began = self.clock.monotonic();
        if began < *self.joins.marks_from.lock() {
            return None;
        }
        let answer = timeout(MARKS_TIMEOUT, asking).await.ok();
        let now = self.clock.monotonic();
        let took = if answer.is_some() { now.saturating_sub(began) } else { MARKS_TIMEOUT };
        if took > MARKS_SLOW {
            *self.joins.marks_from.lock() = now + took * MARKS_SHARE;
        }
        answer
    }
}
