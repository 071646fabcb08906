//! Reads rooms: single rooms and lists ([`lists`]), and pages of history ([`history`]).

mod columns;
pub(super) mod history;
mod lists;

use hubbub_core::invariant::saturate;

pub(super) use columns::{MESSAGE_COLUMNS, ROOM_COLUMNS, access_of, count, push, room_columns, room_info};
pub(crate) use columns::{message_columns, not_erased, push_of};

/// A limit of rows as a parameter.
fn limit_of(limit: usize) -> i64 {
    saturate(limit)
}
