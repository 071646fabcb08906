//! Copies of messages to everybody that are not made yet: makes them in slices, each a short transaction that others of its
//! queue wait for, and lists them.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hubbub_core::invariant::saturate;
use hubbub_core::queue::Waiting;
use tokio::time::{sleep, timeout};
use tokio_postgres::Row;

use super::load::{insert_pending, pending_chunk};
use super::read::{truncate_to_page, waiting_message};
use super::states::queue_statements;
use super::working_set::{Message, WorkingSet, unsigned};
use super::{Queues, sql, write};
use crate::db::{DbError, Result, Tx};

/// How often it is looked for messages that other servers left behind.
const LOOK_EVERY: Duration = Duration::from_millis(500);

queue_statements! {
    /// One server at a time makes copies. What is lost of that with a crash is made again, so nobody waits for the disk.
    ALONE("making copies of messages to everybody") =
        "select pg_try_advisory_xact_lock(7161616179), set_config('synchronous_commit', 'off', true)";

    OLDEST("looking for messages to everybody") =
        "select p.queue from queue_pending p where p.state <> {expired} \
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
                insert_pending(&mut set, &[row])?;
                set.make_some(first, chunk, most.max(1));
                Box::pin(write::write(tx, &mut set)).await?;
            }
            Ok(true)
        });
        making.await
    }
}

/// Copies of a queue that are not made, behind an id, in the order of ids and without their texts; as many as one page
/// may have. And the last id among them, if there may be more behind it.
pub(super) async fn read(
    tx: &Tx<'_>,
    queue: i32,
    after: i64,
    limit: usize,
) -> Result<(Vec<(Message, Arc<str>)>, Option<u64>)> {
    // Of the first piece all may be before the page.
    let pieces = saturate::<_, i64>(limit).saturating_add(1);
    let rows = tx.query(&sql::PENDING_WAITING, &[&queue, &after, &pieces]).await?;
    let mut found: Vec<(Message, Arc<str>)> = Vec::new();
    for row in &rows {
        found
            .extend(copies(row)?.filter(|(copy, _)| copy.id > after).take(limit.saturating_sub(found.len())));
        if found.len() >= limit {
            break;
        }
    }
    let count = found.len();
    truncate_to_page(&mut found, |(copy, _)| copy.bytes);
    let is_cut = |_: &&(Message, Arc<str>)| count >= limit || found.len() < count;
    let upto = found.last().filter(is_cut).map(|(copy, _)| unsigned(copy.id));
    Ok((found, upto))
}

fn copies(row: &Row) -> Result<impl Iterator<Item = (Message, Arc<str>)>> {
    let template = Message { stored_in: None, ..Message::of_row(row)? };
    let sender: Arc<str> = row.get::<_, &str>("sender_name").into();
    let (part, first) = (pending_chunk(row), template.id);
    let copies: Vec<(i64, i32)> = part.copies(row.get("chunk")).collect();
    Ok(copies.into_iter().map(move |(id, receiver)| {
        let copy = Message { id, receiver, copy_of: Some(first), ..template.clone() };
        (copy, Arc::clone(&sender))
    }))
}

/// The same with texts and names, and how many bytes each takes.
pub(super) async fn complete(
    tx: &Tx<'_>,
    copies: Vec<(Message, Arc<str>)>,
    queue: &Arc<str>,
    now: i64,
) -> Result<Vec<(Waiting, i64)>> {
    let firsts: BTreeSet<i64> = copies.iter().filter_map(|(copy, _)| copy.copy_of).collect();
    let firsts: Vec<i64> = firsts.into_iter().collect();
    let receivers: Vec<i32> = copies.iter().map(|(copy, _)| copy.receiver).collect();
    let texts = tx.query(&sql::PENDING_TEXTS, &[&firsts]).await?;
    let names = tx.query(&sql::CLIENT_NAMES, &[&receivers]).await?;
    let texts: HashMap<i64, &str> = texts.iter().map(|row| (row.get(0), row.get(1))).collect();
    let names: HashMap<i32, Arc<str>> =
        names.iter().map(|row| (row.get(0), row.get::<_, &str>(1).into())).collect();
    let missing = |found| DbError::UnexpectedRow { what: "listing copies of messages to everybody", found };
    let completed = copies.into_iter().map(|(copy, sender)| {
        let text = copy.copy_of.and_then(|first| texts.get(&first));
        let text = text.ok_or_else(|| missing(format!("no text of the message {}", copy.id)))?;
        let receiver = names.get(&copy.receiver).map(Arc::clone);
        let receiver = receiver.ok_or_else(|| missing(format!("no client {}", copy.receiver)))?;
        let bytes = copy.bytes;
        let copy = Message { text: Some((*text).to_owned()), ..copy };
        Ok((waiting_message(copy, sender, receiver, queue, now), bytes))
    });
    completed.collect()
}
