//! Judging operations: each against the image as the one before it left it.
//!
//! An operation first finds out all that it depends on, and changes nothing before; so it can be judged again when what
//! it lacked is loaded. One that cannot be done is refused before it changes anything.

mod manage;
mod select;
mod send;
mod settle;
mod sweep;
mod take;
#[cfg(test)]
mod tests;

use hubbub_core::{QueueOp, QueueOutcome};

use super::image::{Image, Stop};

/// What an operation is answered with, or why not.
pub(super) type Judged = Result<QueueOutcome, Stop>;

/// Longest time of anything, in microseconds; keeps times within what the database can write.
const LASTS_MAX: u64 = 8_000 * 365 * 24 * 3_600 * 1_000_000;

/// Judges one operation and does it in the image.
pub(super) fn judge(image: &mut Image, op: &QueueOp<'_>) -> Judged {
    match *op {
        QueueOp::Put { queue, settings } => image.put(queue, settings),
        QueueOp::PutNumbered => image.put_numbered(),
        QueueOp::Delete { queue, force } => image.delete(queue, force),
        QueueOp::Register { client } => image.register(client),
        QueueOp::Unregister { client } => image.unregister(client),
        QueueOp::Send(ref send) => image.send(send),
        QueueOp::Take(ref take) => image.take(take),
        QueueOp::Settle { queue, receipt, how } => image.settle(queue, receipt, how),
        QueueOp::Remove { queue, id } => image.remove_one(queue, id),
        QueueOp::Redrive { queue, id } => image.redrive(queue, id),
        QueueOp::Sweep => image.sweep(),
    }
}

/// Milliseconds as microseconds.
fn micros(ms: u64) -> i64 {
    i64::try_from(ms.saturating_mul(1_000).min(LASTS_MAX)).unwrap_or(i64::MAX)
}

impl Image {
    /// When something ends in this queue that begins now: never before what was seen to already, which the clock of
    /// another server may be ahead with.
    fn end_of(&self, queue: i32, lasts: i64) -> i64 {
        let seen_to = self.queues.get(&queue).map_or(i64::MIN, |queue| queue.seen_to);
        self.now.saturating_add(lasts).max(seen_to.saturating_add(1))
    }

    /// When a lease ends that begins now: servers whose clocks are ahead must not take it for over before that.
    fn end_of_lease(&self, queue: i32, lasts: i64) -> i64 {
        let seen_to = self.queues.get(&queue).map_or(i64::MIN, |queue| queue.seen_to);
        self.now.max(seen_to).saturating_add(lasts)
    }
}
