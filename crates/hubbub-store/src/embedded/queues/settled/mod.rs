//! Ids of messages that are gone, each remembered until its time, however many there are.
//!
//! The newest are in memory ([`recent`]). When a slot is sealed and there are more of them than may stay there, all are
//! written to a file ([`run`]), of which memory keeps a filter and an index; the manifest names it together with the
//! checkpoint. Files are merged when they are many, and dropped whole when the last of their ids is forgotten.
//!
//! Whoever is newer counts: ids in memory before those in files, later files before earlier ones. An id that was forgotten
//! and used again is therefore found as it was used last.

mod checkpoint;
mod recent;
mod record;
mod run;
mod writer;

#[cfg(test)]
mod tests;

use std::sync::Arc;

pub(super) use recent::RecentIds;
pub(super) use record::SettledId;
pub(crate) use run::IdRun;
pub(super) use run::id_run_path;

use super::time::Now;
use crate::embedded::disk::Disk;
use crate::embedded::error::MaintainError;

/// More files that may still be merged than this are merged, neighbours that are smallest together.
const RUNS_MAX: usize = 8;

/// Files that become one.
const FAN_IN: usize = 4;

/// No merged file has more ids than this: about 200 MB, so that no seal waits long for a merge.
const RUN_IDS_MAX: u64 = 4_000_000;

/// All ids that are remembered of messages that are gone.
#[derive(Debug, Clone, Default)]
pub(super) struct SettledIds {
    pub(super) recent: RecentIds,
    /// Ids on their way to a file, oldest first.
    pub(super) frozen: Vec<Arc<RecentIds>>,
    /// Oldest first.
    pub(super) runs: Vec<IdRun>,
    /// More recent ones than this go to a file when a slot is sealed.
    pub(super) memory_max: usize,
}

impl SettledIds {
    pub(super) fn insert(&mut self, record: SettledId) {
        self.recent.insert(record);
    }

    /// What is remembered of an id. Asks the disk where the id was used before, and hardly ever where it was not.
    pub(super) fn find(&self, known_as: [u64; 2], now: i64) -> Result<Option<SettledId>, MaintainError> {
        let in_memory = [&self.recent].into_iter().chain(self.frozen.iter().rev().map(|frozen| &**frozen));
        let mut found = in_memory.filter_map(|ids| ids.find(known_as)).next().copied();
        for run in self.runs.iter().rev().filter(|run| !run.is_over(now)) {
            if found.is_some() {
                break;
            }
            found = run.find(known_as)?;
        }
        Ok(found.filter(|found| found.forget_at > now))
    }

    /// Forgets those in memory whose time has come, and lets go of files whose ids are all forgotten.
    pub(super) fn forget(&mut self, now: i64) {
        self.recent.forget(now);
        if self.runs.iter().any(|run| run.is_over(now)) {
            self.runs.retain(|run| !run.is_over(now));
        }
    }

    /// A copy of everything, which takes no longer than few ids are: if there are many in memory, they are put aside.
    pub(super) fn copied(&mut self) -> Self {
        if self.recent.len() > self.memory_max {
            // As many will follow: a table that grows would hold up a commit.
            let next = RecentIds::with_capacity(self.recent.len());
            self.frozen.push(Arc::new(std::mem::replace(&mut self.recent, next)));
        }
        self.clone()
    }

    /// Ids that were put aside stand in a file from now on; `None` = they were over.
    pub(super) fn spilled(&mut self, frozen: &[Arc<RecentIds>], run: Option<IdRun>) {
        self.frozen.retain(|kept| !frozen.iter().any(|gone| Arc::ptr_eq(kept, gone)));
        self.runs.extend(run);
    }

    /// Files from number to number of the list stand in one from now on; `None` = all of that was over.
    pub(super) fn merged(&mut self, sources: &[IdRun], run: Option<IdRun>) {
        let is_source = |run: &IdRun| sources.iter().any(|source| source.number() == run.number());
        let place = self.runs.iter().position(is_source).unwrap_or(self.runs.len());
        self.runs.retain(|run| !is_source(run));
        if let Some(run) = run {
            self.runs.insert(place.min(self.runs.len()), run);
        }
    }
}

/// Writes ids that were put aside to a file.
pub(super) fn spill(
    disk: &Arc<dyn Disk>,
    number: u64,
    frozen: &[Arc<RecentIds>],
    now: Now,
) -> Result<Option<IdRun>, MaintainError> {
    let count = frozen.iter().map(|ids| ids.len() as u64).sum();
    let sources = frozen.iter().map(|ids| Box::new(ids.sorted().into_iter().map(Ok)) as _);
    writer::write(disk, number, sources, count, now)
}

/// Writes what several files have to one.
pub(super) fn merge(
    disk: &Arc<dyn Disk>,
    number: u64,
    runs: &[IdRun],
    now: Now,
) -> Result<Option<IdRun>, MaintainError> {
    let count = runs.iter().map(IdRun::records).sum();
    writer::write(disk, number, runs.iter().map(|run| Box::new(run.scan()) as _), count, now)
}

/// Neighbours that are to be merged: the smallest together, if there are many that may be. Those that could not be read
/// stay as they are until all their ids are forgotten.
pub(super) fn merge_candidates(runs: &[IdRun], is_damaged: impl Fn(&IdRun) -> bool) -> Option<&[IdRun]> {
    let ids = |runs: &[IdRun]| runs.iter().map(IdRun::records).sum::<u64>();
    let is_open = |run: &&IdRun| run.records() * FAN_IN as u64 <= RUN_IDS_MAX && !is_damaged(run);
    if runs.iter().filter(is_open).count() <= RUNS_MAX {
        return None;
    }
    let windows = runs.windows(FAN_IN).filter(|window| ids(window) <= RUN_IDS_MAX);
    let windows = windows.filter(|window| !window.iter().any(&is_damaged));
    windows.min_by_key(|window| ids(window))
}
