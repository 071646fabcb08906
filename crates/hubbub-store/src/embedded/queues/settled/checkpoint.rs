//! Remembered ids in the checkpoint of the queues, and the files beside it.

use std::collections::HashSet;
use std::io;

use hubbub_core::invariant::saturate;
use hubbub_core::queue::ID_KEPT_MS;

use super::super::checkpoint::{Copied, write_list};
use super::super::entry::{COPY, Entry};
use super::super::time::{Now, micros};
use super::super::{QueueShared, Queues};
use super::{SettledId, id_run_path, merge, merge_candidates, spill};
use crate::embedded::error::MaintainError;
use crate::embedded::file::{Output, varint};
use crate::embedded::record::{read_fingerprint, read_time, read_u32, write_fingerprint};
use crate::embedded::shared::Shared;

impl Copied {
    /// Writes the ids that stand in no file. `queues`: those there are.
    pub(crate) fn write_ids(&self, queues: &HashSet<u32>, out: &mut Output) -> io::Result<()> {
        // Messages of deleted queues are gone, although they may not be cleared away yet.
        let until = self.now.end_of(self.now.wall, micros(ID_KEPT_MS));
        let is_cleared = |entry: &&Entry| {
            entry.is_known() && entry.is_alive() && !entry.has(COPY) && !queues.contains(&entry.queue)
        };
        let cleared = || {
            let entries = self.slab.iter().map(|(_, entry)| entry).filter(is_cleared);
            entries.map(|entry| SettledId::of(entry, 1, until))
        };
        let frozen = || self.ids.frozen.iter().flat_map(|ids| ids.iter());
        let is_live = |id: &&SettledId| id.forget_at > self.now.at;
        let all = || frozen().chain(self.ids.recent.iter()).filter(is_live).copied().chain(cleared());
        write_list(out, all().count(), all(), |one, out| {
            write_fingerprint(&(one.known_as, one.content), out);
            varint::write(one.id, out);
            varint::write(one.copies.into(), out);
            varint::write(varint::zigzag(one.sent_at.wrapping_sub(self.now.wall)), out);
            varint::write(varint::zigzag(one.forget_at.wrapping_sub(self.now.at)), out);
        })
    }

    pub(crate) fn id_runs(&self) -> Vec<u64> {
        self.ids.runs.iter().map(super::IdRun::number).collect()
    }
}

impl Queues {
    /// The inverse of [`Copied::write_ids`]. `written`: what the wall clock said then.
    pub(crate) fn read_ids(&mut self, input: &mut &[u8], written: i64, now: Now) -> Option<()> {
        for _ in 0..varint::read(input)? {
            let (known_as, content) = read_fingerprint(input)?;
            let (id, copies) = (varint::read(input)?, read_u32(input)?);
            let sent_at = written.wrapping_add(read_time(input)?);
            let left = saturate::<_, u64>(read_time(input)?);
            let forget_at = now.end_of(written, left);
            self.settled.insert(SettledId { known_as, content, copies, id, sent_at, forget_at });
        }
        Some(())
    }
}

impl Shared {
    /// Puts ids of a copy into files: many that were in memory into a new one, several small ones into one. What no
    /// manifest names when this fails is named by the next that is made, or removed by the next start.
    pub(crate) fn keep_ids(&self, copied: &mut Copied) -> Result<(), MaintainError> {
        copied.ids.runs.retain(|run| !run.is_over(copied.now.at));
        let is_damaged = |run: &super::IdRun| self.status.damage.has(&id_run_path(run.number()));
        if let Some(sources) = merge_candidates(&copied.ids.runs, is_damaged).map(<[_]>::to_vec) {
            let run = merge(&self.disk, self.reserve_segment(), &sources, copied.now)?;
            self.queues.edit_ids(self, copied, |ids| ids.merged(&sources, run));
        }
        if !copied.ids.frozen.is_empty() {
            let frozen = std::mem::take(&mut copied.ids.frozen);
            let run = spill(&self.disk, self.reserve_segment(), &frozen, copied.now)?;
            self.queues.edit_ids(self, copied, |ids| ids.spilled(&frozen, run));
        }
        Ok(())
    }
}

impl QueueShared {
    /// Changes which files of ids there are, and tells the copy.
    fn edit_ids(&self, shared: &Shared, copied: &mut Copied, edit: impl FnOnce(&mut super::SettledIds)) {
        copied.ids.runs = self.with(&*shared.clock, |queues, now| {
            queues.changes += 1;
            edit(&mut queues.settled);
            queues.settled.forget(now.at);
            queues.settled.runs.to_vec()
        });
        copied.changes += 1;
    }
}
