//! Queues.

use std::sync::Arc;

use std::time::Duration;

use hubbub_core::queue::{Delivery, QueueInfo, Waiting, Wanted};
use hubbub_core::store::{ApplyError, QueueStore, Read, ReadError, StoreFigures};
use hubbub_core::{ClientId, Outcome, QueueId, QueueOp};

use crate::store::Postgres;

use crate::db::Fault;
use crate::db::connect::OpenError;
use crate::store::Context;

/// Queues.
pub(crate) struct Queues {
    context: Arc<Context>,
}

impl Queues {
    pub(crate) async fn open(context: Arc<Context>) -> Result<Self, OpenError> {
        Ok(Self { context })
    }

    /// Does what is due, and enters what is known into `figures`.
    pub(crate) async fn beat(&self, _figures: &mut StoreFigures) -> Result<(), Fault> {
        Ok(())
    }

    /// Does operations in their order, in one transaction.
    pub(crate) async fn apply(&self, _ops: &[QueueOp<'_>]) -> Result<Vec<Outcome>, ApplyError> {
        Err(ApplyError::Unavailable { reason: "not built yet".into() })
    }
}

fn missing<T: Send + 'static>() -> Read<'static, T> {
    Box::pin(std::future::ready(Err(ReadError::Unavailable { reason: "not built yet".into() })))
}

impl QueueStore for Postgres {
    fn queue(&self, _queue: QueueId) -> Read<'_, Option<QueueInfo>> {
        missing()
    }

    fn queues(&self, _after: Option<QueueId>, _limit: usize) -> Read<'_, Vec<QueueInfo>> {
        missing()
    }

    fn queues_holding(
        &self,
        _receiver: ClientId,
        _after: Option<QueueId>,
        _limit: usize,
    ) -> Read<'_, Vec<Arc<str>>> {
        missing()
    }

    fn clients(&self, _after: Option<ClientId>, _limit: usize) -> Read<'_, Vec<ClientId>> {
        missing()
    }

    fn is_client(&self, _client: &str) -> bool {
        false
    }

    fn look(&self, _wanted: Wanted<'_>, _max: usize) -> Read<'_, Option<Vec<Delivery>>> {
        missing()
    }

    fn waiting(&self, _queue: QueueId, _after: u64, _limit: usize) -> Read<'_, Option<Vec<Waiting>>> {
        missing()
    }

    fn queue_due_in(&self) -> Option<Duration> {
        None
    }
}
