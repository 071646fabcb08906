//! Queues over HTTP: make and list them ([`queue`], [`list`]), send ([`send`]), take, look and wait ([`take`]), end
//! leases ([`settle`]), see what is in them ([`browse`]), and who takes part ([`clients`]).
//!
//! Each body is checked by the rules of `hubbub_core::queue_draft` and becomes operations of one batch; what became of
//! them is written by [`json`].
//!
//! Who has a name may send and take as itself alone. What concerns messages of others is for the administrator: deleting
//! a queue or a message, looking at everything, redriving, changing settings.

mod browse;
mod clients;
mod json;
mod list;
mod queue;
mod send;
mod settle;
mod take;

pub(super) use browse::{RedriveBody, Redriven, browse, redrive};
pub(super) use clients::{ClientList, list as clients, register, unregister};
pub(super) use json::{Queue, QueueSettings};
pub(super) use list::{QueueList, list};
pub(super) use queue::{delete, get as show, put};
pub(super) use send::send;
pub(super) use settle::{AckManyBody, Extended, Nacked, ack, ack_many, extend, nack, remove};
pub(super) use take::{get, get_of_client, lease, read, read_of_client};

use hubbub_core::{Fault, Refusal};

use crate::problem::Problem;

/// Items of one request that is a list.
pub(super) const ITEMS_MAX: usize = 1_000;

/// The message a path or a body names.
fn message_of(segment: &str) -> Result<u64, Problem> {
    let rule = "must be the decimal number that was given as the message's id";
    segment.parse().map_err(|_| Problem::invalid(vec![Fault::new("id", rule)]))
}

/// A look at a queue there is not.
fn no_queue() -> Problem {
    Problem { is_counted: false, ..Problem::refusal(Refusal::UnknownQueue) }
}
