//! Queues as the rest of the server asks for them.

use std::sync::Arc;
use std::time::Duration;

use hubbub_core::invariant::saturate;
use hubbub_core::queue::{Delivery, QueueInfo, TakeFilter, WaitFilter, Waiting};
use hubbub_core::store::{QueueStore, Read};
use hubbub_core::{ClientId, QueueId};

use crate::store::Postgres;

impl QueueStore for Postgres {
    fn queue(&self, queue: QueueId) -> Read<'_, Option<QueueInfo>> {
        Box::pin(async move { self.queues.queue(queue.as_str()).await })
    }

    fn queues(&self, after: Option<QueueId>, limit: usize) -> Read<'_, Vec<QueueInfo>> {
        Box::pin(async move { self.queues.page(after.as_ref().map_or("", QueueId::as_str), limit).await })
    }

    fn queues_holding(
        &self,
        receiver: ClientId,
        after: Option<QueueId>,
        limit: usize,
    ) -> Read<'_, Vec<Arc<str>>> {
        Box::pin(async move {
            let after = after.as_ref().map_or("", QueueId::as_str);
            self.queues.holding(receiver.as_str(), after, limit).await
        })
    }

    fn clients(&self, after: Option<ClientId>, limit: usize) -> Read<'_, Vec<ClientId>> {
        Box::pin(async move { self.queues.clients(after.as_ref().map_or("", ClientId::as_str), limit).await })
    }

    fn is_client(&self, client: &str) -> bool {
        self.queues.memory.is_registered(client)
    }

    fn look(&self, wanted: TakeFilter<'_>, max: usize) -> Read<'_, Option<Vec<Delivery>>> {
        let owned = |name: Option<&str>| name.map(str::to_owned);
        let (queue, receiver) = (owned(wanted.queue), owned(wanted.receiver));
        let (sender, newest_first) = (owned(wanted.sender), wanted.newest_first);
        Box::pin(async move {
            let (queue, receiver) = (queue.as_deref(), receiver.as_deref());
            let wanted = TakeFilter { queue, receiver, sender: sender.as_deref(), newest_first };
            self.queues.look(wanted, max).await
        })
    }

    fn matching_filters(&self, wants: Vec<WaitFilter>) -> Read<'_, Vec<usize>> {
        Box::pin(async move { self.queues.matching_filters(&wants).await })
    }

    fn waiting(&self, queue: QueueId, after: u64, limit: usize) -> Read<'_, Option<Vec<Waiting>>> {
        Box::pin(async move { self.queues.waiting(queue.as_str(), after, limit).await })
    }

    fn queue_due_in(&self) -> Option<Duration> {
        let due_at = self.queues.memory.due_at()?;
        let left = due_at.saturating_sub(self.queues.now());
        Some(Duration::from_micros(saturate::<_, u64>(left)))
    }
}
