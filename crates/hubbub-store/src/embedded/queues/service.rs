//! Reading queues.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use hubbub_core::queue::{Delivery, QueueInfo, TakeFilter, Waiting};
use hubbub_core::store::Read;
use hubbub_core::{ClientId, QueueId, QueueStore};

use crate::embedded::service::Embedded;

impl QueueStore for Embedded {
    fn queue(&self, queue: QueueId) -> Read<'_, Option<QueueInfo>> {
        self.blocking(move |engine| Ok(engine.shared.queue(queue.as_str())))
    }

    fn queues(&self, after: Option<QueueId>, limit: usize) -> Read<'_, Vec<QueueInfo>> {
        self.blocking(move |engine| Ok(engine.shared.queue_page(after.as_ref().map(QueueId::as_str), limit)))
    }

    fn queues_holding(
        &self,
        receiver: ClientId,
        after: Option<QueueId>,
        limit: usize,
    ) -> Read<'_, Vec<Arc<str>>> {
        self.blocking(move |engine| {
            Ok(engine.shared.queues_holding(&receiver, after.as_ref().map(QueueId::as_str), limit))
        })
    }

    fn clients(&self, after: Option<ClientId>, limit: usize) -> Read<'_, Vec<ClientId>> {
        let names = self.engine().shared.queues.clients(after.as_ref().map(ClientId::as_str), limit);
        // Whoever registered was checked then.
        let clients = names.iter().filter_map(|name| ClientId::new(name).ok()).collect();
        Box::pin(ready(Ok(clients)))
    }

    fn is_client(&self, client: &str) -> bool {
        self.engine().shared.queues.is_client(client)
    }

    fn look(&self, wanted: TakeFilter<'_>, max: usize) -> Read<'_, Option<Vec<Delivery>>> {
        let owned = |name: Option<&str>| name.map(str::to_owned);
        let (queue, receiver) = (owned(wanted.queue), owned(wanted.receiver));
        let (sender, newest_first) = (owned(wanted.sender), wanted.newest_first);
        self.blocking(move |engine| {
            let (queue, receiver) = (queue.as_deref(), receiver.as_deref());
            let wanted = TakeFilter { queue, receiver, sender: sender.as_deref(), newest_first };
            engine.shared.look(&wanted, max)
        })
    }

    fn waiting(&self, queue: QueueId, after: u64, limit: usize) -> Read<'_, Option<Vec<Waiting>>> {
        self.blocking(move |engine| engine.shared.waiting(queue.as_str(), after, limit))
    }

    fn queue_due_in(&self) -> Option<Duration> {
        let shared = &self.engine().shared;
        shared.queues.due_in(&*shared.clock)
    }
}
