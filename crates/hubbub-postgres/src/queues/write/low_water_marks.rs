//! Low-water marks of per-receiver queues.

use std::collections::HashMap;

use tokio::try_join;

use super::is_deleted;
use crate::db::{Param, Result, Sql, Tx, column};
use crate::queues::states::queue_statements;
use crate::queues::working_set::{ANYBODY, ReceiverQueue, WorkingSet};

/// A low-water mark is written when it has moved by so many ids: each time leaves a dead version of the row, and between
/// the times takes walk over so many dead messages at most.
const LOW_STEP: i64 = 4_000;

queue_statements! {
    /// Not past what was left out because it has expired: a clock that is set back brings it back.
    RAISE("noting where queues begin") =
        "insert into queue_lines (queue, receiver, low) select k.queue, k.receiver, coalesce(m.id, k.low) \
         from (select a.*, coalesce((select l.low from queue_lines l \
             where l.queue = a.queue and l.receiver = a.receiver), 0) as noted \
           from unnest($1, $2, $3) as a (queue, receiver, low) offset 0) k \
         left join lateral (select id from queue_messages where queue::bigint = k.queue and receiver = k.receiver \
           and state = {ready} and not behind and id >= k.noted and id < k.low order by id limit 1) m on true \
         on conflict (queue, receiver) do update set low = excluded.low \
         where excluded.low >= queue_lines.low + $4";

    LOWER("noting that queues begin earlier") =
        "update queue_lines l set low = k.low from unnest($1, $2, $3) as k (queue, receiver, low) \
         where l.queue = k.queue and l.receiver = k.receiver and l.low > k.low";
}

pub(super) async fn write(tx: &Tx<'_>, set: &WorkingSet) -> Result<()> {
    let lowered = set.lowered.iter().map(|(line, low)| (*line, *low));
    let lowered: Vec<_> = lowered.filter(|((_, receiver), _)| *receiver >= ANYBODY).collect();
    let raised = raised(set);
    try_join!(biased; write_marks(tx, &RAISE, &raised, &[&LOW_STEP]), write_marks(tx, &LOWER, &lowered, &[]))
        .map(drop)
}

async fn write_marks(
    tx: &Tx<'_>,
    statement: &Sql,
    marks: &[(ReceiverQueue, i64)],
    more: &[Param<'_>],
) -> Result<u64> {
    let queues = column(marks, |((queue, _), _)| *queue);
    let receivers = column(marks, |((_, receiver), _)| *receiver);
    let lows = column(marks, |(_, low)| *low);
    let params: [Param<'_>; 3] = [&queues, &receivers, &lows];
    tx.execute_for(statement, &[params.as_slice(), more].concat()).await
}

fn raised(set: &WorkingSet) -> Vec<(ReceiverQueue, i64)> {
    let mut tops: HashMap<ReceiverQueue, i64> = HashMap::new();
    for message in set.messages.values() {
        let top = tops.entry(message.receiver_queue()).or_insert(message.id);
        *top = (*top).max(message.id);
    }
    // Whoever came to the end of a per-receiver queue from its newest message knows where it begins, too.
    let known = set
        .frontiers
        .iter()
        .filter(|(place, frontier)| place.sender.is_none() && (!place.newest_first || frontier.is_complete));
    let mut lines: HashMap<ReceiverQueue, i64> = HashMap::new();
    for (place, frontier) in known {
        let line = (place.queue, place.receiver);
        let noted = set.low_water_marks.get(&line).copied().unwrap_or(0);
        let loaded_to = if place.newest_first { 0 } else { frontier.to };
        // Whatever comes later has a greater id than everything that ever was there.
        let unknown_from = match frontier.is_complete {
            true => loaded_to.max(tops.get(&line).copied().unwrap_or(0)) + 1,
            false => loaded_to + 1,
        };
        let first = set.ready.get(&line).and_then(|ids| ids.first()).copied();
        let low = first.map_or(unknown_from, |first| first.min(unknown_from));
        if low - noted >= LOW_STEP && !is_deleted(set, place.queue) {
            let raised = lines.entry(line).or_default();
            *raised = low.max(*raised);
        }
    }
    lines.into_iter().collect()
}
