//! Merging neighbouring runs of keys: overwritten versions are left out, and the mark of a deleted key once nothing older
//! is left.

use std::sync::Arc;

use super::{replace_neighbours, smallest_neighbours};
use crate::embedded::error::MaintainError;
use crate::embedded::kv::run::{KeyRun, RunWriter, merge};
use crate::embedded::kv::{KV_DIR, run_path};
use crate::embedded::manifest::may_be_named;
use crate::embedded::shared::Shared;

/// More runs than this are merged.
const RUNS_MAX: usize = 8;

const FAN_IN: usize = 4;

/// Numbers of runs that are being written, kept until a manifest may name them.
#[derive(Debug, Default)]
pub(crate) struct ReservedRuns {
    pub(crate) seal: Option<u64>,
    merge: Option<u64>,
}

impl Shared {
    /// Merges neighbouring runs when there are many. Says whether it did.
    pub(crate) fn merge_keys(&self) -> Result<bool, MaintainError> {
        // So that no backup is begun meanwhile, and one merge is done at a time.
        let _merging = self.merging.lock();
        let Some((runs, is_oldest)) = self.run_candidates() else { return Ok(false) };
        self.dirs.check(&["", KV_DIR])?;
        let number = {
            let mut reserved = self.keys.reserved.lock();
            *reserved.merge.get_or_insert_with(|| self.reserve_run())
        };
        let path = run_path(number);
        let keys_max = runs.iter().map(KeyRun::keys).sum();
        let writer = RunWriter::create(Arc::clone(&self.disk), number, keys_max, self.hasher);
        let merged = self.write_merged(
            &path,
            writer,
            |writer| merge(&runs, is_oldest, writer, || !self.wakeup.is_stopped()),
            || KeyRun::open(&*self.disk, number, Arc::clone(&self.keys.cache)),
        )?;
        let Some(merged) = merged else { return Ok(false) };
        let replaced = self.replace_runs(&runs, merged);
        if may_be_named(&replaced) {
            self.keys.reserved.lock().merge = None;
        }
        replaced.map(|()| true)
    }

    /// The neighbours that are smallest together, if there are too many runs, and whether the oldest is among them.
    fn run_candidates(&self) -> Option<(Vec<KeyRun>, bool)> {
        let view = self.view();
        if view.runs.len() <= RUNS_MAX {
            return None;
        }
        // Merging a run that cannot be read would fail again each time.
        let is_damaged = |run: &KeyRun| self.status.damage.has(&run_path(run.number()));
        let free = self.bytes_for_merges();
        let may_merge = |group: &[KeyRun], bytes| bytes <= free && !group.iter().any(is_damaged);
        let (place, group) = smallest_neighbours(&view.runs, FAN_IN..=FAN_IN, KeyRun::bytes, may_merge)?;
        Some((group.to_vec(), place == 0))
    }

    /// Puts `by` in the place of neighbours, in the manifest, in the view, then on the disk.
    fn replace_runs(&self, old: &[KeyRun], by: Option<KeyRun>) -> Result<(), MaintainError> {
        let old: Vec<u64> = old.iter().map(KeyRun::number).collect();
        let by_number = by.as_ref().map(KeyRun::number);
        self.change_manifest(|manifest| {
            replace_neighbours(&mut manifest.keys.runs, |number| *number, &old, by_number);
        })?;
        self.change_view(|view| replace_neighbours(&mut view.runs, KeyRun::number, &old, by));
        self.remove_files(old.into_iter().map(run_path))
    }
}
