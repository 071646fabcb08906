//! Verifies a run by reading every byte of it.

use std::collections::BTreeSet;

use super::block::StoredValue;
use super::open::KeyRun;
use crate::embedded::file::FileError;
use crate::embedded::file::Patience;
use crate::embedded::segment::IdHasher;

impl KeyRun {
    pub(crate) fn check(&self, hasher: &IdHasher, fault: &mut dyn FnMut(FileError)) {
        let mut expiring = BTreeSet::new();
        if let Err(error) = self.each_expiring(|key| {
            expiring.insert((key.key.to_vec(), key.revision, key.expires));
        }) {
            fault(error);
        }
        let (mut keys, mut revision) = (0_u64, 0);
        let mut last: Option<Vec<u8>> = None;
        for place in 0..self.index().len() {
            let block = match self.load_block(place, Patience::Wait) {
                Ok(block) => block,
                Err(error) => {
                    fault(error);
                    continue;
                }
            };
            let offset = self.block_offset(place);
            let mut wrong = |what| fault(self.damaged(offset, what));
            for index in 0..block.len() {
                let Some(entry) = block.entry(index) else {
                    wrong("an entry is unreadable");
                    break;
                };
                keys += 1;
                revision = revision.max(entry.version.revision);
                if index == 0 && entry.key != self.index().first_key(place) {
                    wrong("the index names another first key");
                }
                if last.as_ref().is_some_and(|last| last.as_slice() >= entry.key) {
                    wrong("its keys are not in their order");
                }
                if !self.may_contain(hasher.hash_key(entry.key)) {
                    wrong("the filter does not know a key");
                }
                if let Some(expires) = entry.version.expires
                    && !expiring.remove(&(entry.key.to_vec(), entry.version.revision, expires))
                {
                    wrong("a key that runs out is not listed");
                }
                if let StoredValue::Outside(_) = entry.value {
                    match self.value(entry.value, Patience::Wait) {
                        Ok(value) if value.len() as u64 != u64::from(entry.version.value_bytes) => {
                            wrong("a value has another length");
                        }
                        Ok(_) => {}
                        Err(FileError::Damaged { what, .. }) => wrong(what),
                        Err(_) => wrong("a value cannot be read"),
                    }
                }
                last = Some(entry.key.to_vec());
            }
        }
        if keys != self.keys() || revision != self.revision() || !expiring.is_empty() {
            fault(self.damaged(0, "its keys are not as many or not as new as its end says"));
        }
    }
}
