//! Types of messages, rooms, queues, keys and batches, and the contracts of stores. No I/O, clock or random source.
//!
//! A frame or body is parsed into a [`draft::MessageDraft`] → checked against [`draft::Rules`], which names every wrong
//! field at once, into a [`message::Send`] → collected in an [`op::OpBatch`] → passed to [`store::Store::apply`], which
//! returns one [`op::Outcome`] for each operation. [`store::RoomStore`] returns stored messages as a
//! [`message::MessageRun`]; [`message::Message`] writes them in the one JSON shape.

mod apply_error;
pub mod backoff;
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
mod kv_encoded;
pub mod limits;
mod log_limit;
pub mod log_partition;
pub mod log_position;
pub mod message;
pub mod number;
pub mod op;
pub mod queue;
pub mod queue_draft;
mod queue_rules;
pub mod replica;
mod room_totals;
pub mod rules;
pub mod stats;
pub mod store;
pub mod suggestion;
pub mod text;
pub mod time;
pub mod trace;
pub mod url;
pub mod waiting_calls;

pub use change::{Change, ReadMark, RoomChange, RoomSettings};
pub use clock::{Clock, RandomSource};
pub use error::{ErrorCode, FieldError};
pub use essential::Essential;
pub use id::{ClientId, MessageId, QueueId, RoomId, UserId};
pub use kv::{KvOp, KvOutcome};
pub use log_limit::LogLimit;
pub use log_position::{ExpiredRoom, LogIdentity, LogPosition, LogStore};
pub use message::{Message, MessageRun, MessageType, Send};
pub use op::{Lane, Op, OpBatch, Outcome, Receipt, Refusal, RoomOp};
pub use queue::{QueueOp, QueueOutcome};
pub use queue_rules::QueueRules;
pub use room_totals::RoomTotals;
pub use stats::StatsStore;
pub use store::{KvStore, QueueStore, RoomStore, Store};
pub use time::Timestamp;
pub use trace::TraceContext;
