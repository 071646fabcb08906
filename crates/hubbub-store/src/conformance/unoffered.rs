//! What the in-memory store of the suite's own tests does not offer: it stands for rooms alone.

use std::sync::Arc;
use std::time::Duration;

use hubbub_core::kv::{KeyInfo, KvEntry, KvHistory};
use hubbub_core::queue::{Delivery, QueueInfo, Waiting, Wanted};
use hubbub_core::store::{Read, ReadError};
use hubbub_core::{ClientId, KvStore, QueueId, QueueStore};

use super::tests::InMemory;

fn nothing<T: Send + 'static>() -> Read<'static, T> {
    Box::pin(std::future::ready(Err(ReadError::Unavailable { reason: "not offered".into() })))
}

impl QueueStore for InMemory {
    fn queue(&self, _queue: QueueId) -> Read<'_, Option<QueueInfo>> {
        nothing()
    }

    fn queues(&self, _after: Option<QueueId>, _limit: usize) -> Read<'_, Vec<QueueInfo>> {
        nothing()
    }

    fn queues_holding(
        &self,
        _receiver: ClientId,
        _after: Option<QueueId>,
        _limit: usize,
    ) -> Read<'_, Vec<Arc<str>>> {
        nothing()
    }

    fn clients(&self, _after: Option<ClientId>, _limit: usize) -> Read<'_, Vec<ClientId>> {
        nothing()
    }

    fn is_client(&self, _client: &str) -> bool {
        false
    }

    fn look(&self, _wanted: Wanted<'_>, _max: usize) -> Read<'_, Option<Vec<Delivery>>> {
        nothing()
    }

    fn waiting(&self, _queue: QueueId, _after: u64, _limit: usize) -> Read<'_, Option<Vec<Waiting>>> {
        nothing()
    }

    fn queue_due_in(&self) -> Option<Duration> {
        None
    }
}

impl KvStore for InMemory {
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
