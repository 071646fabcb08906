//! Finding a key: the tails, newest first, then the runs, newest first.

use hubbub_core::Timestamp;
use hubbub_core::kv::KvEntry;

use super::{Patience, Version, tail};
use crate::embedded::error::MaintainError;
use crate::embedded::file::FileError;
use crate::embedded::view::View;

impl View {
    /// The newest version of a key with its hash, one that says that it is deleted included.
    pub(crate) fn key_version(&self, key: &[u8], hash: u64) -> Result<Option<Version>, FileError> {
        if let Some(place) = self.tails.iter().rev().find_map(|tail| tail.keys.find(key, hash)) {
            return Ok(Some(place.version));
        }
        for run in self.runs.iter().rev() {
            if let Some(found) = run.find(key, hash, Patience::Wait)? {
                return Ok(Some(run.entry(&found)?.version));
            }
        }
        Ok(None)
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
        for holder in self.tails.iter().rev() {
            if let Some(place) = holder.keys.find(key, hash) {
                if !place.version.is_seen(now) {
                    return Ok(None);
                }
                let read = |change: &crate::embedded::record::KeyChange<'_>| change.value.into();
                let value = tail::read_change(&holder.slot, key, &place, patience, read)?;
                return Ok(Some(entry(place.version, value)));
            }
        }
        for run in self.runs.iter().rev() {
            if let Some(found) = run.find(key, hash, patience)? {
                let stored = run.entry(&found)?;
                if !stored.version.is_seen(now) {
                    return Ok(None);
                }
                return Ok(Some(entry(stored.version, run.value(stored.value, patience)?)));
            }
        }
        Ok(None)
    }
}
