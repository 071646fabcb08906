//! Reading keys.

use std::time::Duration;

use hubbub_core::KvStore;
use hubbub_core::kv::{KeyInfo, KvEntry, KvHistory};
use hubbub_core::store::{Read, ReadError};

use crate::embedded::service::Embedded;

fn nothing<T: Send + 'static>() -> Read<'static, T> {
    Box::pin(std::future::ready(Err(ReadError::Unavailable { reason: "keys are not offered".into() })))
}

impl KvStore for Embedded {
    fn value(&self, _key: &[u8]) -> Read<'_, Option<KvEntry>> {
        nothing()
    }

    fn keys(&self, _prefix: &[u8], _after: Option<&[u8]>, _limit: usize) -> Read<'_, Vec<KeyInfo>> {
        nothing()
    }

    fn changes(&self, _prefix: &[u8], _after: u64, _limit: usize) -> Read<'_, KvHistory> {
        nothing()
    }

    fn revision(&self) -> u64 {
        0
    }

    fn kv_due_in(&self) -> Option<Duration> {
        None
    }
}
