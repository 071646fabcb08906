//! Writing what a batch changed: first what others refer to (clients, queues), then everything else at once.

use std::collections::HashMap;

use hubbub_core::QueueRules;
use hubbub_core::queue::{DeadReason, ID_KEPT_MS, WhenFull};
use tokio::try_join;
use tokio_postgres::types::Type;

use super::image::{Counts, Image, Line, Message, Queue, State};
use super::load::{enter_queue, time};
use crate::db::{Fault, PgTime, Sql, Tx};

/// How often what a queue counted is brought together, and what it has seen to is noted, in microseconds.
const NOTE_EVERY: i64 = 1_000_000;
/// A line's beginning is written when it has moved by so many ids: each time leaves a dead version of the row, and between
/// the times takes walk over so many dead messages at most.
const LOW_STEP: i64 = 4_000;

const MAKE_QUEUE: Sql = Sql {
    what: "making a queue",
    text: "insert into queues (id, is_dead_letter, lease_ms, deliveries_max, dead_letter, ttl_ms, messages_max, \
             bytes_max, drops_oldest, backoff_ms, backoff_max_ms, seen_to) \
           values ($1, false, $2, 0, '', 0, 0, 0, false, 0, $3, $4) \
           on conflict (id) where not deleted do nothing returning *",
    types: &[Type::TEXT, Type::INT8, Type::INT8, Type::TIMESTAMPTZ],
};

const DELETE_QUEUES: Sql = Sql {
    what: "deleting queues",
    text: "update queues set deleted = true where no = any($1)",
    types: &[Type::INT4_ARRAY],
};

const CHANGE_QUEUE: Sql = Sql {
    what: "changing a queue",
    text: "update queues set is_dead_letter = $2, lease_ms = $3, deliveries_max = $4, dead_letter = $5, ttl_ms = $6, \
             messages_max = $7, bytes_max = $8, drops_oldest = $9, backoff_ms = $10, backoff_max_ms = $11 \
           where no = $1",
    types: &[
        Type::INT4,
        Type::BOOL,
        Type::INT8,
        Type::INT8,
        Type::TEXT,
        Type::INT8,
        Type::INT8,
        Type::INT8,
        Type::BOOL,
        Type::INT8,
        Type::INT8,
    ],
};

const NAME_NUMBER: Sql = Sql {
    what: "noting the highest number of a queue",
    text: "update queue_head set highest_named = greatest(highest_named, $1)",
    types: &[Type::INT8],
};

const NEXT_VERSION: Sql = Sql {
    what: "noting that clients change",
    text: "update queue_head set client_version = client_version + 1 returning client_version",
    types: &[],
};

const CHANGE_CLIENTS: Sql = Sql {
    what: "registering clients",
    text: "insert into clients (id, registered, version) \
           select c.id, c.registered, $3 from unnest($1, $2) as c (id, registered) order by c.id \
           on conflict (id) do update set registered = excluded.registered, version = excluded.version \
           returning id, no",
    types: &[Type::TEXT_ARRAY, Type::BOOL_ARRAY, Type::INT8],
};

const INSERT: Sql = Sql {
    what: "adding messages to queues",
    text: "insert into queue_messages (queue, id, sender, receiver, state, behind, is_copy, deliveries, sent_at, due_at, \
             begun_at, expires_at, known_as, group_id, body, dead_origin, dead_reason, dead_deliveries) \
           select * from unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)",
    types: &[
        Type::INT4_ARRAY,
        Type::INT8_ARRAY,
        Type::INT4_ARRAY,
        Type::INT4_ARRAY,
        Type::INT2_ARRAY,
        Type::BOOL_ARRAY,
        Type::BOOL_ARRAY,
        Type::INT8_ARRAY,
        Type::TIMESTAMPTZ_ARRAY,
        Type::TIMESTAMPTZ_ARRAY,
        Type::TIMESTAMPTZ_ARRAY,
        Type::TIMESTAMPTZ_ARRAY,
        Type::INT8_ARRAY,
        Type::TEXT_ARRAY,
        Type::TEXT_ARRAY,
        Type::TEXT_ARRAY,
        Type::INT2_ARRAY,
        Type::INT8_ARRAY,
    ],
};

