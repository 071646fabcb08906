//! What HTTP takes, one file for each tag.
//!
//! The order of the lists is the order in which the examples work on a fresh server.

mod backups;
mod keys;
mod leases;
mod members;
mod messages;
mod queue_messages;
mod queues;
mod report;
mod rooms;
mod service;
mod sockets;
mod stats;

use hubbub_core::limits::Limits;

use super::Operation;

/// The tags, in the order in which they are read best.
pub(super) const TAGS: &[(&str, &str)] = &[
    (messages::TAG, "Send, read back, follow."),
    (rooms::TAG, "What rooms there are and who is in them."),
    (members::TAG, "Who belongs to a room, what is unread, and what belongs to a user."),
    (stats::TAG, "What is stored, counted: exact, and each answer with its `asOf`."),
    (
        keys::TAG,
        "Values by key, cached in memory; conditional changes, expiry, lists, and changes as they are made.",
    ),
    (queues::TAG, "Messages that wait until somebody takes them; `docs/queues.md` is a guide."),
    (sockets::TAG, "Where sockets begin; what is said over them is in `/asyncapi.json`."),
    (
        backups::TAG,
        "Copying the store while it is written to; `hubbub backup` does it. For the administrator.",
    ),
    (service::TAG, "Health, metrics and these documents."),
];

/// Every operation.
pub(super) fn all(limits: &Limits) -> Vec<Operation> {
    let mut all = messages::all(limits);
    all.extend(stats::all(limits));
    all.extend(rooms::all());
    all.extend(members::all());
    all.extend(sockets::all());
    all.extend(backups::all());
    // A backup's files depend on what is stored: these come behind it.
    all.extend(keys::all(limits));
    all.extend(queues::first());
    all.extend(queue_messages::all(limits));
    all.extend(leases::all());
    all.extend(queues::last());
    all.extend(service::all());
    all
}
