//! Fewer runs: neighbours are merged, overwritten versions stay behind, and what says that a key is deleted goes once
//! nothing older is left.

use std::sync::Arc;

use crate::embedded::error::{DoingOn, MaintainError};
use crate::embedded::kv::run::{Run, RunWriter, merge};
use crate::embedded::kv::run_path;
use crate::embedded::manifest::may_be_named;
use crate::embedded::segment::MergeError;
use crate::embedded::shared::Shared;

/// More runs than this are merged.
const RUNS_MAX: usize = 8;

/// How many become one.
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
        // So that no snapshot is begun meanwhile, and one merge is done at a time.
        let _compacting = self.compacting.lock();
        let Some((runs, is_oldest)) = self.run_candidates() else { return Ok(false) };
        let number = {
            let mut reserved = self.keys.reserved.lock();
            *reserved.merge.get_or_insert_with(|| self.reserve_run())
        };
        let path = run_path(number);
        let keys_max = runs.iter().map(Run::keys).sum();
        let mut writer = RunWriter::create(Arc::clone(&self.disk), number, keys_max, self.hasher)
            .doing("making", &path)?;
        // When the store closes, what was written is of no use.
        let merged = merge(&runs, is_oldest, &mut writer, || !self.bell.is_stopped());
        if self.bell.is_stopped() {
            writer.discard().doing("removing", &path)?;
            return Ok(false);
        }
        if let Err(error) = merged {
            // Only to give the space back at once; the next attempt writes the same file.
            let _ = writer.discard();
            return Err(match error {
                MergeError::Read(error) => error.into(),
                MergeError::Write(source) => MaintainError::Io { attempted: "writing", path, source },
            });
        }
        let merged = if writer.keys() == 0 {
            writer.discard().doing("removing", &path)?;
            None
        } else {
            writer.finish().doing("finishing", &path)?;
            Some(Run::open(&*self.disk, number, Arc::clone(&self.keys.cache))?)
        };
        let replaced = self.replace_runs(&runs, merged);
        if may_be_named(&replaced) {
            self.keys.reserved.lock().merge = None;
        }
        replaced.map(|()| true)
    }

    /// The neighbours that are smallest together, if there are too many runs, and whether the oldest is among them.
    fn run_candidates(&self) -> Option<(Vec<Run>, bool)> {
        let view = self.view();
        if view.runs.len() <= RUNS_MAX {
            return None;
        }
        let bytes = |(_, group): &(usize, &[Run])| group.iter().map(Run::bytes).sum::<u64>();
        // Merging a run that cannot be read would fail again each time.
        let is_damaged = |run: &Run| self.status.damage.has(&run_path(run.number()));
        let groups = view.runs.windows(FAN_IN).enumerate();
        let readable = groups.filter(|(_, group)| !group.iter().any(is_damaged));
        let (place, group) = readable.min_by_key(bytes)?;
        Some((group.to_vec(), place == 0))
    }

    /// Puts `by` in the place of neighbours, in the manifest, in the view, then on the disk.
    fn replace_runs(&self, old: &[Run], by: Option<Run>) -> Result<(), MaintainError> {
        let is_old = |number: &u64| old.iter().any(|run| run.number() == *number);
        let first = old.first().map(Run::number);
        self.change_manifest(|manifest| {
            let runs = &mut manifest.keys.runs;
            let place = runs.iter().position(|number| Some(*number) == first);
            if let (Some(by), Some(place)) = (&by, place) {
                runs.insert(place, by.number());
            }
            runs.retain(|number| !is_old(number));
        })?;
        self.change_view(|view| {
            let place = view.runs.iter().position(|run| Some(run.number()) == first);
            if let (Some(by), Some(place)) = (by, place) {
                view.runs.insert(place, by);
            }
            view.runs.retain(|run| !is_old(&run.number()));
        });
        for run in old {
            let path = run_path(run.number());
            self.disk.remove(&path).doing("removing", &path)?;
        }
        Ok(())
    }
}
