//! Reads messages to everybody whose copies are not all made, before anything is chosen for a receiver.

use std::collections::{BTreeMap, BTreeSet};

use hubbub_core::invariant::saturate;
use tokio::try_join;
use tokio_postgres::Row;

use super::insert::{insert_client, insert_messages, insert_pending};
use super::{Loader, MORE};
use crate::db::{Param, Result};
use crate::queues::sql;
use crate::queues::working_set::{ANYBODY, Frontier, Members, WorkingSet, chunk_of};

/// Copies that a batch is known to touch.
#[derive(Debug, Default)]
pub(super) struct CopyFilter {
    pub(super) queues: Vec<i32>,
    pub(super) clients: BTreeSet<i32>,
    /// Single messages, by their queues.
    pub(super) removed: (Vec<i32>, Vec<i64>),
}

impl CopyFilter {
    /// Makes these copies, of the messages in `rows`.
    pub(super) fn create(&self, set: &mut WorkingSet, rows: &[Row]) -> Result<()> {
        insert_pending(set, rows)?;
        for client in &self.clients {
            set.make_copies_for(&self.queues, *client);
        }
        for id in &self.removed.1 {
            set.make_copy_of_id(*id);
        }
        Ok(())
    }
}

impl Loader<'_> {
    /// The messages that these copies are made of.
    pub(super) async fn read_copies(&self, copies: &CopyFilter) -> Result<Vec<Row>> {
        let CopyFilter { queues, clients, removed } = copies;
        let clients = if queues.is_empty() { Vec::new() } else { clients.iter().copied().collect() };
        let of_clients: [Param<'_>; 2] = [&clients, queues];
        let of_ids: [Param<'_>; 2] = [&removed.0, &removed.1];
        let (mut rows, of_ids) = try_join!(
            biased;
            self.tx.query_for(&sql::PENDING_FOR, &of_clients),
            self.tx.query_for(&sql::PENDING_OF_IDS, &of_ids)
        )?;
        rows.extend(of_ids);
        Ok(rows)
    }

    /// All copies for a client.
    pub(super) async fn copies_for(&self, set: &mut WorkingSet, client: i32) -> Result<()> {
        let copies = CopyFilter {
            queues: set.queues.keys().copied().collect(),
            clients: BTreeSet::from([client]),
            ..CopyFilter::default()
        };
        copies.create(set, &self.read_copies(&copies).await?)?;
        Ok(())
    }

    /// Who is registered, and how much is left to do of messages to everybody.
    pub(super) async fn registered(&self, set: &mut WorkingSet) -> Result<()> {
        self.hold_clients().await?;
        let names: Vec<&str> = set.queried_clients.iter().map(|name| &**name).collect();
        let params: [Param<'_>; 1] = [&names];
        let (chunks, count, named) = try_join!(
            biased;
            self.tx.query(&sql::REGISTERED, &[]),
            self.tx.query_one(&sql::PENDING_COUNT, &[]),
            self.tx.query(&sql::READ_CLIENTS, &params)
        )?;
        let chunks = chunks.iter().map(|row| (row.get("chunk"), Members::of_bytes(row.get("members"))));
        let mut registered: BTreeMap<i32, Members> = chunks.collect();
        for row in &named {
            insert_client(set, row);
            // Registered by another server since, and by this batch under a number it does not have.
            let (name, no): (&str, i32) = (row.get("id"), row.get("no"));
            if set.client(name).is_some_and(|known| known < ANYBODY) {
                let (chunk, bit) = chunk_of(no);
                registered.entry(chunk).or_default().set(bit, false);
            }
        }
        set.pending_before = (count.get("messages"), count.get("copies"));
        set.registered = Some(registered);
        Ok(())
    }

    /// More of the oldest of a queue, with their copies that are not made.
    pub(super) async fn oldest(&self, set: &mut WorkingSet, queue: i32) -> Result<()> {
        let behind = set.oldest.get(&queue).map_or(0, |frontier| frontier.to);
        let made_to = set.pending_oldest.get(&queue).copied().unwrap_or(0);
        set.make_new_of(queue);
        let rows = self.tx.query(&sql::PENDING_OLDEST, &[&queue, &made_to]).await?;
        insert_pending(set, &rows)?;
        let mut upto = i64::MAX;
        if let Some(row) = rows.first() {
            let (first, chunk) = (row.get("id"), row.get("chunk"));
            set.make_chunk(first, chunk);
            upto = set.pending_chunks.get(&(first, chunk)).map_or(i64::MAX, |part| part.high());
            set.pending_oldest.insert(queue, upto);
        }
        let rows = self.tx.query(&sql::OLDEST, &[&queue, &behind, &MORE, &upto]).await?;
        let is_full = saturate::<_, i64>(rows.len()) >= MORE;
        let last = rows.iter().map(|row| row.get::<_, i64>("id")).max().unwrap_or(behind);
        let is_complete = !is_full && upto == i64::MAX;
        let to = if is_full || is_complete { last } else { upto };
        insert_messages(set, &rows)?;
        set.oldest.insert(queue, Frontier { to, is_complete });
        Ok(())
    }
}
