//! Messages that are new, changed or gone.

use hubbub_core::queue::DeadReason;
use tokio::try_join;

use super::is_deleted;
use crate::db::{DbError, Param, PgTime, Sql, Tx};
use crate::queues::settings::signed;
use crate::queues::sql::time;
use crate::queues::working_set::{Message, WorkingSet};

const INSERT: Sql = Sql {
    what: "adding messages to queues",
    text: "insert into queue_messages (queue, id, sender, receiver, state, behind, is_copy, deliveries, \
             earlier_deliveries, sent_at, due_at, begun_at, expires_at, known_as, group_id, body, dead_origin, dead_reason, dead_deliveries) \
           select k.queue, k.id, k.sender, k.receiver, k.state, k.behind, k.is_copy, k.deliveries, k.earlier_deliveries, \
             k.sent_at, k.due_at, k.begun_at, k.expires_at, k.known_as, k.group_id, \
             coalesce(k.body, (select body from queue_pending where first = k.copy_of)), \
             k.dead_origin, k.dead_reason, k.dead_deliveries \
           from unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20) \
             as k (queue, id, sender, receiver, state, behind, is_copy, deliveries, earlier_deliveries, sent_at, due_at, \
             begun_at, expires_at, known_as, group_id, body, dead_origin, dead_reason, dead_deliveries, copy_of)",
};

const UPDATE: Sql = Sql {
    what: "changing messages of queues",
    text: "update queue_messages m set queue = c.moved, state = c.state, behind = c.behind, \
             deliveries = c.deliveries, earlier_deliveries = c.earlier_deliveries, due_at = c.due_at, begun_at = c.begun_at, expires_at = c.expires_at, \
             dead_origin = c.dead_origin, dead_reason = c.dead_reason, dead_deliveries = c.dead_deliveries \
           from (select k.*, (select ctid from queue_messages where queue = k.queue and id = k.id) as stands_at \
             from unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) as k (queue, id, moved, state, \
               behind, deliveries, earlier_deliveries, due_at, begun_at, expires_at, dead_origin, dead_reason, dead_deliveries) offset 0) c \
           where m.ctid = c.stands_at",
};

const DELETE: Sql = Sql {
    what: "removing messages from queues",
    text: "delete from queue_messages where ctid = any(array( \
             select (select ctid from queue_messages where queue = k.queue and id = k.id) \
             from unnest($1, $2) as k (queue, id)))",
};

pub(super) async fn write(tx: &Tx<'_>, set: &WorkingSet) -> Result<(), DbError> {
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

async fn write_gone(tx: &Tx<'_>, set: &WorkingSet) -> Result<(), DbError> {
    let gone = messages(set, |message| message.is_gone && message.stored_in.is_some());
    if gone.is_empty() {
        return Ok(());
    }
    let (queues, ids): (Vec<i32>, Vec<i64>) =
        gone.iter().map(|message| (message.stored_in.unwrap_or(message.queue), message.id)).unzip();
    tx.execute(&DELETE, &[&queues, &ids]).await.map(drop)
}

/// One value of each message.
fn column<'a, T>(messages: &[&'a Message], value: impl Fn(&'a Message) -> T) -> Vec<T> {
    messages.iter().map(|message| value(message)).collect()
}

fn maybe_time(micros: Option<i64>) -> Option<PgTime> {
    micros.map(time)
}

fn dead_origin(message: &Message) -> Option<&str> {
    message.dead.as_ref().map(|dead| &*dead.origin)
}

fn dead_reason(message: &Message) -> Option<i16> {
    message.dead.as_ref().map(|dead| match dead.reason {
        DeadReason::Rejected => 0,
        DeadReason::LeaseExpired => 1,
    })
}

fn dead_deliveries(message: &Message) -> Option<i64> {
    message.dead.as_ref().map(|dead| dead.deliveries.into())
}

async fn write_changed(tx: &Tx<'_>, set: &WorkingSet) -> Result<(), DbError> {
    let is_changed =
        |message: &Message| message.is_changed && !message.is_gone && message.stored_in.is_some();
    let some = messages(set, is_changed);
    if some.is_empty() {
        return Ok(());
    }
    let params: [Param<'_>; 13] = [
        &column(&some, |one| one.stored_in.unwrap_or(one.queue)),
        &column(&some, |one| one.id),
        &column(&some, |one| one.queue),
        &column(&some, |one| one.state.number()),
        &column(&some, |one| one.behind),
        &column(&some, |one| i64::from(one.deliveries)),
        &column(&some, |one| signed(one.earlier_deliveries)),
        &column(&some, |one| maybe_time(one.due_at)),
        &column(&some, |one| maybe_time(one.begun_at)),
        &column(&some, |one| maybe_time(one.expires_at)),
        &column(&some, dead_origin),
        &column(&some, dead_reason),
        &column(&some, dead_deliveries),
    ];
    tx.execute(&UPDATE, &params).await.map(drop)
}

async fn write_new(tx: &Tx<'_>, set: &WorkingSet) -> Result<(), DbError> {
    let some = messages(set, |message| !message.is_gone && message.stored_in.is_none());
    if some.is_empty() {
        return Ok(());
    }
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
        &column(&some, |one| maybe_time(one.due_at)),
        &column(&some, |one| maybe_time(one.begun_at)),
        &column(&some, |one| maybe_time(one.expires_at)),
        &column(&some, |one| one.known_as),
        &column(&some, |one| one.group.as_deref()),
        &column(&some, |one| one.text.as_deref().or_else(|| one.copy_of.is_none().then_some(""))),
        &column(&some, dead_origin),
        &column(&some, dead_reason),
        &column(&some, dead_deliveries),
        &column(&some, |one| one.copy_of),
    ];
    tx.execute(&INSERT, &params).await.map(drop)
}
