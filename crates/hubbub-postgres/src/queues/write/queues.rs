//! Queues that were changed or deleted.

use hubbub_core::queue::WhenFull;

use crate::db::{Param, Result, Tx, statements};

use crate::queues::working_set::{Queue, WorkingSet, signed};

statements! {
    DELETE_QUEUES("deleting queues") = "update queues set deleted = true where no = any($1)";

    CHANGE_QUEUE("changing a queue") =
        "update queues set is_dead_letter = $2, lease_ms = $3, deliveries_max = $4, dead_letter = $5, ttl_ms = $6, \
           messages_max = $7, bytes_max = $8, drops_oldest = $9, backoff_ms = $10, backoff_max_ms = $11 \
         where no = $1";

    NAME_NUMBER("noting the highest number of a queue") =
        "update queue_head set highest_named = greatest(highest_named, $1)";
}

pub(in crate::queues) async fn delete_queues(tx: &Tx<'_>, set: &WorkingSet) -> Result<()> {
    let deleted = set.queues.iter().filter(|(_, queue)| queue.is_deleted);
    let deleted: Vec<i32> = deleted.map(|(no, _)| *no).collect();
    tx.execute_for(&DELETE_QUEUES, &[&deleted]).await.map(drop)
}

pub(super) async fn write(tx: &Tx<'_>, set: &WorkingSet) -> Result<()> {
    delete_queues(tx, set).await?;
    for (no, queue) in set.queues.iter().filter(|(_, queue)| queue.is_changed && !queue.is_deleted) {
        change_queue(tx, *no, queue).await?;
    }
    if let (true, Some(highest)) = (set.has_named, set.highest_named) {
        tx.execute(&NAME_NUMBER, &[&highest]).await?;
    }
    Ok(())
}

async fn change_queue(tx: &Tx<'_>, no: i32, queue: &Queue) -> Result<()> {
    let settings = &queue.settings;
    let drops_oldest = settings.when_full == WhenFull::DropOldest;
    let numbers = [
        settings.lease_ms,
        settings.deliveries_max.into(),
        settings.ttl_ms,
        settings.messages_max,
        settings.bytes_max,
        settings.backoff_ms,
        settings.backoff_max_ms,
    ];
    let [lease, deliveries, ttl, messages, bytes, backoff, backoff_max] = numbers.map(signed);
    let dead_letter = &*settings.dead_letter;
    let params: [Param<'_>; 11] = [
        &no,
        &queue.is_dead_letter,
        &lease,
        &deliveries,
        &dead_letter,
        &ttl,
        &messages,
        &bytes,
        &drops_oldest,
        &backoff,
        &backoff_max,
    ];
    tx.execute(&CHANGE_QUEUE, &params).await.map(drop)
}
