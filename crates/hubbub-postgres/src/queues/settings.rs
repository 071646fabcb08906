//! What is set of a queue, as it stands in the database.

use hubbub_core::QueueRules;
use hubbub_core::invariant::saturate;
use hubbub_core::queue::WhenFull;
use tokio_postgres::Row;

fn unsigned(row: &Row, column: &str) -> u64 {
    saturate::<_, u64>(row.get::<_, i64>(column))
}

/// A number as the database has it.
pub(super) fn signed(number: u64) -> i64 {
    saturate::<_, i64>(number)
}

/// What is set, of a row of `queues`.
pub(super) fn rules_of(row: &Row) -> QueueRules {
    QueueRules {
        lease_ms: unsigned(row, "lease_ms"),
        deliveries_max: u32::try_from(unsigned(row, "deliveries_max")).unwrap_or(u32::MAX),
        dead_letter: row.get::<_, &str>("dead_letter").into(),
        ttl_ms: unsigned(row, "ttl_ms"),
        messages_max: unsigned(row, "messages_max"),
        bytes_max: unsigned(row, "bytes_max"),
        when_full: if row.get("drops_oldest") { WhenFull::DropOldest } else { WhenFull::Refuse },
        backoff_ms: unsigned(row, "backoff_ms"),
        backoff_max_ms: unsigned(row, "backoff_max_ms"),
    }
}
