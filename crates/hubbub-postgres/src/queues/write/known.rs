//! Ids that senders gave their messages.

use hubbub_core::queue::ID_KEPT_MS;
use tokio::try_join;

use super::is_deleted;
use crate::db::{DbError, PgTime, Sql, Tx};
use crate::queues::settings::signed;
use crate::queues::sql::time;
use crate::queues::working_set::WorkingSet;

const KNOW: Sql = Sql {
    what: "remembering ids of senders",
    text: "insert into queue_known (first, queue, message_id, content, sent_at, copies, waiting, forget_at) \
           select k.first, k.queue, k.message_id, k.content, $5, k.copies, k.waiting, k.forget_at \
           from unnest($1, $2, $3, $4, $6, $7, $8) \
             as k (first, queue, message_id, content, copies, waiting, forget_at) \
           on conflict (queue, message_id) do update set first = excluded.first, content = excluded.content, \
             sent_at = excluded.sent_at, copies = excluded.copies, waiting = excluded.waiting, \
             forget_at = excluded.forget_at",
};

const FORGET_LATER: Sql = Sql {
    what: "noting that messages with ids of senders are gone",
    // By the key and not by place: copies of one message may leave two queues at a time, and only one of them is locked here.
    text: "update queue_known k set waiting = k.waiting - g.gone, \
             forget_at = case when k.waiting <= g.gone then $3 end \
           from unnest($1, $2) as g (first, gone) where k.first = g.first and k.first = any($1)",
};

pub(super) async fn write(tx: &Tx<'_>, set: &WorkingSet) -> Result<(), DbError> {
    let forget_at = time(set.now.saturating_add(signed(ID_KEPT_MS * 1_000)));
    let mut gone = set.known_gone.clone();
    let fresh = set.known.iter().filter(|((queue, _), known)| known.is_new && !is_deleted(set, *queue));
    let fresh: Vec<_> = fresh
        .map(|((queue, id), known)| {
            let waiting = i64::from(known.copies) - gone.remove(&known.first).unwrap_or(0);
            (*queue, id.as_str(), known, waiting)
        })
        .collect();
    let know = async {
        if fresh.is_empty() {
            return Ok(0);
        }
        let firsts: Vec<i64> = fresh.iter().map(|(_, _, known, _)| known.first).collect();
        let queues: Vec<i32> = fresh.iter().map(|(queue, ..)| *queue).collect();
        let ids: Vec<&str> = fresh.iter().map(|(_, id, ..)| *id).collect();
        let contents: Vec<i64> = fresh.iter().map(|(_, _, known, _)| known.content).collect();
        let copies: Vec<i64> = fresh.iter().map(|(_, _, known, _)| known.copies.into()).collect();
        let waiting: Vec<i64> = fresh.iter().map(|(.., waiting)| *waiting).collect();
        let forget: Vec<Option<PgTime>> =
            waiting.iter().map(|left| (*left <= 0).then_some(forget_at)).collect();
        let now = time(set.now);
        tx.execute(&KNOW, &[&firsts, &queues, &ids, &contents, &now, &copies, &waiting, &forget]).await
    };
    let mut gone: Vec<(i64, i64)> = gone.into_iter().collect();
    gone.sort_unstable();
    let (firsts, counts): (Vec<i64>, Vec<i64>) = gone.into_iter().unzip();
    let forget = async {
        if firsts.is_empty() {
            return Ok(0);
        }
        tx.execute(&FORGET_LATER, &[&firsts, &counts, &forget_at]).await
    };
    try_join!(biased; know, forget).map(drop)
}
