//! What is known about keys besides their versions: the last revision, how many there are, what runs out, what changed.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use hubbub_core::invariant::saturate;
use hubbub_core::kv::KvChangesRead;
use parking_lot::{Mutex, RwLock};

use super::changes::Changes;
use super::log::{read_log, write_log};
use super::run::{KeyBlock, KeyRun};
use super::tail::Written;
use super::{KV_DIR, Key, KeyCatalog};
use crate::embedded::dedup::filter::BloomFilter;
use crate::embedded::disk::Disk;
use crate::embedded::error::{MaintainError, OpenError};
use crate::embedded::file::kind::remove_unnamed;
use crate::embedded::file::{BlockCache, DataFile};
use crate::embedded::merge::keys::ReservedRuns;
use crate::embedded::options::EngineOptions;
use crate::embedded::segment::IdHasher;

const TAIL_FILTER_BITS_PER_KEY: u64 = 12;

/// When a key runs out, and the revision of the version that does.
pub(crate) type Due = (i64, u64);

/// What all readers and the writer share about keys.
#[derive(Debug)]
pub(crate) struct Keys {
    revision: AtomicU64,
    /// How many keys there are, those included that have run out and are not deleted yet.
    count: AtomicI64,
    /// Every key that runs out, and perhaps versions that are not the newest any more.
    due: Mutex<BTreeMap<Due, Key>>,
    changes: RwLock<Changes>,
    pub(crate) cache: Arc<BlockCache<KeyBlock>>,
    pub(crate) hasher: IdHasher,
    slot_keys_max: u64,
    pub(crate) reserved: Mutex<ReservedRuns>,
}

pub(crate) struct OpenedKeys {
    pub(crate) keys: Keys,
    pub(crate) runs: Vec<KeyRun>,
    pub(crate) log: Option<DataFile>,
}

impl Keys {
    /// Removes what unfinished seals and merges left, then opens what counts.
    pub(crate) fn open(
        disk: &dyn Disk,
        catalog: &KeyCatalog,
        hasher: IdHasher,
        options: &EngineOptions,
    ) -> Result<OpenedKeys, OpenError> {
        let named: HashSet<String> = catalog.paths().collect();
        remove_unnamed(disk, KV_DIR, &["run", "log"], &named)?;
        let cache = BlockCache::new(options.block_cache_bytes);
        let mut due = BTreeMap::new();
        let mut runs = Vec::new();
        for number in &catalog.runs {
            let run = KeyRun::open(disk, *number, Arc::clone(&cache))?;
            run.each_expiring(|key| {
                due.insert((key.expires, key.revision), Key::from(key.key));
            })?;
            runs.push(run);
        }
        let (log, changes) = if catalog.log == 0 {
            (None, Changes::behind(catalog.revision))
        } else {
            let (log, changes) = read_log(disk, catalog.log)?;
            // Where revisions went on behind a gap, what was before it is no history of what comes.
            let follows = changes.head() == catalog.revision;
            (Some(log), if follows { changes } else { Changes::behind(catalog.revision) })
        };
        let keys = Self {
            revision: AtomicU64::new(catalog.revision),
            count: AtomicI64::new(saturate(catalog.keys)),
            due: Mutex::new(due),
            changes: RwLock::new(changes),
            cache,
            hasher,
            slot_keys_max: options.slot_messages_max() as u64,
            reserved: Mutex::default(),
        };
        Ok(OpenedKeys { keys, runs, log })
    }

    /// Enters changes that are durable; the tail's index, which has them, lets no reader in meanwhile.
    pub(crate) fn publish(&self, written: &[Written]) {
        let Some(last) = written.last() else { return };
        {
            let mut changes = self.changes.write();
            for change in written {
                changes.push(change.place.version.revision, &change.key, change.what);
            }
        }
        if written.iter().any(|change| change.replaces.is_some() || change.place.version.expires.is_some()) {
            let mut due = self.due.lock();
            for change in written {
                if let Some(replaced) = &change.replaces {
                    due.remove(replaced);
                }
                let version = &change.place.version;
                if let Some(expires) = version.expires {
                    due.insert((expires, version.revision), Key::clone(&change.key));
                }
            }
        }
        self.count.fetch_add(written.iter().map(|change| change.more_keys).sum(), Ordering::Relaxed);
        self.revision.fetch_max(last.place.version.revision, Ordering::AcqRel);
    }

    pub(crate) fn tail_filter(&self) -> BloomFilter {
        BloomFilter::new(self.slot_keys_max, TAIL_FILTER_BITS_PER_KEY)
    }

    pub(crate) fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }

    pub(crate) fn count(&self) -> u64 {
        saturate(self.count.load(Ordering::Relaxed))
    }

    /// Goes on with revisions that were certainly not given before, and forgets the changes up to there.
    pub(crate) fn jump_to(&self, revision: u64) {
        *self.changes.write() = Changes::behind(revision);
        self.revision.store(revision, Ordering::Release);
    }

    /// Up to `limit` keys that have run out by `now`, and whether there are more.
    pub(crate) fn due_by(&self, now: i64, limit: usize) -> (Vec<(Due, Key)>, bool) {
        let due = self.due.lock();
        let mut all = due.range(..=(now, u64::MAX));
        let found = all.by_ref().take(limit).map(|(due, key)| (*due, Key::clone(key))).collect();
        (found, all.next().is_some())
    }

    pub(crate) fn forget_due(&self, gone: &[Due]) {
        if !gone.is_empty() {
            let mut due = self.due.lock();
            gone.iter().for_each(|gone| drop(due.remove(gone)));
        }
    }

    pub(crate) fn due_in(&self, now: i64) -> Option<Duration> {
        let next = self.due.lock().first_key_value()?.0.0;
        Some(Duration::from_micros(saturate(next.saturating_sub(now))))
    }

    pub(crate) fn changes(&self, prefix: &[u8], after: u64, limit: usize) -> KvChangesRead {
        self.changes.read().read(prefix, after, limit)
    }

    pub(crate) fn write_log(
        &self,
        disk: Arc<dyn Disk>,
        number: u64,
        revision: u64,
    ) -> Result<DataFile, MaintainError> {
        // The lock is not held while the disk is written to.
        let changes = self.changes.read().copy_through(revision);
        write_log(disk, number, &changes, revision)
    }
}
