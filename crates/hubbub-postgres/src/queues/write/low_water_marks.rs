//! Low-water marks of per-receiver queues.

use std::collections::HashMap;

use tokio::try_join;

use super::is_deleted;
use crate::db::{DbError, Sql, Tx};
use crate::queues::working_set::{ReceiverQueue, WorkingSet};

/// A low-water mark is written when it has moved by so many ids: each time leaves a dead version of the row, and between
/// the times takes walk over so many dead messages at most.
const LOW_STEP: i64 = 4_000;

const RAISE: Sql = Sql {
    what: "noting where queues begin",
    text: "insert into queue_lines (queue, receiver, low) select * from unnest($1, $2, $3) \
           on conflict (queue, receiver) do update set low = excluded.low",
};

const LOWER: Sql = Sql {
    what: "noting that queues begin earlier",
    text: "update queue_lines l set low = k.low from unnest($1, $2, $3) as k (queue, receiver, low) \
           where l.queue = k.queue and l.receiver = k.receiver and l.low > k.low",
};

pub(super) async fn write(tx: &Tx<'_>, set: &WorkingSet) -> Result<(), DbError> {
    let raised = raised(set);
    let raise = async {
        if raised.is_empty() {
            return Ok(0);
        }
        let (queues, receivers, lows) = columns(raised.iter().copied());
        tx.execute(&RAISE, &[&queues, &receivers, &lows]).await
    };
    let lowered = set.lowered.iter().map(|(line, low)| (*line, *low));
    let lowered: Vec<(ReceiverQueue, i64)> = lowered.filter(|((_, receiver), _)| *receiver >= 0).collect();
    let lower = async {
        if lowered.is_empty() {
            return Ok(0);
        }
        let (queues, receivers, lows) = columns(lowered.iter().copied());
        tx.execute(&LOWER, &[&queues, &receivers, &lows]).await
    };
    try_join!(biased; raise, lower).map(drop)
}

fn columns(lines: impl Iterator<Item = (ReceiverQueue, i64)>) -> (Vec<i32>, Vec<i32>, Vec<i64>) {
    let (mut queues, mut receivers, mut lows) = (Vec::new(), Vec::new(), Vec::new());
    for ((queue, receiver), low) in lines {
        queues.push(queue);
        receivers.push(receiver);
        lows.push(low);
    }
    (queues, receivers, lows)
}

/// Lines that begin much later than is noted.
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
