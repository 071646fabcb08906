//! Queues over HTTP: make and list them ([`queue`], [`list`]), send ([`send`]), take, look and wait ([`take`]), end
//! leases ([`settle`]), see what is in them ([`waiting`]), and who takes part ([`clients`]).
//!
//! Each body is checked by the rules of `hubbub_core::queue_draft` and becomes operations of one batch; what became of
//! them is written by [`shapes`].
//!
//! Who has a name may send and take as itself alone. What concerns messages of others is for the administrator: deleting
//! a queue or a message, looking at everything, redriving, changing settings.

mod clients;
mod list;
mod queue;
mod send;
mod settle;
mod shapes;
mod take;
mod waiting;

pub(super) use clients::{list as clients, register, unregister};
pub(super) use list::list;
pub(super) use queue::{delete, get as show, put};
pub(super) use send::send;
pub(super) use settle::{ack, ack_many, extend, nack, remove};
pub(super) use take::{get, get_of_client, lease, read, read_of_client};
pub(super) use waiting::{redrive, waiting};

use hubbub_core::id::ID_RULE;
use hubbub_core::{ClientId, Fault, QueueId, Refusal};

use crate::problem::Problem;

/// Items of one request that is a list.
pub(super) const ITEMS_MAX: usize = 1_000;

/// The queue a path names; percent-encoding is undone.
fn queue_of(segment: &str) -> Result<QueueId, Problem> {
    let decoded = percent_encoding::percent_decode_str(segment).decode_utf8_lossy();
    QueueId::new(&decoded).map_err(|_| Problem::invalid(vec![Fault::new("queue", ID_RULE)]))
}

/// The client a path names.
fn client_of(segment: &str) -> Result<ClientId, Problem> {
    let decoded = percent_encoding::percent_decode_str(segment).decode_utf8_lossy();
    ClientId::new(&decoded).map_err(|_| Problem::invalid(vec![Fault::new("client", ID_RULE)]))
}

/// The message a path names.
fn message_of(segment: &str) -> Result<u64, Problem> {
    let rule = "must be the decimal number that was given as the message's id";
    segment.parse().map_err(|_| Problem::invalid(vec![Fault::new("id", rule)]))
}

/// A look at a queue there is not.
fn no_queue() -> Problem {
    Problem { is_counted: false, ..Problem::refusal(Refusal::UnknownQueue) }
}
