//! The keys of a batch as its transaction found them and as the operations so far left them.

use std::collections::HashMap;
use std::convert::Infallible;

use hubbub_core::kv::KvChanged;
use hubbub_core::rules::keys::{ExpiredKeys, KeyChange, KeyVersion, View};

/// The keys of a batch. Everything that it names was loaded before, so nothing is missing.
#[derive(Debug)]
pub(super) struct WorkingSet<'a> {
    pub(super) revision: u64,
    versions: HashMap<&'a [u8], KeyVersion>,
    expired: ExpiredKeys<'a>,
    /// What the operations changed, in the order of the revisions.
    pub(super) changes: Vec<KeyChange<'a>>,
}

impl<'a> WorkingSet<'a> {
    /// The state after `revision`, with the versions of all keys that the batch names and of those that it sweeps.
    pub(super) fn new(
        revision: u64,
        mut versions: HashMap<&'a [u8], KeyVersion>,
        expired: ExpiredKeys<'a>,
    ) -> Self {
        versions.extend(expired.keys.iter().copied());
        Self { revision, versions, expired, changes: Vec::new() }
    }

    /// Applies the changes of one operation.
    pub(super) fn apply(&mut self, changes: &[KeyChange<'a>]) {
        for change in changes {
            self.revision = change.revision;
            match change.version() {
                Some(version) => self.versions.insert(change.key, version),
                None => self.versions.remove(change.key),
            };
        }
        self.changes.extend_from_slice(changes);
    }

    /// The last change of each key, divided into puts and deletions.
    pub(super) fn written(&self) -> (Vec<&KeyChange<'a>>, Vec<&'a [u8]>) {
        let last: HashMap<&[u8], u64> =
            self.changes.iter().map(|change| (change.key, change.revision)).collect();
        let is_last = |change: &&KeyChange<'_>| last.get(change.key) == Some(&change.revision);
        let (puts, gone): (Vec<_>, Vec<_>) =
            self.changes.iter().filter(is_last).partition(|change| change.what == KvChanged::Put);
        (puts, gone.into_iter().map(|change| change.key).collect())
    }
}

impl<'a> View<'a> for WorkingSet<'a> {
    type Need = Infallible;

    fn version(&self, key: &[u8]) -> Result<Option<KeyVersion>, Infallible> {
        Ok(self.versions.get(key).copied())
    }

    fn revision(&self) -> u64 {
        self.revision
    }

    fn take_expired(&mut self) -> ExpiredKeys<'a> {
        let keys = std::mem::take(&mut self.expired.keys);
        ExpiredKeys { keys, has_more: self.expired.has_more }
    }
}