const UPDATE: Sql = Sql {
    what: "changing messages of queues",
    text: "update queue_messages m set queue = c.moved, state = c.state, behind = c.behind, \
             deliveries = c.deliveries, due_at = c.due_at, begun_at = c.begun_at, expires_at = c.expires_at, \
             dead_origin = c.dead_origin, dead_reason = c.dead_reason, dead_deliveries = c.dead_deliveries \
           from unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) as c (queue, id, moved, state, behind, \
             deliveries, due_at, begun_at, expires_at, dead_origin, dead_reason, dead_deliveries) \
           where m.queue = c.queue and m.id = c.id",
    types: &[
        Type::INT4_ARRAY,
        Type::INT8_ARRAY,
        Type::INT4_ARRAY,
        Type::INT2_ARRAY,
        Type::BOOL_ARRAY,
        Type::INT8_ARRAY,
        Type::TIMESTAMPTZ_ARRAY,
        Type::TIMESTAMPTZ_ARRAY,
        Type::TIMESTAMPTZ_ARRAY,
        Type::TEXT_ARRAY,
        Type::INT2_ARRAY,
        Type::INT8_ARRAY,
    ],
};

const DELETE: Sql = Sql {
    what: "removing messages from queues",
    text: "delete from queue_messages m using unnest($1, $2) as c (queue, id) \
           where m.queue = c.queue and m.id = c.id",
    types: &[Type::INT4_ARRAY, Type::INT8_ARRAY],
};

const KNOW: Sql = Sql {
    what: "remembering ids of senders",
    text: "insert into queue_known (first, queue, message_id, content, sent_at, copies, waiting, forget_at) \
           select k.first, k.queue, k.message_id, k.content, $5, k.copies, k.waiting, k.forget_at \
           from unnest($1, $2, $3, $4, $6, $7, $8) \
             as k (first, queue, message_id, content, copies, waiting, forget_at) \
           on conflict (queue, message_id) do update set first = excluded.first, content = excluded.content, \
             sent_at = excluded.sent_at, copies = excluded.copies, waiting = excluded.waiting, \
             forget_at = excluded.forget_at",
    types: &[
        Type::INT8_ARRAY,
        Type::INT4_ARRAY,
        Type::TEXT_ARRAY,
        Type::INT8_ARRAY,
        Type::TIMESTAMPTZ,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::TIMESTAMPTZ_ARRAY,
    ],
};

const FORGET_LATER: Sql = Sql {
    what: "noting that messages with ids of senders are gone",
    text: "update queue_known k set waiting = k.waiting - g.gone, \
             forget_at = case when k.waiting <= g.gone then $3 end \
           from unnest($1, $2) as g (first, gone) where k.first = g.first",
    types: &[Type::INT8_ARRAY, Type::INT8_ARRAY, Type::TIMESTAMPTZ],
};

const COUNT: Sql = Sql {
    what: "counting messages of queues",
    text: "insert into queue_counts (queue, messages, delayed, leased, bytes, sent, done, dropped, dead) \
           select * from unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)",
    types: &[
        Type::INT4_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
    ],
};

/// Brings counts together, and notes up to when everything was seen to.
const NOTE: Sql = Sql {
    what: "noting what queues have done",
    text: "with gone as ( \
             delete from queue_counts c using queues q \
             where q.no = any($1) and c.queue = q.no and c.no > q.counted returning c.*), \
           added as ( \
             select queue, max(no) as no, sum(messages) as messages, sum(delayed) as delayed, sum(leased) as leased, \
               sum(bytes) as bytes, sum(sent) as sent, sum(done) as done, sum(dropped) as dropped, sum(dead) as dead \
             from gone group by queue) \
           update queues q set seen_to = greatest(q.seen_to, $2), counted = coalesce(a.no, q.counted), \
             messages = q.messages + coalesce(a.messages, 0), delayed = q.delayed + coalesce(a.delayed, 0), \
             leased = q.leased + coalesce(a.leased, 0), bytes = q.bytes + coalesce(a.bytes, 0), \
             sent = q.sent + coalesce(a.sent, 0), done = q.done + coalesce(a.done, 0), \
             dropped = q.dropped + coalesce(a.dropped, 0), dead = q.dead + coalesce(a.dead, 0) \
           from unnest($1) as k (no) left join added a on a.queue = k.no where q.no = k.no",
    types: &[Type::INT4_ARRAY, Type::TIMESTAMPTZ],
};

const RAISE: Sql = Sql {
    what: "noting where queues begin",
    text: "insert into queue_lines (queue, receiver, low) select * from unnest($1, $2, $3) \
           on conflict (queue, receiver) do update set low = excluded.low",
    types: &[Type::INT4_ARRAY, Type::INT4_ARRAY, Type::INT8_ARRAY],
};

