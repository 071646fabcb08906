//! Verifies a run by reading every byte of it.

use std::collections::BTreeSet;

use super::block::{KeyBlock, StoredValue};
use super::open::{KeyRun, UNREADABLE_ENTRY};
use crate::embedded::file::FileError;
use crate::embedded::file::Patience;
use crate::embedded::segment::IdHasher;

/// What was met so far of one run.
#[derive(Default)]
struct RunCheck {
    /// Keys that are listed as running out and were not met yet.
    expiring: BTreeSet<(Vec<u8>, u64, i64)>,
    keys: u64,
    revision: u64,
    last: Option<Vec<u8>>,
}

impl KeyRun {
    pub(crate) fn check(&self, hasher: &IdHasher, fault: &mut dyn FnMut(FileError)) {
        let (file, mut check) = (&self.inner.file, RunCheck::default());
        let listed = self.each_expiring(|key| {
            check.expiring.insert((key.key.to_vec(), key.revision, key.expires));
        });
        if let Err(error) = listed {
            fault(error);
        }
        for place in 0..self.inner.index.len() {
            match self.load_block(place, Patience::Wait) {
                Ok(block) => {
                    let offset = self.inner.index.offset(place);
                    check.block(self, place, &block, hasher, &mut |what| fault(file.damaged(offset, what)));
                }
                Err(error) => fault(error),
            }
        }
        if check.keys != self.keys() || check.revision != self.revision() || !check.expiring.is_empty() {
            fault(file.damaged(0, "its keys are not as many or not as new as its end says"));
        }
    }
}

impl RunCheck {
    fn block(
        &mut self,
        run: &KeyRun,
        place: usize,
        block: &KeyBlock,
        hasher: &IdHasher,
        wrong: &mut dyn FnMut(&'static str),
    ) {
        for index in 0..block.len() {
            let Some(entry) = block.entry(index) else { return wrong(UNREADABLE_ENTRY) };
            let key = entry.key.to_vec();
            self.keys += 1;
            self.revision = self.revision.max(entry.version.revision);
            if index == 0 && entry.key != run.inner.index.first_key(place) {
                wrong("the index names another first key");
            }
            if self.last.as_ref().is_some_and(|last| *last >= key) {
                wrong("its keys are not in their order");
            }
            if !run.inner.filter.may_contain(hasher.hash_key(entry.key)) {
                wrong("the filter does not know a key");
            }
            if let Some(expires) = entry.version.expires
                && !self.expiring.remove(&(key.clone(), entry.version.revision, expires))
            {
                wrong("a key that runs out is not listed");
            }
            if let StoredValue::Outside(location) = entry.value {
                match run.stored_value(location, Patience::Wait) {
                    Ok((_, value)) if value.len() as u64 != u64::from(entry.version.value_bytes) => {
                        wrong("a value has another length");
                    }
                    Ok(_) => {}
                    Err(FileError::Damaged { what, .. }) => wrong(what),
                    Err(_) => wrong("a value cannot be read"),
                }
            }
            self.last = Some(key);
        }
    }
}
