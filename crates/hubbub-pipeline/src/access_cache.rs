//! Cache of users' access to rooms, for reading.
//!
//! Commits of this server invalidate it at once: an entry that a change may have affected is removed before the change is
//! answered. The time to live limits how long commits of other servers go unnoticed, so what is read is checked once more
//! ([`AccessCache::current_access`]) before it is shown. Sends are not checked here: the store does that.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hubbub_core::cache;
use hubbub_core::clock::Clock;
use hubbub_core::store::{Access, Read, ReadError, Store};
use hubbub_core::{Change, Op, OpBatch, Outcome, RoomChange, RoomId, UserId};
use quick_cache::UnitWeighter;
use quick_cache::sync::Cache;

use crate::metrics::Metrics;

const ENTRIES_MAX: usize = 100_000;

/// A user's access to a room, for reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessLevel {
    /// The user is a member.
    Member,
    /// The user is not a member of an open room, or of one that does not exist yet, and may read.
    Guest,
    /// The user is not a member of a room for members only.
    Outsider,
}

impl From<Access> for AccessLevel {
    fn from(access: Access) -> Self {
        match access {
            Access::Member { .. } => Self::Member,
            Access::Open | Access::Unknown => Self::Guest,
            Access::Closed => Self::Outsider,
        }
    }
}

#[derive(Debug, Clone)]
struct Entry {
    level: AccessLevel,
    expires_at: Duration,
    /// The epoch of a shared store that it was read in.
    epoch: Option<Arc<str>>,
}

/// Users' access to rooms.
pub struct AccessCache {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    /// How long an entry is valid; zero = nothing is cached.
    ttl: Duration,
    cache: Cache<(RoomId, UserId), Entry>,
    /// Incremented before entries are removed, so that what was read from the store before is not cached after.
    changes: AtomicU64,
}

impl AccessCache {
    /// A cache of what `store` says, whose entries are valid for `ttl`; zero = nothing is cached.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
        ttl: Duration,
    ) -> Self {
        let options = cache::options(ENTRIES_MAX, ENTRIES_MAX as u64, 1);
        let cache = Cache::with_options(options, UnitWeighter, Default::default(), Default::default());
        Self { store, clock, metrics, ttl, cache, changes: AtomicU64::new(0) }
    }

    /// The user's access to the room, read from the store.
    pub fn access(&self, room: RoomId, user: UserId) -> Read<'_, Access> {
        self.store.access(room, user)
    }

    /// The same from the cache: at most as old as the time to live, and as the last change by this server.
    pub async fn cached_access(&self, room: &RoomId, user: &UserId) -> Result<AccessLevel, ReadError> {
        if self.ttl.is_zero() {
            return Ok(self.access(room.clone(), user.clone()).await?.into());
        }
        let key = (room.clone(), user.clone());
        let (now, epoch) = (self.clock.monotonic(), self.epoch());
        if let Some(entry) =
            self.cache.get(&key).filter(|entry| now < entry.expires_at && entry.epoch == epoch)
        {
            self.metrics.members_hits.inc();
            return Ok(entry.level);
        }
        self.metrics.members_misses.inc();
        let changes = self.changes.load(Ordering::SeqCst);
        let access = self.access(room.clone(), user.clone()).await?;
        let level = access.into();
        // Whoever makes the room, perhaps through another server, may make it one for members only.
        let is_unknown = access == Access::Unknown;
        // Another server may let the user in at any time, and who has its answer may read here at once.
        let may_come_in = access == Access::Closed && self.store.is_shared();
        if is_unknown || may_come_in {
            return Ok(level);
        }
        self.cache.insert(key.clone(), Entry { level, expires_at: now + self.ttl, epoch });
        if self.changes.load(Ordering::SeqCst) != changes {
            self.cache.remove(&key);
        }
        Ok(level)
    }

    /// The same as of now, wherever it was changed: where other servers write to the store, too, it is asked.
    pub async fn current_access(&self, room: &RoomId, user: &UserId) -> Result<AccessLevel, ReadError> {
        if !self.store.is_shared() {
            return self.cached_access(room, user).await;
        }
        let level = self.access(room.clone(), user.clone()).await?.into();
        if level == AccessLevel::Outsider {
            self.cache.remove(&(room.clone(), user.clone()));
        }
        Ok(level)
    }

    /// Another epoch may lack the changes of this one.
    fn epoch(&self) -> Option<Arc<str>> {
        self.store.is_shared().then(|| self.store.epoch())
    }

    /// Changes may have been missed, or may be stored although they failed: everything is read anew.
    pub(crate) fn clear(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.cache.clear();
    }

    /// Removes the entries that a committed batch may have changed.
    pub(crate) fn apply_committed(&self, ops: &OpBatch, outcomes: &[Outcome]) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        for (op, outcome) in ops.iter().zip(outcomes) {
            let (Op::Change(Change { what, .. }), false) = (op, matches!(outcome, Outcome::Refused(_)))
            else {
                continue;
            };
            match what {
                RoomChange::AddMember { room, user } | RoomChange::RemoveMember { room, user } => {
                    if let (Ok(room), Ok(user)) = (RoomId::new(room), UserId::new(user)) {
                        self.cache.remove(&(room, user));
                    }
                }
                // All entries of the room or user would have to be found; such changes are rare.
                RoomChange::PutRoom { .. } | RoomChange::DeleteRoom { .. } | RoomChange::EraseUser { .. } => {
                    self.cache.clear()
                }
                RoomChange::MarkRead { .. } | RoomChange::ExpireMessages { .. } => {}
            }
        }
    }
}