const LOWER: Sql = Sql {
    what: "noting that queues begin earlier",
    text: "update queue_lines l set low = k.low from unnest($1, $2, $3) as k (queue, receiver, low) \
           where l.queue = k.queue and l.receiver = k.receiver and l.low > k.low",
    types: &[Type::INT4_ARRAY, Type::INT4_ARRAY, Type::INT8_ARRAY],
};

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Makes a queue if there is none of that name, and locks it.
pub(super) async fn make_queue(tx: &Tx<'_>, image: &mut Image, name: &str) -> Result<(), Fault> {
    // The name may be that of one that this batch deleted.
    delete_queues(tx, image).await?;
    let QueueRules { lease_ms, backoff_max_ms, .. } = QueueRules::default();
    let (lease_ms, backoff_max_ms, now) = (signed(lease_ms), signed(backoff_max_ms), time(image.now));
    let made = tx.query_opt(&MAKE_QUEUE, &[&name, &lease_ms, &backoff_max_ms, &now]).await?;
    let (rows, is_new) = match made {
        Some(row) => (vec![row], true),
        // Somebody else was faster.
        None => (tx.query(&super::sql::LOCK_QUEUES, &[&vec![name], &Vec::<i32>::new()]).await?, false),
    };
    for row in &rows {
        enter_queue(image, row);
        if let Some(queue) = image.queues.get_mut(&row.get("no")).filter(|_| is_new) {
            (queue.is_new, queue.held) = (true, Some((0, 0)));
        }
    }
    Ok(())
}

async fn delete_queues(tx: &Tx<'_>, image: &Image) -> Result<(), Fault> {
    let deleted = image.queues.iter().filter(|(_, queue)| queue.is_deleted);
    let deleted: Vec<i32> = deleted.map(|(no, _)| *no).collect();
    if deleted.is_empty() {
        return Ok(());
    }
    tx.execute(&DELETE_QUEUES, &[&deleted]).await.map(drop)
}

/// Writes everything that is to be written.
pub(super) async fn write(tx: &Tx<'_>, image: &mut Image) -> Result<(), Fault> {
    write_clients(tx, image).await?;
    let image = &*image;
    delete_queues(tx, image).await?;
    for (no, queue) in image.queues.iter().filter(|(_, queue)| queue.is_changed && !queue.is_deleted) {
        change_queue(tx, *no, queue).await?;
    }
    if let (true, Some(highest)) = (image.has_named, image.highest_named) {
        tx.execute(&NAME_NUMBER, &[&highest]).await?;
    }
    try_join!(
        write_gone(tx, image),
        write_changed(tx, image),
        write_new(tx, image),
        write_known(tx, image),
        write_counts(tx, image),
        write_lines(tx, image),
    )?;
    Ok(())
}

async fn write_clients(tx: &Tx<'_>, image: &mut Image) -> Result<(), Fault> {
    let changed = image.clients.iter().filter(|(_, client)| client.is_changed);
    let (names, registered): (Vec<&str>, Vec<bool>) =
        changed.map(|(name, client)| (&**name, client.is_registered)).unzip();
    if names.is_empty() {
        return Ok(());
    }
    let version: i64 = tx.query_one(&NEXT_VERSION, &[]).await?.get(0);
    let rows = tx.query(&CHANGE_CLIENTS, &[&names, &registered, &version]).await?;
    let numbers = rows.iter().filter_map(|row| {
        let client = image.clients.get(row.get::<_, &str>(0))?;
        Some((client.no, row.get::<_, i32>(1)))
    });
    let numbers: HashMap<i32, i32> = numbers.collect();
    let number = |no: i32| numbers.get(&no).copied().unwrap_or(no);
    for message in image.messages.values_mut().filter(|message| message.stored_in.is_none()) {
        (message.sender, message.receiver) = (number(message.sender), number(message.receiver));
    }
    Ok(())
}

async fn change_queue(tx: &Tx<'_>, no: i32, queue: &Queue) -> Result<(), Fault> {
    let settings = &queue.settings;
    let drops_oldest = settings.when_full == WhenFull::DropOldest;
    let numbers = [
        settings.lease_ms,
        settings.deliveries_max.into(),
        settings.ttl_ms,
        settings.messages_max,
        settings.bytes_max,
        settings.backoff_ms,
        settings.backoff_max_ms,
    ];
    let [lease, deliveries, ttl, messages, bytes, backoff, backoff_max] = numbers.map(signed);
    let dead_letter = &*settings.dead_letter;
    let params: [crate::db::Param<'_>; 11] = [
        &no,
        &queue.is_dead_letter,
        &lease,
        &deliveries,
        &dead_letter,
        &ttl,
        &messages,
        &bytes,
        &drops_oldest,
        &backoff,
        &backoff_max,
    ];
    tx.execute(&CHANGE_QUEUE, &params).await.map(drop)
}

