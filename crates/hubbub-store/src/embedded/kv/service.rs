//! Reading keys.

use std::future::ready;
use std::time::Duration;

use hubbub_core::KvStore;
use hubbub_core::kv::{KeyInfo, KeyPage, KvChangesRead, KvEntry};
use hubbub_core::store::{Read, ReadError};

use super::Patience;
use super::list::ListError;
use crate::embedded::engine::Engine;
use crate::embedded::error::MaintainError;
use crate::embedded::service::Embedded;

impl Engine {
    /// The value of a key; `None` when it is not there.
    pub fn value(&self, key: &[u8]) -> Result<Option<KvEntry>, ReadError> {
        self.find_value(key, Patience::Wait).map_err(|error| self.shared.unreadable(error))
    }

    fn find_value(&self, key: &[u8], patience: Patience) -> Result<Option<KvEntry>, MaintainError> {
        let shared = &self.shared;
        let now = shared.clock.now().as_micros();
        shared.view().key_value(key, shared.hasher.hash_key(key), now, patience)
    }

    /// Keys in their order; see [`hubbub_core::KvStore::keys`].
    pub fn keys(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<Vec<KeyInfo>, ReadError> {
        let now = self.shared.clock.now().as_micros();
        self.shared.view().list_keys(prefix, after, limit, now).map_err(|ListError { error, resume_at }| {
            match self.shared.unreadable(error.into()) {
                ReadError::Damaged { reason, .. } => ReadError::Damaged { reason, resume_at },
                other => other,
            }
        })
    }
}

impl KvStore for Embedded {
    fn value(&self, key: &[u8]) -> Read<'_, Option<KvEntry>> {
        // What memory or the page cache has is answered at once: handing it to another thread costs more than reading.
        match self.engine().find_value(key, Patience::CachedOnly) {
            Err(error) if error.would_block() => {
                let key = key.to_vec();
                self.blocking(move |engine| engine.value(&key))
            }
            answer => Box::pin(ready(answer.map_err(|error| self.engine().shared.unreadable(error)))),
        }
    }

    fn keys(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Read<'_, KeyPage> {
        let (prefix, after) = (prefix.to_vec(), after.map(<[u8]>::to_vec));
        self.blocking(move |engine| {
            // Read first: what changes meanwhile may be in the list or not.
            let revision = engine.shared.keys.revision();
            Ok(KeyPage { keys: engine.keys(&prefix, after.as_deref(), limit)?, revision })
        })
    }

    fn changes(&self, prefix: &[u8], after: u64, limit: usize) -> Read<'_, KvChangesRead> {
        Box::pin(ready(Ok(self.engine().shared.keys.changes(prefix, after, limit))))
    }

    fn revision(&self) -> u64 {
        self.engine().shared.keys.revision()
    }

    fn kv_due_in(&self) -> Option<Duration> {
        let shared = &self.engine().shared;
        // By the time that a sweep goes by.
        shared.keys.due_in(shared.clock.proven().as_micros())
    }
}
