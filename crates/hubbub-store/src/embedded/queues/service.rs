//! Reading queues.

use std::sync::Arc;
use std::time::Duration;

use hubbub_core::queue::{Delivery, QueueInfo, Waiting, Wanted};
use hubbub_core::store::{Read, ReadError};
use hubbub_core::{ClientId, QueueId, QueueStore};

use crate::embedded::service::Embedded;

fn nothing<T: Send + 'static>() -> Read<'static, T> {
    Box::pin(std::future::ready(Err(ReadError::Unavailable { reason: "queues are not offered".into() })))
}

impl QueueStore for Embedded {
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
