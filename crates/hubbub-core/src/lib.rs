//! What a message, a room and a batch are, and what a store promises. No I/O, no clock, no random source of its own.
//!
//! A frame or a body is parsed into a [`draft::MessageDraft`] → checked against [`draft::Rules`] into a
//! [`message::Send`], which names every fault at once → collected in an [`op::OpBatch`] → given to
//! [`store::Store::apply`], which answers one [`op::Outcome`] for each. What was stored comes back from
//! [`store::RoomStore`] as a [`message::MessageRun`] and is shown in the one JSON shape of [`message::Message`].

pub mod backup;
pub mod cache;
pub mod change;
pub mod clock;
pub mod draft;
pub mod duration;
pub mod error;
pub mod essential;
pub mod id;
pub mod invariant;
pub mod kv;
mod kv_head;
mod lease_receipt;
pub mod limits;
pub mod message;
pub mod op;
pub mod queue;
pub mod queue_draft;
mod queue_head;
mod queue_rules;
pub mod replica;
pub mod rules;
pub mod stats;
pub mod store;
pub mod time;

pub use change::{Change, ReadMark, RoomSettings, What};
pub use clock::{Clock, RandomSource};
pub use error::{ErrorCode, Fault};
pub use essential::Essential;
pub use id::{ClientId, MessageId, QueueId, RoomId, UserId};
pub use kv::{KvOp, KvOutcome};
pub use message::{Message, MessageRun, MessageType, Send};
pub use op::{Lane, Op, OpBatch, Outcome, Receipt, Refusal};
pub use queue::{QueueOp, QueueOutcome};
pub use queue_rules::QueueRules;
pub use stats::StatsStore;
pub use store::{KvStore, QueueStore, RoomStore, Store};
pub use time::Timestamp;
