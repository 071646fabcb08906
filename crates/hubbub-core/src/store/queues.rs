//! Reading queues.

use std::sync::Arc;
use std::time::Duration;

use super::Read;
use crate::id::{ClientId, QueueId};
use crate::queue::{Delivery, QueueInfo, TakeFilter, WaitFilter, Waiting};

/// Reads of queues. They never wait for writes, and see everything acknowledged before they began. Of a batch that is being
/// written they may see messages taken as gone already; they never see a message that is not durable.
pub trait QueueStore: Send + Sync + 'static {
    /// One queue; `None` if there is none of that name.
    fn queue(&self, queue: QueueId) -> Read<'_, Option<QueueInfo>>;

    /// Up to `limit` queues in the order of their names, starting behind `after`.
    fn queues(&self, after: Option<QueueId>, limit: usize) -> Read<'_, Vec<QueueInfo>>;

    /// Names of up to `limit` queues in order, starting behind `after`, from which `receiver` could take a message now;
    /// messages for anybody count.
    fn queues_holding(
        &self,
        receiver: ClientId,
        after: Option<QueueId>,
        limit: usize,
    ) -> Read<'_, Vec<Arc<str>>>;

    /// Names of up to `limit` registered clients in order, starting behind `after`.
    fn clients(&self, after: Option<ClientId>, limit: usize) -> Read<'_, Vec<ClientId>>;

    /// Whether a client is registered. Never waits for the disk.
    fn is_client(&self, client: &str) -> bool;

    /// What a take of up to `max` messages would return now; `None` if there is no such queue.
    fn peek(&self, wanted: TakeFilter<'_>, max: usize) -> Read<'_, Option<Vec<Delivery>>>;

    /// Indexes of the filters that match at least one available message, or whose queue is gone. For waiting consumers of a
    /// shared store. Messages that have just become due may be missing until a sweep has processed them.
    fn matching_filters(&self, wants: Vec<WaitFilter>) -> Read<'_, Vec<usize>> {
        Box::pin(async move {
            let mut found = Vec::new();
            for (index, wants) in wants.iter().enumerate() {
                if self.peek(wants.wanted(), 1).await?.is_none_or(|seen| !seen.is_empty()) {
                    found.push(index);
                }
            }
            Ok(found)
        })
    }

    /// Up to `limit` messages of a queue, whatever their state and receiver, in the order of their ids, starting behind
    /// `after`; `None` if there is no such queue. At most [`crate::queue::TAKE_BYTES_MAX`] bytes of texts, but at least
    /// one message.
    fn waiting(&self, queue: QueueId, after: u64, limit: usize) -> Read<'_, Option<Vec<Waiting>>>;

    /// Time until a [`crate::QueueOp::Sweep`] has work, or a message becomes available; `None` = no deadline is known.
    /// Never waits for the disk.
    fn queue_due_in(&self) -> Option<Duration>;
}
