//! Client for a Hubbub server: rooms, queues and keys.
//!
//! The promise it keeps is in `docs/protocol.md`: what is acknowledged is on disk, is delivered once, in order, and
//! whoever reconnects continues without a gap.
//!
//! Way of a message: [`Room::send`] gives it its place in the lane of its room (`sending`); the socket's task
//! (`connection`) writes it, and writes it again over the next connection until its receipt comes. Way back: the task
//! gives each frame to `socket`, which fills the buffers of [`Subscription`]s. Queues and keys are requests (`http`)
//! that are repeated until there is a final answer.
//!
//! Invariants
//! - A message keeps its id and its place in its room until its receipt comes.
//! - A subscription keeps (epoch, seq) and continues behind it.
//! - Nothing grows without bound: messages that wait, frames without an answer, events nobody has taken.

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

mod address;
mod client;
mod clock;
mod connection;
mod dial;
mod error;
mod following;
mod http;
mod keys;
mod liveness;
mod options;
mod outbox;
mod pool;
mod queues;
mod random;
mod refusal;
mod rooms;
mod sending;
mod socket;
mod watch;

pub use address::{Address, Stream};
pub use client::Client;
pub use connection::{ConnectionState, upgrade};
pub use error::{Error, Fault, Problem};
pub use http::{Answer, Request};
pub use keys::{KeyEntry, KeyPage, KeyValue, Keys, PutOptions};
pub use options::Options;
pub use queues::{Delivery, Queue, QueueReceipt, QueueSendOptions, QueueSettings, QueueState, TakeOptions};
pub use random::make_id;
pub use rooms::{
    Event, History, HistoryQuery, Message, Pending, Position, Ready, Receipt, Reset, Room, SendOptions,
    Start, SubscribeOptions, Subscription,
};
pub use watch::{KeyChange, KeyEvent, Watch};
