//! Queues over HTTP: create and list queues and register clients ([`queue`]), send ([`send`]), take, peek and wait
//! ([`take`]), end leases ([`ack`]), and browse ([`browse`]). [`receipts`] says how receipts are written.
//!
//! The drafts of `hubbub_core::queue_draft` check each body; it becomes operations of one batch. [`json`] writes answers.
//!
//! A named caller may send and take as itself only. Operations on messages of others are for the administrator: deleting a
//! queue or a message, browsing, redriving, changing settings.

mod ack;
mod browse;
mod json;
mod queue;
mod receipts;
mod send;
mod take;

pub(super) use ack::{AckManyBody, Extended, Nacked, ack, ack_many, extend, nack, remove};
pub(super) use browse::{RedriveBody, Redriven, browse, redrive};
pub(super) use json::{Queue, QueueSettings};
pub(super) use queue::{
    ClientList, QueueList, clients, delete, get as show, list, put, register, unregister,
};
pub(super) use send::send;
pub(super) use take::{TakeKind, take, take_of_client};

use hubbub_core::{FieldError, Refusal};

use crate::problem::Problem;

fn message_of(segment: &str) -> Result<u64, Problem> {
    let rule = "must be the decimal number that was given as the message's id";
    segment.parse().map_err(|_| Problem::invalid(vec![FieldError::new("id", rule)]))
}

fn no_queue() -> Problem {
    Problem { is_counted: false, ..Problem::refusal(Refusal::UnknownQueue) }
}