fn is_deleted(image: &Image, queue: i32) -> bool {
    image.queues.get(&queue).is_some_and(|queue| queue.is_deleted)
}

/// Messages in the order of their ids, but for new ones of a queue that is gone again.
fn messages(image: &Image, is_meant: impl Fn(&Message) -> bool) -> Vec<&Message> {
    let is_meant = |message: &&Message| {
        is_meant(message) && (message.stored_in.is_some() || !is_deleted(image, message.queue))
    };
    let mut messages: Vec<&Message> = image.messages.values().filter(is_meant).collect();
    messages.sort_unstable_by_key(|message| message.id);
    messages
}

async fn write_gone(tx: &Tx<'_>, image: &Image) -> Result<(), Fault> {
    let gone = messages(image, |message| message.is_gone && message.stored_in.is_some());
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

async fn write_changed(tx: &Tx<'_>, image: &Image) -> Result<(), Fault> {
    let is_changed =
        |message: &Message| message.is_changed && !message.is_gone && message.stored_in.is_some();
    let some = messages(image, is_changed);
    if some.is_empty() {
        return Ok(());
    }
    let params: [crate::db::Param<'_>; 12] = [
        &column(&some, |one| one.stored_in.unwrap_or(one.queue)),
        &column(&some, |one| one.id),
        &column(&some, |one| one.queue),
        &column(&some, |one| one.state.number()),
        &column(&some, |one| one.behind),
        &column(&some, |one| i64::from(one.deliveries)),
        &column(&some, |one| maybe_time(one.due_at)),
        &column(&some, |one| maybe_time(one.begun_at)),
        &column(&some, |one| maybe_time(one.expires_at)),
        &column(&some, dead_origin),
        &column(&some, dead_reason),
        &column(&some, dead_deliveries),
    ];
    tx.execute(&UPDATE, &params).await.map(drop)
}

async fn write_new(tx: &Tx<'_>, image: &Image) -> Result<(), Fault> {
    let some = messages(image, |message| !message.is_gone && message.stored_in.is_none());
    if some.is_empty() {
        return Ok(());
    }
    let params: [crate::db::Param<'_>; 18] = [
        &column(&some, |one| one.queue),
        &column(&some, |one| one.id),
        &column(&some, |one| one.sender),
        &column(&some, |one| one.receiver),
        &column(&some, |one| one.state.number()),
        &column(&some, |one| one.behind),
        &column(&some, |one| one.is_copy),
        &column(&some, |one| i64::from(one.deliveries)),
        &column(&some, |one| time(one.sent_at)),
        &column(&some, |one| maybe_time(one.due_at)),
        &column(&some, |one| maybe_time(one.begun_at)),
        &column(&some, |one| maybe_time(one.expires_at)),
        &column(&some, |one| one.known_as),
        &column(&some, |one| one.group.as_deref()),
        &column(&some, |one| one.text.as_deref().unwrap_or_default()),
        &column(&some, dead_origin),
        &column(&some, dead_reason),
        &column(&some, dead_deliveries),
    ];
    tx.execute(&INSERT, &params).await.map(drop)
}

async fn write_known(tx: &Tx<'_>, image: &Image) -> Result<(), Fault> {
    let forget_at = time(image.now.saturating_add(signed(ID_KEPT_MS * 1_000)));
    let mut gone = image.known_gone.clone();
    let fresh = image.known.iter().filter(|((queue, _), known)| known.is_new && !is_deleted(image, *queue));
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
        let now = time(image.now);
        tx.execute(&KNOW, &[&firsts, &queues, &ids, &contents, &now, &copies, &waiting, &forget]).await
    };
    let (firsts, counts): (Vec<i64>, Vec<i64>) = gone.into_iter().unzip();
    let forget = async {
        if firsts.is_empty() {
            return Ok(0);
        }
        tx.execute(&FORGET_LATER, &[&firsts, &counts, &forget_at]).await
    };
    try_join!(know, forget).map(drop)
}

