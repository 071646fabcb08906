//! Group commit and fan-out: makes checked operations durable, then answers their senders and notifies subscribers.
//!
//! A connection collects the operations of one read in an `OpBatch` → [`log::Log::submit`] passes them to a broker,
//! whose consumers submit them again, or at once to [`log::DirectLog::submit`], which appends them to the filling chunk
//! ([`batcher`]) → the commit thread ([`committer`]; several where the store takes several batches at once) takes the
//! whole chunk, applies it to the store and sets its outcomes → the dispatcher, a task, wakes the senders' connections and passes the chunk to the [`hub`], which encodes
//! each message once and gives every subscriber a reference, and to the waiting [`consumers`] of queues. The sweeper
//! submits operations for deadlines that pass. Both leave records of each batch ([`timeline`]).
//!
//! Invariants
//! - One message costs no task, no future and no channel entry of its own; one chunk costs one of each.
//! - Nothing is acknowledged or delivered before the store has made it durable.
//! - Operations of one room keep the order in which they were submitted. When a batch fails, later submissions of the
//!   same connection are refused, too (`order`).
//! - Every buffer is bounded: waiting chunks by [`batcher::QueueLimits`], chunks between the commit threads and the
//!   dispatcher by a channel, each subscriber's backlog by [`hub::OutboxLimits`], all backlogs by [`hub::LiveMemory`].
//! - No lock is held across an await or a store call, but for the attachment of Kafka. No two locks of this crate are held together, except an outbox's
//!   inside a hub shard's or inside the list of large outboxes, and the timeline's inside a hub shard's.

pub mod access_cache;
pub mod batcher;
pub mod committer;
pub mod consumers;
pub mod histogram;
pub mod hub;
pub mod kv;
pub mod log;
pub mod metrics;
mod order;
pub mod pipeline;
mod sweeper;
#[cfg(test)]
mod test_message;
pub mod timeline;
pub mod traces;

pub use access_cache::{AccessCache, AccessLevel};
pub use batcher::{SubmitError, Ticket, Waiter};
pub use consumers::WaitingConsumers;
pub use hub::Hub;
pub use kv::Keys;
pub use log::{DirectLog, Log, LogHealth};
pub use metrics::Metrics;
pub use order::SendLane;
pub use pipeline::{Pipeline, PipelineOptions};
pub use timeline::Timeline;
