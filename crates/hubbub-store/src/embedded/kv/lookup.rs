//! Finding a key: the tails, newest first, then the runs, newest first.

use hubbub_core::Timestamp;
use hubbub_core::kv::KvEntry;

use super::tail::read_change;
use super::{KeyRun, Patience, Version};
use crate::embedded::error::MaintainError;
use crate::embedded::file::FileError;
use crate::embedded::view::View;

impl View {
    /// The newest version of a key with its hash, one that says that it is deleted included.
    pub(crate) fn key_version(&self, key: &[u8], hash: u64) -> Result<Option<Version>, FileError> {
        if let Some(place) = self.tails.iter().rev().find_map(|tail| tail.keys.find(key, hash)) {
            return Ok(Some(place.version));
        }
        let find = |run: &KeyRun| run.find(key, hash, Patience::Wait, |entry| Ok(entry.version)).transpose();
        self.runs.iter().rev().find_map(find).transpose()
    }

    /// The value of a key with its hash, if readers see it at this time.
    pub(crate) fn key_value(
        &self,
        key: &[u8],
        hash: u64,
        now: i64,
        patience: Patience,
    ) -> Result<Option<KvEntry>, MaintainError> {
        let entry = |version: Version, value| KvEntry {
            value,
            revision: version.revision,
            expires_at: version.expires.map(Timestamp::from_micros),
        };
        for tail in self.tails.iter().rev() {
            if let Some(place) = tail.keys.find(key, hash) {
                if !place.version.is_seen(now) {
                    return Ok(None);
                }
                let value = read_change(&tail.slot, key, &place, patience, |change| change.value.into())?;
                return Ok(Some(entry(place.version, value)));
            }
        }
        for run in self.runs.iter().rev() {
            let found = run.find(key, hash, patience, |stored| {
                let is_seen = stored.version.is_seen(now);
                let value = is_seen.then(|| run.value(stored.value, patience)).transpose()?;
                Ok(value.map(|value| entry(stored.version, value)))
            })?;
            if let Some(found) = found {
                return Ok(found);
            }
        }
        Ok(None)
    }
}
