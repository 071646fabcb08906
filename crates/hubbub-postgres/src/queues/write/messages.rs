//! Messages that are new, changed or gone.

use hubbub_core::queue::{DeadLetter, DeadReason};
use tokio::try_join;

use super::is_deleted;
use crate::db::{Param, Result, Tx, column, statements};

use crate::queues::sql::time;
use crate::queues::working_set::{Message, WorkingSet, signed};

statements! {
    INSERT("adding messages to queues") =
        "insert into queue_messages (queue, id, sender, receiver, state, behind, is_copy, deliveries, \
           earlier_deliveries, sent_at, due_at, begun_at, expires_at, known_as, group_id, body, dead_origin, dead_reason, dead_deliveries) \
         select k.queue, k.id, k.sender, k.receiver, k.state, k.behind, k.is_copy, k.deliveries, k.earlier_deliveries, \
           k.sent_at, k.due_at, k.begun_at, k.expires_at, k.known_as, k.group_id, \
           coalesce(k.body, (select body from queue_pending where first = k.copy_of)), \
           k.dead_origin, k.dead_reason, k.dead_deliveries \
         from unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20) \
           as k (queue, id, sender, receiver, state, behind, is_copy, deliveries, earlier_deliveries, sent_at, due_at, \
           begun_at, expires_at, known_as, group_id, body, dead_origin, dead_reason, dead_deliveries, copy_of)";

    UPDATE("changing messages of queues") =
        "update queue_messages m set queue = c.moved, state = c.state, behind = c.behind, \
           deliveries = c.deliveries, earlier_deliveries = c.earlier_deliveries, due_at = c.due_at, begun_at = c.begun_at, expires_at = c.expires_at, \
           dead_origin = c.dead_origin, dead_reason = c.dead_reason, dead_deliveries = c.dead_deliveries \
         from (select k.*, (select ctid from queue_messages where queue = k.queue and id = k.id) as stands_at \
           from unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) as k (queue, id, moved, state, \
             behind, deliveries, earlier_deliveries, due_at, begun_at, expires_at, dead_origin, dead_reason, dead_deliveries) offset 0) c \
         where m.ctid = c.stands_at";

    DELETE("removing messages from queues") =
        "delete from queue_messages where ctid = any(array( \
           select (select ctid from queue_messages where queue = k.queue and id = k.id) \
           from unnest($1, $2) as k (queue, id)))";
}

pub(super) async fn write(tx: &Tx<'_>, set: &WorkingSet) -> Result<()> {
    try_join!(biased; write_gone(tx, set), write_changed(tx, set), write_new(tx, set)).map(drop)
}

/// Messages in the order of their ids, but for new ones of a queue that is gone again.
fn messages(set: &WorkingSet, is_meant: impl Fn(&Message) -> bool) -> Vec<&Message> {
    let is_meant = |message: &&Message| {
        is_meant(message) && (message.stored_in.is_some() || !is_deleted(set, message.queue))
    };
    let mut messages: Vec<&Message> = set.messages.values().filter(is_meant).collect();
    messages.sort_unstable_by_key(|message| message.id);
    messages
}

async fn write_gone(tx: &Tx<'_>, set: &WorkingSet) -> Result<u64> {
    let gone = messages(set, |message| message.is_gone && message.stored_in.is_some());
    let (queues, ids): (Vec<i32>, Vec<i64>) = gone.iter().map(|one| (stored_in(one), one.id)).unzip();
    tx.execute_for(&DELETE, &[&queues, &ids]).await
}

/// The queue under which the database has a message.
fn stored_in(message: &Message) -> i32 {
    message.stored_in.unwrap_or(message.queue)
}

fn dead<'a, T>(message: &'a Message, value: impl Fn(&'a DeadLetter) -> T) -> Option<T> {
    message.dead.as_ref().map(value)
}

fn reason_number(dead: &DeadLetter) -> i16 {
    match dead.reason {
        DeadReason::Rejected => 0,
        DeadReason::LeaseExpired => 1,
    }
}

async fn write_changed(tx: &Tx<'_>, set: &WorkingSet) -> Result<u64> {
    let is_changed =
        |message: &Message| message.is_changed && !message.is_gone && message.stored_in.is_some();
    let some = messages(set, is_changed);
    let params: [Param<'_>; 13] = [
        &column(&some, |one| stored_in(one)),
        &column(&some, |one| one.id),
        &column(&some, |one| one.queue),
        &column(&some, |one| one.state.number()),
        &column(&some, |one| one.behind),
        &column(&some, |one| i64::from(one.deliveries)),
        &column(&some, |one| signed(one.earlier_deliveries)),
        &column(&some, |one| one.due_at.map(time)),
        &column(&some, |one| one.begun_at.map(time)),
        &column(&some, |one| one.expires_at.map(time)),
        &column(&some, |one| dead(one, |dead| &*dead.origin)),
        &column(&some, |one| dead(one, reason_number)),
        &column(&some, |one| dead(one, |dead| i64::from(dead.deliveries))),
    ];
    tx.execute_for(&UPDATE, &params).await
}

async fn write_new(tx: &Tx<'_>, set: &WorkingSet) -> Result<u64> {
    let some = messages(set, |message| !message.is_gone && message.stored_in.is_none());
    let params: [Param<'_>; 20] = [
        &column(&some, |one| one.queue),
        &column(&some, |one| one.id),
        &column(&some, |one| one.sender),
        &column(&some, |one| one.receiver),
        &column(&some, |one| one.state.number()),
        &column(&some, |one| one.behind),
        &column(&some, |one| one.is_copy),
        &column(&some, |one| i64::from(one.deliveries)),
        &column(&some, |one| signed(one.earlier_deliveries)),
        &column(&some, |one| time(one.sent_at)),
        &column(&some, |one| one.due_at.map(time)),
        &column(&some, |one| one.begun_at.map(time)),
        &column(&some, |one| one.expires_at.map(time)),
        &column(&some, |one| one.known_as),
        &column(&some, |one| one.group.as_deref()),
        &column(&some, |one| one.text.as_deref().or_else(|| one.copy_of.is_none().then_some(""))),
        &column(&some, |one| dead(one, |dead| &*dead.origin)),
        &column(&some, |one| dead(one, reason_number)),
        &column(&some, |one| dead(one, |dead| i64::from(dead.deliveries))),
        &column(&some, |one| one.copy_of),
    ];
    tx.execute_for(&INSERT, &params).await
}
