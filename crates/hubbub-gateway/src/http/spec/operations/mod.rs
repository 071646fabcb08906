//! What the documents say about each endpoint of `http/endpoints.rs`, one file for each tag.

pub(in crate::http) mod backups;
pub(in crate::http) mod keys;
pub(in crate::http) mod leases;
pub(in crate::http) mod members;
pub(in crate::http) mod messages;
pub(in crate::http) mod queue_messages;
pub(in crate::http) mod queues;
pub(in crate::http) mod report;
pub(in crate::http) mod rooms;
pub(in crate::http) mod service;
pub(in crate::http) mod sockets;
pub(in crate::http) mod stats;

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
