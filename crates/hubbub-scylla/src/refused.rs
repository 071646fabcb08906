//! Queues and keys, which this store does not have. The gateway refuses them before they come here
//! ([`Store::has_queues_and_keys`](hubbub_core::Store::has_queues_and_keys)).

use std::sync::Arc;
use std::time::Duration;

use hubbub_core::kv::{KeyPage, KvChangesRead, KvEntry};
use hubbub_core::queue::{Delivery, QueueInfo, TakeFilter, Waiting};
use hubbub_core::store::{ApplyError, KvStore, QueueStore, Read, ReadError};
use hubbub_core::{ClientId, QueueId};

use crate::store::Scylla;

const REASON: &str = "a store on Cassandra or ScyllaDB has no queues and no keys";

/// The refusal of a batch of them.
pub(crate) fn no_queues_and_keys() -> ApplyError {
    ApplyError::Unavailable { reason: REASON.into() }
}

fn refused<'a, T>() -> Read<'a, T> {
    Box::pin(async { Err(ReadError::Unavailable { reason: REASON.into() }) })
}

impl QueueStore for Scylla {
    fn queue(&self, _: QueueId) -> Read<'_, Option<QueueInfo>> {
        refused()
    }

    fn queues(&self, _: Option<QueueId>, _: usize) -> Read<'_, Vec<QueueInfo>> {
        refused()
    }

    fn queues_holding(&self, _: ClientId, _: Option<QueueId>, _: usize) -> Read<'_, Vec<Arc<str>>> {
        refused()
    }

    fn clients(&self, _: Option<ClientId>, _: usize) -> Read<'_, Vec<ClientId>> {
        refused()
    }

    fn is_client(&self, _: &str) -> bool {
        false
    }

    fn peek(&self, _: TakeFilter<'_>, _: usize) -> Read<'_, Option<Vec<Delivery>>> {
        refused()
    }

    fn waiting(&self, _: QueueId, _: u64, _: usize) -> Read<'_, Option<Vec<Waiting>>> {
        refused()
    }

    fn queue_due_in(&self) -> Option<Duration> {
        None
    }
}

impl KvStore for Scylla {
    fn value(&self, _: &[u8]) -> Read<'_, Option<KvEntry>> {
        refused()
    }

    fn keys(&self, _: &[u8], _: Option<&[u8]>, _: usize) -> Read<'_, KeyPage> {
        refused()
    }

    fn changes(&self, _: &[u8], _: u64, _: usize) -> Read<'_, KvChangesRead> {
        refused()
    }

    fn revision(&self) -> u64 {
        0
    }

    fn kv_due_in(&self) -> Option<Duration> {
        None
    }
}
