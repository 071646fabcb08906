//! Ids that senders gave their messages.

use hubbub_core::queue::ID_KEPT_MS;
use tokio::try_join;

use super::is_deleted;
use crate::db::{Param, Result, Tx, column, statements};

use crate::queues::sql::time;
use crate::queues::working_set::{WorkingSet, signed};

statements! {
    KNOW("remembering ids of senders") =
        "insert into queue_known (first, queue, message_id, content, sent_at, copies, waiting, forget_at) \
         select k.first, k.queue, k.message_id, k.content, $5, k.copies, k.waiting, k.forget_at \
         from unnest($1, $2, $3, $4, $6, $7, $8) \
           as k (first, queue, message_id, content, copies, waiting, forget_at) \
         on conflict (queue, message_id) do update set first = excluded.first, content = excluded.content, \
           sent_at = excluded.sent_at, copies = excluded.copies, waiting = excluded.waiting, \
           forget_at = excluded.forget_at";

    // By the key and not by place: copies of one message may leave two queues at a time, and only one of them is locked here.
    FORGET_LATER("noting that messages with ids of senders are gone") =
        "update queue_known k set waiting = k.waiting - g.gone, \
           forget_at = case when k.waiting <= g.gone then $3 end \
         from unnest($1, $2) as g (first, gone) where k.first = g.first and k.first = any($1)";
}

pub(super) async fn write(tx: &Tx<'_>, set: &WorkingSet) -> Result<()> {
    let forget_at = time(set.now.saturating_add(signed(ID_KEPT_MS * 1_000)));
    let mut gone = set.known_gone.clone();
    let fresh = set.known.iter().filter(|((queue, _), known)| known.is_new && !is_deleted(set, *queue));
    let fresh: Vec<_> = fresh
        .map(|((queue, id), known)| {
            let waiting = i64::from(known.copies) - gone.remove(&known.first).unwrap_or(0);
            (*queue, id.as_str(), known, waiting)
        })
        .collect();
    let forgotten = |waiting: i64| (waiting <= 0).then_some(forget_at);
    let know: [Param<'_>; 8] = [
        &column(&fresh, |(_, _, known, _)| known.first),
        &column(&fresh, |(queue, ..)| *queue),
        &column(&fresh, |(_, id, ..)| *id),
        &column(&fresh, |(_, _, known, _)| known.content),
        &time(set.now),
        &column(&fresh, |(_, _, known, _)| i64::from(known.copies)),
        &column(&fresh, |(.., waiting)| *waiting),
        &column(&fresh, |(.., waiting)| forgotten(*waiting)),
    ];
    let mut gone: Vec<(i64, i64)> = gone.into_iter().collect();
    gone.sort_unstable();
    let (firsts, counts): (Vec<i64>, Vec<i64>) = gone.into_iter().unzip();
    let forget: [Param<'_>; 3] = [&firsts, &counts, &forget_at];
    try_join!(biased; tx.execute_for(&KNOW, &know), tx.execute_for(&FORGET_LATER, &forget)).map(drop)
}
