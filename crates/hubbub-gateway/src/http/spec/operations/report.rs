//! All statistics in one.

use hubbub_core::ErrorCode as E;
use hubbub_core::limits::Limits;

use super::super::operation::{Media, READING};
use super::super::schemas::{id, schema};
use super::Operation;
use super::stats::TAG;

pub(in crate::http) fn report(_: &Limits) -> Operation {
    Operation::new("getReport", TAG, "All statistics in one")
        .about(
            "Numbers and flat rows, for tools; what the other paths answer has more. `GET /metrics` answers the same to \
             those who take JSON.",
        )
        .header("Hubbub-User", id(), "Who calls. Without it the administrator.")
        .replicated()
        .query("room", id(), "The sample room; the one with most messages unless said.")
        .query("user", id(), "The sample user, likewise. Says nothing of who calls.")
        .gives(200, Media::Json(schema("Report")), "")
        .refuses(&[E::Invalid, E::Forbidden, E::UnknownRoom])
        .refuses(READING)
}
