//! From a checked message to a durable one, and from there to everybody who listens.
//!
//! A connection collects what one read brought into an `OpBatch` → [`log::Log::submit`] gives it to a broker, from
//! which it comes back, or at once to [`log::DirectLog::submit`], which appends it to the
//! chunk that is filling ([`batcher`]) → the commit thread ([`committer`]) takes the chunk whole, applies it to the
//! store, and sets its outcomes → the dispatcher, a task of the runtime, wakes the connections that wait and hands
//! the chunk to the [`hub`], which encodes each message once and gives every subscriber a reference, and to the
//! [`takers`], who wait for messages of queues. The sweeper submits by itself what time makes due.
//!
//! Invariants
//! - One message costs no task, no future and no channel entry of its own; one chunk costs one of each.
//! - Nothing is acknowledged or delivered before the store said it is durable.
//! - Operations of one room keep the order in which they were submitted, also when a batch fails: what the same connection
//!   had submitted behind it is refused too (`order`).
//! - Every buffer is bounded: the waiting chunks by [`batcher::QueueLimits`], what is between the commit thread and
//!   the dispatcher by a channel, each subscriber's backlog by [`hub::OutboxLimits`], all of them together by [`hub::LiveMemory`].
//! - No lock is held across an await or a store call, and no two locks of this crate are held together, except an
//!   outbox's inside a hub shard's or inside the list of large outboxes.

pub mod batcher;
pub mod committer;
pub mod histogram;
pub mod hub;
pub mod kv;
pub mod log;
pub mod members;
pub mod metrics;
mod order;
mod queue_counts;
mod sweeper;
pub mod takers;

pub use batcher::{SubmitError, Ticket, Waiter};
pub use hub::Hub;
pub use kv::Keys;
pub use log::{DirectLog, Log};
pub use members::{Members, Standing};
pub use metrics::Metrics;
pub use order::SendLane;
pub use takers::Takers;
