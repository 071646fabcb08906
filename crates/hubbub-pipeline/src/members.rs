//! Who may read which room, remembered for a while so that the store is not asked each time.
//!
//! What this node commits corrects it at once: an entry that a change may have touched is dropped before the change is
//! answered. The time to live is for changes that other nodes commit. Sends are not judged here: the store does that.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hubbub_core::clock::Clock;
use hubbub_core::store::{Access, Read, ReadError, Store};
use hubbub_core::{Change, Op, OpBatch, Outcome, RoomId, UserId, What};
use quick_cache::sync::Cache;

use crate::metrics::Metrics;

/// Pairs of room and user that are remembered.
const ENTRIES_MAX: usize = 100_000;

#[derive(Clone, Copy)]
struct Entry {
    may_read: bool,
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
        Self { store, clock, metrics, ttl, cache: Cache::new(ENTRIES_MAX), changes: AtomicU64::new(0) }
    }

    /// How the user stands to the room now.
    pub fn access(&self, room: RoomId, user: UserId) -> Read<'_, Access> {
        self.store.access(room, user)
    }

    /// Whether the user may read the room: it is open, or the user a member, or there is none yet.
    pub async fn may_read(&self, room: &RoomId, user: &UserId) -> Result<bool, ReadError> {
        if self.ttl.is_zero() {
            return Ok(may_read(self.access(room.clone(), user.clone()).await?));
        }
        let key = (room.clone(), user.clone());
        let now = self.clock.monotonic();
        if let Some(entry) = self.cache.get(&key).filter(|entry| now < entry.expires_at) {
            self.metrics.members_hits.inc();
            return Ok(entry.may_read);
        }
        self.metrics.members_misses.inc();
        let changes = self.changes.load(Ordering::SeqCst);
        let may_read = may_read(self.access(room.clone(), user.clone()).await?);
        self.cache.insert(key.clone(), Entry { may_read, expires_at: now + self.ttl });
        if self.changes.load(Ordering::SeqCst) != changes {
            self.cache.remove(&key);
        }
        Ok(may_read)
    }

    /// Forgets what a committed batch may have changed.
    pub(crate) fn correct(&self, ops: &OpBatch, outcomes: &[Outcome]) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        for (op, outcome) in ops.iter().zip(outcomes) {
            let (Op::Change(Change { what, .. }), false) = (op, matches!(outcome, Outcome::Refused(_))) else {
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

fn may_read(access: Access) -> bool {
    !matches!(access, Access::Closed)
}
