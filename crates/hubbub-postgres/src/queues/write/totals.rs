//! What queues count, and up to when they were seen to.

use tokio::try_join;

use crate::db::{Param, Result, Tx, column, statements};
use crate::queues::sql::time;
use crate::queues::working_set::{Counts, Queue, WorkingSet};

/// How often what a queue counted is brought together, and what it has seen to is noted, in microseconds.
const NOTE_EVERY: i64 = 1_000_000;

statements! {
    COUNT("counting messages of queues") =
        "insert into queue_counts (queue, messages, delayed, leased, bytes, sent, done, dropped, dead) \
         select * from unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)";

    /// Brings counts together, and notes up to when everything was seen to.
    NOTE("noting what queues have done") =
        "with gone as ( \
           delete from queue_counts where ctid = any(array( \
             select c.ctid from queue_totals t cross join lateral ( \
               select ctid from queue_counts where queue = t.queue and no > t.counted offset 0) c \
             where t.queue = any($1))) returning *), \
         added as ( \
           select queue, max(no) as no, sum(messages) as messages, sum(delayed) as delayed, sum(leased) as leased, \
             sum(bytes) as bytes, sum(sent) as sent, sum(done) as done, sum(dropped) as dropped, sum(dead) as dead \
           from gone group by queue) \
         update queue_totals t set seen_to = greatest(t.seen_to, $2), counted = coalesce(a.no, t.counted), \
           messages = t.messages + coalesce(a.messages, 0), delayed = t.delayed + coalesce(a.delayed, 0), \
           leased = t.leased + coalesce(a.leased, 0), bytes = t.bytes + coalesce(a.bytes, 0), \
           sent = t.sent + coalesce(a.sent, 0), done = t.done + coalesce(a.done, 0), \
           dropped = t.dropped + coalesce(a.dropped, 0), dead = t.dead + coalesce(a.dead, 0) \
         from unnest($1) as k (no) left join added a on a.queue = k.no where t.queue = k.no";
}

pub(super) async fn write(tx: &Tx<'_>, set: &WorkingSet) -> Result<()> {
    let live = || set.queues.iter().filter(|(_, queue)| !queue.is_deleted);
    let counted: Vec<(i32, Counts)> = live()
        .filter(|(_, queue)| queue.added != Counts::default())
        .map(|(no, queue)| (*no, queue.added))
        .collect();
    let added = |value: fn(&Counts) -> i64| column(&counted, |(_, counts)| value(counts));
    let count: [Param<'_>; 9] = [
        &column(&counted, |(no, _)| *no),
        &added(|counts| counts.messages),
        &added(|counts| counts.delayed),
        &added(|counts| counts.leased),
        &added(|counts| counts.bytes),
        &added(|counts| counts.sent),
        &added(|counts| counts.done),
        &added(|counts| counts.dropped),
        &added(|counts| counts.dead),
    ];
    // Rows written anyway need no other moment.
    let is_old = |queue: &Queue| queue.is_current && set.now.saturating_sub(queue.seen_to) >= NOTE_EVERY;
    let old = live().filter(|(_, queue)| !set.has_more_due && is_old(queue));
    let old: Vec<i32> = old.map(|(no, _)| *no).collect();
    let note: [Param<'_>; 2] = [&old, &time(set.now)];
    try_join!(biased; tx.execute_for(&COUNT, &count), tx.execute_for(&NOTE, &note)).map(drop)
}
