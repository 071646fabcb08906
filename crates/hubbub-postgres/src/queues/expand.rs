//! Makes the copies of messages to everybody in slices, each a short transaction that others of its queue wait for.

use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};

use super::load::insert_pending;
use super::working_set::WorkingSet;
use super::{Queues, sql, write};
use crate::db::{Result, statements};

/// How often it is looked for messages that other servers left behind.
const LOOK_EVERY: Duration = Duration::from_millis(500);

statements! {
    /// One server at a time makes copies. What is lost of that with a crash is made again, so nobody waits for the disk.
    ALONE("making copies of messages to everybody") =
        "select pg_try_advisory_xact_lock(7161616179), set_config('synchronous_commit', 'off', true)";

    OLDEST("looking for messages to everybody") =
        "select p.queue from queue_pending p where p.state <> 4 \
           and not (select deleted from queues where no = p.queue) order by p.first limit 1";

    LOCK("locking a queue") = "select no from queues where no = $1 and not deleted for no key update";
}

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
    pub(crate) async fn make_slice(&self, most: usize) -> Result<bool> {
        let making = self.run(ALONE.what, async |tx| {
            let is_alone = tx.query_one(&ALONE, &[]).await?.get::<_, bool>(0);
            let queue = if is_alone { tx.query_opt(&OLDEST, &[]).await? } else { None };
            let Some(queue) = queue.map(|row| row.get::<_, i32>(0)) else { return Ok(false) };
            if tx.query_opt(&LOCK, &[&queue]).await?.is_some()
                && let Some(row) = tx.query_opt(&sql::PENDING_NEXT, &[&queue]).await?
            {
                let mut set = WorkingSet::default();
                let (first, chunk) = (row.get("id"), row.get("chunk"));
                insert_pending(&mut set, &[row]);
                set.make_some(first, chunk, most.max(1));
                Box::pin(write::write(tx, &mut set)).await?;
            }
            Ok(true)
        });
        making.await
    }
}
