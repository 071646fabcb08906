//! Inserts rows into the working set. What is there already is newer, and stays.

use std::sync::Arc;

use hubbub_core::QueueRules;
use hubbub_core::invariant::saturate;
use hubbub_core::queue::WhenFull;
use tokio_postgres::Row;

use crate::db::{PgTime, Result};
use crate::queues::working_set::{Client, Counts, Known, Members, Message, PendingChunk, Queue, WorkingSet};

fn name(row: &Row, column: &str) -> Arc<str> {
    row.get::<_, &str>(column).into()
}

/// The settings in a row of `queues`.
pub(in crate::queues) fn rules_of(row: &Row) -> QueueRules {
    let number = |column: &str| row.get::<_, i64>(column);
    QueueRules {
        lease_ms: saturate(number("lease_ms")),
        deliveries_max: saturate(number("deliveries_max")),
        dead_letter: row.get::<_, &str>("dead_letter").into(),
        ttl_ms: saturate(number("ttl_ms")),
        messages_max: saturate(number("messages_max")),
        bytes_max: saturate(number("bytes_max")),
        when_full: if row.get("drops_oldest") { WhenFull::DropOldest } else { WhenFull::Refuse },
        backoff_ms: saturate(number("backoff_ms")),
        backoff_max_ms: saturate(number("backoff_max_ms")),
    }
}

/// Inserts a queue that is locked.
pub(super) fn insert_queue(set: &mut WorkingSet, row: &Row, seen_to: i64) {
    let (no, name) = (row.get("no"), name(row, "id"));
    if set.queues.contains_key(&no) {
        return;
    }
    set.names.insert(Arc::clone(&name), no);
    set.queried_names.insert(Arc::clone(&name));
    let queue = Queue {
        name,
        is_dead_letter: row.get("is_dead_letter"),
        settings: rules_of(row),
        seen_to,
        is_current: false,
        held: None,
        added: Counts::default(),
        is_changed: false,
        is_new: false,
        is_deleted: false,
    };
    set.queues.insert(no, queue);
}

pub(super) fn insert_messages(set: &mut WorkingSet, rows: &[Row]) -> Result<()> {
    for row in rows {
        for (number, column) in [("sender", "sender_name"), ("receiver", "receiver_name")] {
            set.client_names.entry(row.get(number)).or_insert_with(|| name(row, column));
        }
        set.insert(Message::of_row(row)?);
    }
    Ok(())
}

pub(super) fn insert_client(set: &mut WorkingSet, row: &Row) {
    let (no, name) = (row.get("no"), name(row, "id"));
    set.client_names.insert(no, Arc::clone(&name));
    let client = Client { no, is_registered: row.get("registered"), is_changed: false };
    let known = set.clients.entry(name).or_insert(client);
    // What was read later counts, unless the batch has decided otherwise.
    if !known.is_changed {
        *known = client;
    }
}

pub(super) fn insert_known(set: &mut WorkingSet, row: &Row) {
    let known = Known {
        first: row.get("first"),
        content: row.get("content"),
        sent_at: row.get::<_, PgTime>("sent_at").0.as_micros(),
        copies: saturate(row.get::<_, i64>("copies")),
        is_new: false,
    };
    set.known.insert((row.get("queue"), row.get("message_id")), known);
}

pub(super) fn insert_held(set: &mut WorkingSet, rows: &[Row]) {
    for row in rows {
        if let Some(queue) = set.queues.get_mut(&row.get("no")) {
            // What this batch changed is not written yet.
            queue.held = Some((row.get("messages"), row.get("bytes")));
        }
    }
}

pub(in crate::queues) fn insert_pending(set: &mut WorkingSet, rows: &[Row]) -> Result<()> {
    for row in rows {
        let template = Message { stored_in: None, ..Message::of_row(row)? };
        let first = template.id;
        set.client_names.entry(template.sender).or_insert_with(|| name(row, "sender_name"));
        set.insert_pending(template, row.get("unmade_copies"));
        if let Some(chunk) = row.get::<_, Option<i32>>("chunk") {
            set.insert_pending_chunk(first, chunk, pending_chunk(row));
        }
    }
    Ok(())
}

/// Some of those a message to everybody is for.
pub(in crate::queues) fn pending_chunk(row: &Row) -> PendingChunk {
    PendingChunk {
        low: row.get("low"),
        receivers: Members::of_bytes(row.get("receivers")),
        unmade: Members::of_bytes(row.get("members")),
        is_changed: false,
    }
}
