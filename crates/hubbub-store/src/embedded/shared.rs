//! State that the writer, the readers and the background threads of one engine share.
//!
//! Locks, in the order in which they may be taken: `merging` → `sealing` → the writer → `catalog` → `stats` (its
//! `rebuilding`, then its `state`) → `rooms` → `view` → a tail's index. Readers of rooms take the last three, each alone and
//! for moments; `catalog` is held while the manifest is written, by background work only; whoever takes segments or full
//! tails out of the view holds `stats` meanwhile. A writer takes `stats` never. The lock of `queues` is taken behind the
//! writer's or alone, and nothing behind it but the names of clients and the pool of slots; payloads are read under it by the
//! writer only. Last come those of a tail's keys, and within it those in `keys`, each alone.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use hubbub_core::Clock;
use hubbub_core::store::ReadError;
use parking_lot::{Mutex, RwLock};

use crate::embedded::dedup::FreshFilter;
use crate::embedded::disk::Disk;
use crate::embedded::disk::checked_dirs::CheckedDirs;
use crate::embedded::disk::format_file;
use crate::embedded::engine::wakeup::WakeupSignal;
use crate::embedded::error::MaintainError;
use crate::embedded::journal::end::EndFile;
use crate::embedded::journal::slot::SlotPool;
use crate::embedded::kv::Keys;
use crate::embedded::manifest::Manifest;
use crate::embedded::merge::segments::MergeState;
use crate::embedded::options::{EngineOptions, WAITING_SLOTS_MAX};
use crate::embedded::queues::QueueShared;
use crate::embedded::rooms::Rooms;
use crate::embedded::segment::{BlockCache, IdHasher};
use crate::embedded::stats::Stats;
use crate::embedded::status::Status;
use crate::embedded::view::View;

pub(crate) struct Shared {
    pub(crate) options: EngineOptions,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dirs: Arc<CheckedDirs>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) epoch: Arc<str>,
    pub(crate) hasher: IdHasher,
    pub(crate) cache: Arc<BlockCache>,
    pub(crate) slots: Arc<SlotPool>,
    pub(crate) end: EndFile,
    /// The manifest as it stands on the disk, except for the rooms.
    pub(crate) catalog: Mutex<Manifest>,
    pub(crate) rooms: RwLock<Rooms>,
    pub(crate) queues: QueueShared,
    pub(crate) view: RwLock<Arc<View>>,
    pub(crate) status: Status,
    pub(crate) keys: Keys,
    pub(crate) stats: Stats,
    pub(crate) fresh_filter: Mutex<Option<FreshFilter>>,
    /// Number of a segment whose ids could not be read for a filter; 0 = none.
    pub(crate) unreadable_ids: AtomicU64,
    pub(crate) wakeup: WakeupSignal,
    /// One seal at a time; the number reserved for its segment.
    pub(crate) sealing: Mutex<Option<u64>>,
    /// One merge or removal at a time.
    pub(crate) merging: Mutex<MergeState>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("epoch", &self.epoch)
            .field("slots", &self.slots)
            .finish_non_exhaustive()
    }
}

impl Shared {
    pub(crate) fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.read())
    }

    pub(crate) fn change_view(&self, change: impl FnOnce(&mut View)) {
        // The old view is dropped behind the lock: it may be the last one to hold a slot or a segment.
        let _old = {
            let mut view = self.view.write();
            let mut next = View::clone(&view);
            change(&mut next);
            std::mem::replace(&mut *view, Arc::new(next))
        };
    }

    /// Says so when so little space is free that the rest is kept for seals, deletion and the next start.
    pub(crate) fn reserve_is_touched(&self) -> Option<String> {
        if let Some(reason) = self.keeps_all() {
            return Some(reason);
        }
        let reserve = self.options.reserve_bytes;
        // A disk that cannot say how much is free is found full when a write fails.
        let free = self.disk.free_bytes().ok()?;
        (free < reserve).then(|| {
            format!("{free} bytes are free, {reserve} are kept in reserve (store.embedded.disk_reserve)")
        })
    }

    /// Says so if there is no space for one more slot beside the reserve.
    pub(crate) fn little_space(&self) -> Option<String> {
        let (reserve, slot) = (self.options.reserve_bytes, self.options.slot_bytes);
        let free = self.disk.free_bytes().ok()?;
        (free < reserve.saturating_add(slot)).then(|| {
            format!(
                "little space on the disk: {free} bytes are free, and with less than {reserve} \
                 (store.embedded.disk_reserve) nothing is stored; free some, or lower that"
            )
        })
    }

    /// Bytes that a merge may write: the reserve is for seals and deletion.
    pub(crate) fn bytes_for_merges(&self) -> u64 {
        self.disk.free_bytes().map_or(u64::MAX, |free| free.saturating_sub(self.options.reserve_bytes))
    }

    /// Bytes that may be written where that ends in fewer on the disk.
    pub(crate) fn bytes_for_deletion(&self) -> u64 {
        self.disk.free_bytes().unwrap_or(u64::MAX)
    }

    /// Says so while nothing may be removed or overwritten, not even in a slot that is free by the manifest that was read.
    pub(crate) fn keeps_all(&self) -> Option<String> {
        self.dirs.keeps_all().then(|| "the manifest could not be written anew at the start".into())
    }

    /// Writes the manifest anew if there was no space for that at the start: only then may anything that another one may
    /// name be removed or overwritten.
    pub(crate) fn renew_manifest(&self) -> Result<(), MaintainError> {
        if self.dirs.keeps_all() {
            format_file::create(&*self.disk)?;
            self.change_manifest(|_| {})?;
            self.dirs.keep_all(false);
        }
        Ok(())
    }

    /// Notes what could not be read, and says so to whoever asked.
    pub(crate) fn unreadable(&self, error: MaintainError) -> ReadError {
        self.status.damage.note(&error);
        let reason = error.to_string();
        if error.is_damage() {
            ReadError::Damaged { reason, resume_at: None }
        } else {
            ReadError::Unavailable { reason }
        }
    }

    /// How long the writer has found no slot to go on to; `None` if it would find one now.
    pub(crate) fn without_slot_for(&self) -> Option<Duration> {
        let waited = self.status.without_slot_for(self.clock.monotonic())?;
        (self.waits_for_seals() || !self.slots.has_free()).then_some(waited)
    }

    /// Whether so many slots wait for their seal that writers go on to no further one.
    pub(crate) fn waits_for_seals(&self) -> bool {
        self.waiting_slots() >= WAITING_SLOTS_MAX
    }

    /// Full slots that wait for their seal.
    pub(crate) fn waiting_slots(&self) -> usize {
        self.view.read().tails.len().saturating_sub(1)
    }
}
