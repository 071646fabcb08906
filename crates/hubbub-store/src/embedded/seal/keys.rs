//! Sealing the keys of a full slot into a run.

use std::ops::Bound;
use std::sync::Arc;

use crate::embedded::error::{DoingOn, MaintainError};
use crate::embedded::file::{DataFile, write_sorted};
use crate::embedded::kv::run::{KeyRun, RunWriter};
use crate::embedded::kv::tail::{KeyLocation, read_change};
use crate::embedded::kv::{Key, KeyCatalog, Patience, run_path};
use crate::embedded::shared::Shared;
use crate::embedded::tail::Tail;
use crate::embedded::view::View;

const PAGE: usize = 1_000;

/// What a slot leaves of its keys. All of it is durable, nothing of it is named in the manifest yet.
#[derive(Debug)]
pub(crate) struct SealedKeys {
    run: KeyRun,
    log: DataFile,
    revision: u64,
    more_keys: i64,
}

impl SealedKeys {
    pub(crate) fn add_to(&self, catalog: &mut KeyCatalog) {
        catalog.runs.push(self.run.number());
        catalog.log = self.log.number;
        catalog.revision = catalog.revision.max(self.revision);
        catalog.keys = catalog.keys.saturating_add_signed(self.more_keys);
    }

    /// Shows it to readers. Answers the log that is of no use any more.
    pub(crate) fn publish(self, view: &mut View) -> Option<DataFile> {
        view.runs.push(self.run);
        view.key_log.replace(self.log)
    }
}

impl Shared {
    /// Writes the keys of a tail into a run, and the last changes into a log. `None` when nothing in it is about keys.
    pub(crate) fn seal_keys(&self, tail: &Tail) -> Result<Option<SealedKeys>, MaintainError> {
        if tail.keys.len() == 0 {
            return Ok(None);
        }
        // Kept until a manifest may name it, so that the next attempt replaces what a failed one left.
        let number = {
            let mut reserved = self.keys.reserved.lock();
            *reserved.seal.get_or_insert_with(|| self.reserve_run())
        };
        let path = run_path(number);
        let keys_max = tail.keys.len() as u64;
        let writer = RunWriter::create(Arc::clone(&self.disk), number, keys_max, self.hasher);
        write_sorted(&path, writer, |writer| write_keys(tail, writer, &path))?;
        let run = KeyRun::open(&*self.disk, number, Arc::clone(&self.keys.cache))?;
        let revision = tail.keys.revision();
        let log = self.keys.write_log(Arc::clone(&self.disk), number, revision)?;
        Ok(Some(SealedKeys { run, log, revision, more_keys: tail.keys.more_keys() }))
    }

    /// A number for a run or log that no other one has.
    pub(crate) fn reserve_run(&self) -> u64 {
        let mut catalog = self.catalog.lock();
        let number = catalog.keys.next_number.max(1);
        catalog.keys.next_number = number + 1;
        number
    }
}

fn write_keys(tail: &Tail, writer: &mut RunWriter, path: &str) -> Result<(), MaintainError> {
    let mut last: Option<Key> = None;
    loop {
        let from = last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let page: Vec<(Key, KeyLocation)> = tail.keys.page(from, PAGE);
        for (key, place) in &page {
            if place.version.deleted {
                writer.push(key, place.version, &[]).doing("writing", path)?;
                continue;
            }
            read_change(&tail.slot, key, place, Patience::Wait, |change| {
                writer.push(key, place.version, change.value)
            })?
            .doing("writing", path)?;
        }
        match page.into_iter().next_back() {
            Some((key, _)) => last = Some(key),
            None => return Ok(()),
        }
    }
}
