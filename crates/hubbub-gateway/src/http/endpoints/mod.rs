//! All endpoints, one file for each subject. They drive routing, the methods of a 405, and `/openapi.json`.
//!
//! **To add an endpoint**: write its handler, an entry in the file of its subject, and examples in `spec/examples.jsonl`.
//! The process test `documents_are_true` sends the examples and compares every answer with its example and schema.

mod accounts;
mod api_keys;
mod backups;
mod keys;
mod leases;
mod messages;
mod queues;
mod rooms;
mod service;
mod stats;
mod watching;

use super::assets;
use super::endpoint::{Endpoint, get};
use super::permission::Permission;

pub(super) struct Tag {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    /// Whether the caller's name matters.
    pub(super) has_callers: bool,
    /// Whether a store may be without it; see [`hubbub_core::Store::has_queues_and_keys`].
    is_optional: bool,
    endpoints: &'static [&'static [Endpoint]],
}

const fn tag(name: &'static str, about: &'static str, endpoints: &'static [&'static [Endpoint]]) -> Tag {
    Tag { name, about, has_callers: true, is_optional: false, endpoints }
}

/// The subjects, in the order in which they are read best.
pub(super) static TAGS: &[Tag] = &[
    tag("Messages", "Send, read back, follow.", &[messages::ENDPOINTS]),
    tag("Rooms", "What rooms there are and who is in them.", &[rooms::ENDPOINTS]),
    tag("Members", "Who belongs to a room, what is unread, and what belongs to a user.", &[rooms::MEMBERS]),
    tag(
        "Statistics",
        "What is stored, counted: exact, and each answer with its `asOf`.",
        &[stats::ENDPOINTS],
    ),
    tag(
        "Keys",
        "Values by key, cached in memory; conditional changes, expiry, lists, and changes as they are made.",
        &[keys::ENDPOINTS],
    )
    .anonymous()
    .optional(),
    tag(
        "Queues",
        "Messages that wait until somebody takes them; `docs/queues.md` is a guide.",
        &[queues::ENDPOINTS, leases::ENDPOINTS],
    )
    .optional(),
    tag(
        "WebSocket",
        "Where sockets begin; what is said over them is in `/asyncapi.json`.",
        &[service::SOCKETS],
    ),
    tag(
        "Backups",
        "Copying the store while it is written to; `hubbub backup` does it. For the administrator.",
        &[backups::ENDPOINTS],
    ),
    tag(
        "Access",
        "Who calls, accounts, keys for services, and what is revoked; `docs/security.md` is a guide.",
        &[api_keys::ENDPOINTS, accounts::ENDPOINTS],
    ),
    tag(
        "Watching",
        "What the dashboard shows: the figures of the last hour as they go on, and open connections. For the administrator.",
        &[watching::ENDPOINTS],
    )
    .anonymous(),
    tag("Service", "Health, metrics and these documents.", &[service::ENDPOINTS]).anonymous(),
];

/// Pages and their files, which are not part of the API.
static PAGES: &[Endpoint] = &[
    get("/", |call| Box::pin(assets::chat_page(call))).needs(Permission::Open),
    // The page is open, as the others are; what it shows is not.
    get("/dashboard", |call| Box::pin(assets::dashboard_page(call))).needs(Permission::Open),
    get("/docs", |call| Box::pin(assets::docs_page(call))).needs(Permission::Open),
    get("/web/{*file}", |call| Box::pin(assets::file(call))).needs(Permission::Open),
];

pub(super) fn all() -> impl Iterator<Item = &'static Endpoint> {
    PAGES.iter().chain(TAGS.iter().flat_map(Tag::endpoints))
}

/// Whether the endpoint is about queues or keys, which not every store has.
pub(super) fn is_optional(endpoint: &'static Endpoint) -> bool {
    let has = |tag: &Tag| tag.endpoints().any(|one| std::ptr::eq(one, endpoint));
    TAGS.iter().any(|tag| tag.is_optional && has(tag))
}

impl Tag {
    const fn anonymous(self) -> Self {
        Self { has_callers: false, ..self }
    }

    const fn optional(self) -> Self {
        Self { is_optional: true, ..self }
    }

    pub(super) fn endpoints(&self) -> impl Iterator<Item = &'static Endpoint> + use<> {
        self.endpoints.iter().copied().flatten()
    }
}