async fn write_counts(tx: &Tx<'_>, image: &Image) -> Result<(), Fault> {
    let live = || image.queues.iter().filter(|(_, queue)| !queue.is_deleted);
    let counted: Vec<(i32, Counts)> = live()
        .filter(|(_, queue)| queue.added != Counts::default())
        .map(|(no, queue)| (*no, queue.added))
        .collect();
    let count = async {
        if counted.is_empty() {
            return Ok(0);
        }
        let queues: Vec<i32> = counted.iter().map(|(no, _)| *no).collect();
        let column = |value: fn(&Counts) -> i64| -> Vec<i64> {
            counted.iter().map(|(_, counts)| value(counts)).collect()
        };
        let params: [crate::db::Param<'_>; 9] = [
            &queues,
            &column(|counts| counts.messages),
            &column(|counts| counts.delayed),
            &column(|counts| counts.leased),
            &column(|counts| counts.bytes),
            &column(|counts| counts.sent),
            &column(|counts| counts.done),
            &column(|counts| counts.dropped),
            &column(|counts| counts.dead),
        ];
        tx.execute(&COUNT, &params).await
    };
    // Rows written anyway need no other moment.
    let is_old = |queue: &Queue| image.now.saturating_sub(queue.seen_to) >= NOTE_EVERY;
    let old: Vec<i32> = live().filter(|(_, queue)| is_old(queue)).map(|(no, _)| *no).collect();
    let note = async {
        if old.is_empty() || image.has_more_due {
            return Ok(0);
        }
        tx.execute(&NOTE, &[&old, &time(image.now)]).await
    };
    try_join!(count, note).map(drop)
}

async fn write_lines(tx: &Tx<'_>, image: &Image) -> Result<(), Fault> {
    let raised = raised(image);
    let raise = async {
        if raised.is_empty() {
            return Ok(0);
        }
        let (queues, receivers, lows) = columns(raised.iter().copied());
        tx.execute(&RAISE, &[&queues, &receivers, &lows]).await
    };
    let lowered = image.lowered.iter().map(|(line, low)| (*line, *low));
    let lowered: Vec<(Line, i64)> = lowered.filter(|((_, receiver), _)| *receiver >= 0).collect();
    let lower = async {
        if lowered.is_empty() {
            return Ok(0);
        }
        let (queues, receivers, lows) = columns(lowered.iter().copied());
        tx.execute(&LOWER, &[&queues, &receivers, &lows]).await
    };
    try_join!(raise, lower).map(drop)
}

fn columns(lines: impl Iterator<Item = (Line, i64)>) -> (Vec<i32>, Vec<i32>, Vec<i64>) {
    let (mut queues, mut receivers, mut lows) = (Vec::new(), Vec::new(), Vec::new());
    for ((queue, receiver), low) in lines {
        queues.push(queue);
        receivers.push(receiver);
        lows.push(low);
    }
    (queues, receivers, lows)
}

/// Lines that begin much later than is noted.
fn raised(image: &Image) -> Vec<(Line, i64)> {
    let mut tops: HashMap<Line, i64> = HashMap::new();
    for message in image.messages.values() {
        let top = tops.entry(message.line()).or_insert(message.id);
        *top = (*top).max(message.id);
    }
    let oldest_first =
        image.frontiers.iter().filter(|(place, _)| place.sender.is_none() && !place.newest_first);
    let lines = oldest_first.filter_map(|(place, frontier)| {
        let line = (place.queue, place.receiver);
        let noted = image.lows.get(&line).copied().unwrap_or(0);
        // Whatever comes later has a greater id than everything that ever was in the line.
        let unknown_from = match frontier.is_complete {
            true => frontier.to.max(tops.get(&line).copied().unwrap_or(0)) + 1,
            false => frontier.to + 1,
        };
        let first = image.ready.get(&line).and_then(|ids| ids.first()).copied();
        let low = first.map_or(unknown_from, |first| first.min(unknown_from));
        (low - noted >= LOW_STEP && !is_deleted(image, place.queue)).then_some((line, low))
    });
    lines.collect()
}

/// When time does something with what was written, if it does.
pub(super) fn due_of(image: &Image) -> Option<i64> {
    let written = image.messages.values().filter(|message| !message.is_gone);
    let written = written.filter(|message| message.is_changed || message.stored_in.is_none());
    let due = written.filter_map(|message| match message.state {
        State::Exhausted | State::Expired => Some(i64::MIN),
        State::Leased => message.due_at,
        State::Delayed => message.due_at.into_iter().chain(message.expires_at).min(),
        State::Ready => message.expires_at,
    });
    due.min()
}
