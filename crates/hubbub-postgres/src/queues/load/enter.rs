//! Rows into the working set.

use std::sync::Arc;

use tokio_postgres::Row;

use crate::db::PgTime;
use crate::queues::working_set::{Client, Known, Members, Message, PendingChunk, WorkingSet};

pub(super) fn enter_messages(set: &mut WorkingSet, rows: &[Row]) {
    for row in rows {
        for (number, name) in [("sender", "sender_name"), ("receiver", "receiver_name")] {
            let name = || Arc::from(row.get::<_, &str>(name));
            set.client_names.entry(row.get(number)).or_insert_with(name);
        }
        set.enter(Message::of_row(row));
    }
}

pub(super) fn enter_client(set: &mut WorkingSet, row: &Row) {
    let (no, name): (i32, Arc<str>) = (row.get("no"), row.get::<_, &str>("id").into());
    set.client_names.insert(no, Arc::clone(&name));
    let client = Client { no, is_registered: row.get("registered"), is_changed: false };
    let known = set.clients.entry(name).or_insert(client);
    // What was read later counts, unless the batch has decided otherwise.
    if !known.is_changed {
        *known = client;
    }
}

pub(super) fn enter_known(set: &mut WorkingSet, row: &Row) {
    let known = Known {
        first: row.get("first"),
        content: row.get("content"),
        sent_at: row.get::<_, PgTime>("sent_at").0.as_micros(),
        copies: u32::try_from(row.get::<_, i64>("copies")).unwrap_or(u32::MAX),
        is_new: false,
    };
    set.known.insert((row.get("queue"), row.get("message_id")), known);
}

pub(super) fn enter_held(set: &mut WorkingSet, rows: &[Row]) {
    for row in rows {
        if let Some(queue) = set.queues.get_mut(&row.get("no")) {
            // What this batch changed is not written yet.
            queue.held = Some((row.get("messages"), row.get("bytes")));
        }
    }
}

pub(super) fn enter_pending(set: &mut WorkingSet, rows: &[Row]) {
    for row in rows {
        let template = Message { stored_in: None, ..Message::of_row(row) };
        let first = template.id;
        let sender = || Arc::from(row.get::<_, &str>("sender_name"));
        set.client_names.entry(template.sender).or_insert_with(sender);
        set.enter_pending(template, row.get("unmade_copies"));
        let Some(chunk) = row.get::<_, Option<i32>>("chunk") else { continue };
        set.enter_pending_chunk(first, chunk, pending_chunk(row));
    }
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
