//! Making a queue in the middle of a batch: what follows refers to its number.

use hubbub_core::QueueRules;

use super::names::{enter_queue, seen};
use crate::db::{DbError, Sql, Tx};
use crate::queues::settings::signed;
use crate::queues::sql::{LOCK_QUEUES, SEEN_NAMED, time};
use crate::queues::working_set::WorkingSet;
use crate::queues::write::delete_queues;

const MAKE_QUEUE: Sql = Sql {
    what: "making a queue",
    text: "with made as ( \
             insert into queues (id, is_dead_letter, lease_ms, deliveries_max, dead_letter, ttl_ms, messages_max, \
               bytes_max, drops_oldest, backoff_ms, backoff_max_ms) \
             values ($1, false, $2, 0, '', 0, 0, 0, false, 0, $3) \
             on conflict (id) where not deleted do nothing returning *), \
           counting as (insert into queue_totals (queue, seen_to) select no, $4 from made) \
           select * from made",
};

/// Makes a queue if there is none of that name, and locks it.
pub(super) async fn make_queue(tx: &Tx<'_>, set: &mut WorkingSet, name: &str) -> Result<(), DbError> {
    // The name may be that of one that this batch deleted.
    delete_queues(tx, set).await?;
    let QueueRules { lease_ms, backoff_max_ms, .. } = QueueRules::default();
    let (lease_ms, backoff_max_ms, now) = (signed(lease_ms), signed(backoff_max_ms), time(set.now));
    let made = tx.query_opt(&MAKE_QUEUE, &[&name, &lease_ms, &backoff_max_ms, &now]).await?;
    let (rows, is_new) = match made {
        Some(row) => (vec![row], true),
        // Somebody else was faster.
        None => (tx.query(&LOCK_QUEUES, &[&vec![name], &Vec::<i32>::new()]).await?, false),
    };
    let seen = match is_new {
        true => rows.iter().map(|row| (row.get("no"), set.now)).collect(),
        false => seen(&tx.query(&SEEN_NAMED, &[&vec![name], &Vec::<i32>::new()]).await?),
    };
    for row in &rows {
        enter_queue(set, row, &seen);
        if let Some(queue) = set.queues.get_mut(&row.get("no")).filter(|_| is_new) {
            (queue.is_new, queue.is_current, queue.held) = (true, true, Some((0, 0)));
        }
    }
    Ok(())
}
