//! Names of a batch: its queues are locked, and its clients found.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use hubbub_core::QueueOp;
use hubbub_core::queue::Audience;
use tokio::try_join;
use tokio_postgres::Row;

use super::Loader;
use super::enter::enter_client;
use crate::db::{DbError, PgTime};
use crate::queues::settings::rules_of;
use crate::queues::sql::{self, time};
use crate::queues::working_set::{Counts, Queue, WorkingSet};

/// Names in a batch.
#[derive(Debug, Default)]
struct Names<'a> {
    queues: BTreeSet<&'a str>,
    clients: BTreeSet<&'a str>,
    /// Whether every queue may be touched.
    all: bool,
    sweeps: bool,
}

fn names<'a>(ops: &[QueueOp<'a>]) -> Names<'a> {
    let mut names = Names::default();
    for op in ops {
        names.queues.extend(op.queue());
        match *op {
            QueueOp::Send(send) => {
                names.clients.insert(send.sender);
                if let Audience::One(receiver) = send.audience {
                    names.clients.insert(receiver);
                }
            }
            QueueOp::Take(take) => {
                names.clients.extend(take.wanted.receiver);
                names.clients.extend(take.wanted.sender);
                names.all |= take.wanted.queue.is_none();
            }
            QueueOp::Register { client } => {
                names.clients.insert(client);
            }
            QueueOp::Unregister { client } => {
                names.clients.insert(client);
                names.all = true;
            }
            QueueOp::Redrive { .. } => names.all = true,
            QueueOp::Sweep => names.sweeps = true,
            _ => {}
        }
    }
    names
}

impl Loader<'_> {
    /// Locks queues and finds clients; says whether the batch sweeps.
    pub(super) async fn names(
        &self,
        set: &mut WorkingSet,
        ops: &[QueueOp<'_>],
        due_from: i64,
    ) -> Result<bool, DbError> {
        let names = names(ops);
        let (queues, clients): (Vec<&str>, Vec<&str>) =
            (names.queues.iter().copied().collect(), names.clients.iter().copied().collect());
        // Statements that are on their way together are done one after another.
        let planning = async || self.tx.batch("preparing", sql::PLANNING).await;
        let mut due: Vec<i32> = Vec::new();
        if names.sweeps {
            let (from, until) = (time(due_from), time(self.clock.now().as_micros()));
            let proven = time(self.clock.proven().as_micros());
            let params: [crate::db::Param<'_>; 3] = [&from, &until, &proven];
            let (_, rows) = try_join!(biased; planning(), self.tx.query(&sql::QUEUES_DUE, &params))?;
            due.extend(rows.iter().map(|row| row.get::<_, i32>(0)));
        }
        let (_, locked, seen_to, known) = try_join!(
            biased;
            planning(),
            self.queues(&queues, &due, names.all),
            self.seen(&queues, &due, names.all),
            self.clients(&clients)
        )?;
        set.client_asked = clients.iter().map(|name| Arc::from(*name)).collect();
        self.enter_names(set, (&locked, &seen(&seen_to)), &known, &queues, names.all);
        Ok(names.sweeps)
    }

    pub(super) async fn queues(
        &self,
        names: &[&str],
        numbers: &[i32],
        all: bool,
    ) -> Result<Vec<Row>, DbError> {
        let statement = match (all, self.locks) {
            (true, true) => return self.tx.query(&sql::LOCK_ALL, &[]).await,
            (true, false) => return self.tx.query(&sql::READ_ALL, &[]).await,
            (false, true) => &sql::LOCK_QUEUES,
            (false, false) => &sql::READ_QUEUES,
        };
        if names.is_empty() && numbers.is_empty() {
            return Ok(Vec::new());
        }
        self.tx.query(statement, &[&names, &numbers]).await
    }

    pub(super) async fn seen(&self, names: &[&str], numbers: &[i32], all: bool) -> Result<Vec<Row>, DbError> {
        match (all, names.is_empty() && numbers.is_empty()) {
            (true, _) => self.tx.query(&sql::SEEN_ALL, &[]).await,
            (false, true) => Ok(Vec::new()),
            (false, false) => self.tx.query(&sql::SEEN_NAMED, &[&names, &numbers]).await,
        }
    }

    async fn clients(&self, names: &[&str]) -> Result<Vec<Row>, DbError> {
        if names.is_empty() { Ok(Vec::new()) } else { self.tx.query(&sql::READ_CLIENTS, &[&names]).await }
    }

    fn enter_names(
        &self,
        set: &mut WorkingSet,
        (queues, seen): (&[Row], &HashMap<i32, i64>),
        clients: &[Row],
        asked: &[&str],
        all: bool,
    ) {
        set.has_all_queues = all;
        set.asked.extend(asked.iter().map(|name| Arc::from(*name)));
        queues.iter().for_each(|row| enter_queue(set, row, seen));
        clients.iter().for_each(|row| enter_client(set, row));
    }
}

/// Up to when queues were seen to, by their numbers.
pub(super) fn seen(rows: &[Row]) -> HashMap<i32, i64> {
    let seen_to = |row: &Row| row.get::<_, PgTime>("seen_to").0.as_micros();
    rows.iter().map(|row| (row.get("queue"), seen_to(row))).collect()
}

/// Takes in a queue that is locked.
pub(super) fn enter_queue(set: &mut WorkingSet, row: &Row, seen: &HashMap<i32, i64>) {
    let (no, name): (i32, Arc<str>) = (row.get("no"), row.get::<_, &str>("id").into());
    // A queue without totals was made after the lock was asked for.
    let (false, Some(seen_to)) = (set.queues.contains_key(&no), seen.get(&no).copied()) else { return };
    set.names.insert(Arc::clone(&name), no);
    set.asked.insert(Arc::clone(&name));
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
