//! Who may read which room, remembered for a while so that the store is not asked each time.
//!
//! What this node commits corrects it at once: an entry that a change may have touched is dropped before the change is
//! answered. The time to live is for changes that other nodes commit. Sends are not judged here: the store does that.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hubbub_core::cache;
use hubbub_core::clock::Clock;
use hubbub_core::store::{Access, Read, ReadError, Store};
use hubbub_core::{Change, Op, OpBatch, Outcome, RoomId, UserId, What};
use quick_cache::UnitWeighter;
use quick_cache::sync::Cache;

use crate::metrics::Metrics;

/// Pairs of room and user that are remembered.
const ENTRIES_MAX: usize = 100_000;

/// How a user stands to a room, for reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// A member.
    Member,
    /// No member of an open room, or of one that does not exist yet: may read.
    Guest,
    /// No member of a room for members only.
    Outsider,
}

impl From<Access> for Standing {
    fn from(access: Access) -> Self {
        match access {
            Access::Member { .. } => Self::Member,
            Access::Open | Access::Unknown => Self::Guest,
            Access::Closed => Self::Outsider,
        }
    }
}

#[derive(Clone, Copy)]
struct Entry {
    standing: Standing,
    expires_at: Duration,
}

/// How users stand to rooms.
pub struct Members {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    /// How long an answer is remembered; zero = not at all.
    ttl: Duration,
    cache: Cache<(RoomId, UserId), Entry>,
    /// Grows before entries are dropped, so that an answer read from the store before is not remembered after.
    changes: AtomicU64,
}

impl Members {
    /// Asks `store`, and remembers its answers for `ttl`; zero = not at all.
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, metrics: Arc<Metrics>, ttl: Duration) -> Self {
        let options = cache::options(ENTRIES_MAX, ENTRIES_MAX as u64, 1);
        let cache = Cache::with_options(options, UnitWeighter, Default::default(), Default::default());
        Self { store, clock, metrics, ttl, cache, changes: AtomicU64::new(0) }
    }

    /// How the user stands to the room now.
    pub fn access(&self, room: RoomId, user: UserId) -> Read<'_, Access> {
        self.store.access(room, user)
    }

    /// The same for reading, as it was at some time within the time to live, and since the last change by this node.
    pub async fn standing(&self, room: &RoomId, user: &UserId) -> Result<Standing, ReadError> {
        if self.ttl.is_zero() {
            return Ok(self.access(room.clone(), user.clone()).await?.into());
        }
        let key = (room.clone(), user.clone());
        let now = self.clock.monotonic();
        if let Some(entry) = self.cache.get(&key).filter(|entry| now < entry.expires_at) {
            self.metrics.members_hits.inc();
            return Ok(entry.standing);
        }
        self.metrics.members_misses.inc();
        let changes = self.changes.load(Ordering::SeqCst);
        let standing = self.access(room.clone(), user.clone()).await?.into();
        self.cache.insert(key.clone(), Entry { standing, expires_at: now + self.ttl });
        if self.changes.load(Ordering::SeqCst) != changes {
            self.cache.remove(&key);
        }
        Ok(standing)
    }

    /// Forgets what a committed batch may have changed.
    pub(crate) fn correct(&self, ops: &OpBatch, outcomes: &[Outcome]) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        for (op, outcome) in ops.iter().zip(outcomes) {
            let (Op::Change(Change { what, .. }), false) = (op, matches!(outcome, Outcome::Refused(_)))
            else {
                continue;
            };
            match what {
                What::AddMember { room, user } | What::RemoveMember { room, user } => {
                    if let (Ok(room), Ok(user)) = (RoomId::new(room), UserId::new(user)) {
                        self.cache.remove(&(room, user));
                    }
                }
                // Whoever the room, or the user, was remembered with: such changes are rare.
                What::PutRoom { .. } | What::DeleteRoom { .. } | What::EraseUser { .. } => self.cache.clear(),
                What::MarkRead { .. } => {}
            }
        }
    }
}
