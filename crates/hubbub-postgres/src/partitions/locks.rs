//! Whether the database can hold the locks that statements need for all partitions.
//!
//! A statement that is planned locks each partition and its three indexes, and the lock table is shared by all sessions. Where it is
//! too small, requests fail with `out of shared memory`, and only when many come together: so it is told of before.

use hubbub_core::invariant::saturate;

use crate::db::{Result, statements};
use crate::store::Context;

/// The partition, its primary key, and its two other indexes.
const PER_PARTITION: i64 = 4;

statements! {
    LOCKS("looking at the size of the lock table") =
        "select (select count(*) from partitions), current_setting('max_locks_per_transaction')::int8, \
             current_setting('max_connections')::int8";
}

/// Warns if statements of all connections of this server may need more locks than there are.
pub(super) async fn warn_if_scarce(context: &Context) -> Result<()> {
    let row = context.db.read_one(&LOCKS, &[]).await?;
    let (partitions, per_transaction, connections): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
    let pool = saturate(context.options.pool.max);
    if let Some(wanted) = more_locks(partitions, pool, per_transaction, connections) {
        tracing::warn!(
            partitions,
            "the database has too small a lock table for so many partitions: under load requests may fail with \"out of \
             shared memory\"; set max_locks_per_transaction to {wanted} at least, or make store.postgres.partition longer"
        );
    }
    Ok(())
}

/// The least `max_locks_per_transaction` that is enough, if this one is not.
fn more_locks(partitions: i64, pool: i64, per_transaction: i64, connections: i64) -> Option<i64> {
    let needed = partitions.saturating_mul(PER_PARTITION).saturating_mul(pool);
    let wanted = needed.div_euclid(connections.max(1)).saturating_add(1);
    (needed > per_transaction.saturating_mul(connections)).then_some(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_table_that_is_too_small_is_told_of() {
        assert_eq!(more_locks(100, 16, 64, 100), None);
        assert_eq!(more_locks(101, 16, 64, 100), Some(65));
        assert_eq!(more_locks(365, 16, 64, 100), Some(234));
        assert_eq!(more_locks(365, 16, 512, 100), None);
        assert_eq!(more_locks(1, 1, 64, 0), Some(5));
    }
}
