//! Messages to everybody whose copies are not all made: read before anything is chosen for a receiver.

use std::collections::{BTreeMap, BTreeSet};

use hubbub_core::QueueOp;
use tokio::try_join;
use tokio_postgres::Row;

use super::enter::{enter_client, enter_messages, enter_pending};
use super::{Loader, MORE};
use crate::db::{DbError, Param};
use crate::queues::sql::{self, time};
use crate::queues::working_set::{ANYBODY, Frontier, Members, WorkingSet, chunk_of};

/// Whose copies a batch is known to touch.
#[derive(Debug, Default)]
pub(super) struct Touched {
    queues: Vec<i32>,
    clients: Vec<i32>,
    /// Single messages, by their queues.
    removed: (Vec<i32>, Vec<i64>),
}

/// What was read of them.
pub(super) struct ReadPending {
    due: Vec<Row>,
    of_clients: Vec<Row>,
    removed: Vec<Row>,
}

impl Touched {
    pub(super) fn of(set: &WorkingSet, ops: &[QueueOp<'_>]) -> Self {
        let mut touched = Self { queues: set.queues.keys().copied().collect(), ..Self::default() };
        let mut clients = BTreeSet::new();
        for op in ops {
            match *op {
                QueueOp::Take(take) => {
                    let receiver = take.wanted.receiver.and_then(|receiver| set.client(receiver));
                    clients.extend(receiver.filter(|receiver| *receiver > ANYBODY));
                }
                QueueOp::Remove { queue, id } => {
                    if let (Some(queue), Ok(id)) = (set.names.get(queue), i64::try_from(id)) {
                        touched.removed.0.push(*queue);
                        touched.removed.1.push(id);
                    }
                }
                _ => {}
            }
        }
        touched.clients = clients.into_iter().collect();
        touched
    }
}

impl Loader<'_> {
    /// Delays end by `now`, lives by the time that is `proven`.
    pub(super) async fn read_pending(
        &self,
        touched: &Touched,
        (now, proven): (i64, i64),
    ) -> Result<ReadPending, DbError> {
        let Touched { queues, clients, removed } = touched;
        let due = async {
            if !self.locks || queues.is_empty() {
                return Ok(Vec::new());
            }
            self.tx.query(&sql::PENDING_DUE, &[queues, &time(now), &time(proven)]).await
        };
        let of_clients = async {
            if queues.is_empty() || clients.is_empty() {
                return Ok(Vec::new());
            }
            self.tx.query(&sql::PENDING_FOR, &[queues, clients]).await
        };
        let removed = async {
            if removed.0.is_empty() {
                return Ok(Vec::new());
            }
            self.tx.query(&sql::PENDING_OF_IDS, &[&removed.0, &removed.1]).await
        };
        let (due, of_clients, removed) = try_join!(biased; due, of_clients, removed)?;
        Ok(ReadPending { due, of_clients, removed })
    }

    /// All copies for a client.
    pub(super) async fn copies_for(&self, set: &mut WorkingSet, client: i32) -> Result<(), DbError> {
        let touched = Touched {
            queues: set.queues.keys().copied().collect(),
            clients: vec![client],
            ..Touched::default()
        };
        let read = self.read_pending(&touched, (set.now, set.proven)).await?;
        make_touched(set, &touched, &read);
        Ok(())
    }

    /// Who is registered, and how much is left to do of messages to everybody.
    pub(super) async fn registered(&self, set: &mut WorkingSet) -> Result<(), DbError> {
        self.hold_clients().await?;
        let names: Vec<&str> = set.client_asked.iter().map(|name| &**name).collect();
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
            enter_client(set, row);
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
    pub(super) async fn oldest(&self, set: &mut WorkingSet, queue: i32) -> Result<(), DbError> {
        let behind = set.oldest.get(&queue).map_or(0, |frontier| frontier.to);
        let made_to = set.pending_oldest.get(&queue).copied().unwrap_or(0);
        set.make_new_of(queue);
        let rows = self.tx.query(&sql::PENDING_OLDEST, &[&queue, &made_to]).await?;
        enter_pending(set, &rows);
        let mut upto = i64::MAX;
        if let Some(row) = rows.first() {
            let (first, chunk) = (row.get("id"), row.get("chunk"));
            set.make_chunk(first, chunk);
            upto = set.pending_chunks.get(&(first, chunk)).map_or(i64::MAX, |part| part.high());
            set.pending_oldest.insert(queue, upto);
        }
        let rows = self.tx.query(&sql::OLDEST, &[&queue, &behind, &MORE, &upto]).await?;
        let is_full = i64::try_from(rows.len()).is_ok_and(|count| count >= MORE);
        let last = rows.iter().map(|row| row.get::<_, i64>("id")).max().unwrap_or(behind);
        let is_complete = !is_full && upto == i64::MAX;
        let to = if is_full || is_complete { last } else { upto };
        enter_messages(set, &rows);
        set.oldest.insert(queue, Frontier { to, is_complete });
        Ok(())
    }
}

pub(super) fn make_read(set: &mut WorkingSet, touched: &Touched, read: &ReadPending) {
    enter_pending(set, &read.due);
    make_touched(set, touched, read);
}

fn make_touched(set: &mut WorkingSet, touched: &Touched, read: &ReadPending) {
    enter_pending(set, &read.of_clients);
    enter_pending(set, &read.removed);
    for client in &touched.clients {
        set.make_copies_for(&touched.queues, *client);
    }
    for id in &touched.removed.1 {
        set.make_copy_of_id(*id);
    }
}
