//! Makes the copies of messages to everybody in slices, each a short transaction that others of its queue wait for.

use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};

use super::load::pending_chunk;
use super::working_set::{Message, WorkingSet};
use super::{Queues, sql, write};
use crate::db::{DbError, Sql};

/// How often it is looked for messages that other servers left behind.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// One server at a time makes copies. What is lost of that with a crash is made again, so nobody waits for the disk.
const ALONE: Sql = Sql {
    what: "making copies of messages to everybody",
    text: "select pg_try_advisory_xact_lock(7161616179), set_config('synchronous_commit', 'off', true)",
};

const OLDEST: Sql = Sql {
    what: "looking for messages to everybody",
    text: "select p.queue from queue_pending p where p.state <> 4 \
             and not (select deleted from queues where no = p.queue) order by p.first limit 1",
};

const LOCK: Sql = Sql {
    what: "locking a queue",
    text: "select no from queues where no = $1 and not deleted for no key update",
};

impl Queues {
    /// Makes copies for ever, as long as there are some to be made.
    pub(crate) async fn make_copies(&self) {
        let options = self.context.options.broadcasts;
        loop {
            let begun = Instant::now();
            match self.make_slice(options.per_slice).await {
                // As much time for others as the slice took.
                Ok(true) => sleep(begun.elapsed().max(options.pause)).await,
                Ok(false) => drop(timeout(LOOK_EVERY, self.pending.notified()).await),
                Err(fault) => {
                    tracing::debug!(%fault, "copies of messages to everybody are not made now");
                    sleep(LOOK_EVERY).await;
                }
            }
        }
    }

    /// Makes up to so many copies; whether there may be more to make.
    pub(crate) async fn make_slice(&self, most: usize) -> Result<bool, DbError> {
        let mut conn = self.context.db.get().await?;
        let tx = conn.begin().await?;
        tx.batch("preparing", sql::PLANNING).await?;
        let is_alone = tx.query_one(&ALONE, &[]).await?.get::<_, bool>(0);
        let queue = if is_alone { tx.query_opt(&OLDEST, &[]).await? } else { None };
        let Some(queue) = queue.map(|row| row.get::<_, i32>(0)) else {
            tx.commit().await?;
            return Ok(false);
        };
        if tx.query_opt(&LOCK, &[&queue]).await?.is_some()
            && let Some(row) = tx.query(&sql::PENDING_NEXT, &[&queue]).await?.first()
        {
            let template = Message { stored_in: None, ..Message::of_row(row) };
            let mut set = WorkingSet::default();
            let (first, chunk): (i64, i32) = (template.id, row.get("chunk"));
            set.enter_pending(template, row.get("unmade_copies"));
            set.enter_pending_chunk(first, chunk, pending_chunk(row));
            set.make_some(first, chunk, most.max(1));
            Box::pin(write::write(&tx, &mut set)).await?;
        }
        tx.commit().await?;
        Ok(true)
    }
}
