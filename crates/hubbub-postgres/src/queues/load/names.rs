//! Names of a batch: its queues are locked, and its clients found.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use hubbub_core::QueueOp;
use hubbub_core::queue::{Audience, DEAD_LETTER_SUFFIX};
use tokio::try_join;
use tokio_postgres::Row;

use super::Loader;
use super::insert::{insert_client, insert_queue};
use crate::db::{Param, PgTime, Result, Sql};
use crate::queues::sql::{self, time};
use crate::queues::working_set::WorkingSet;

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
                names.clients.extend(take.wanted.receiver.into_iter().chain(take.wanted.sender));
                names.all |= take.wanted.queue.is_none();
            }
            QueueOp::Register { client } | QueueOp::Unregister { client } => {
                names.clients.insert(client);
                names.all |= matches!(op, QueueOp::Unregister { .. });
            }
            QueueOp::Redrive { .. } => names.all = true,
            QueueOp::Sweep => names.sweeps = true,
            _ => {}
        }
    }
    names
}

/// Rows of queues, and of up to when they were seen to.
pub(super) type QueueRows = (Vec<Row>, Vec<Row>);

impl Loader<'_> {
    /// Locks queues and finds clients. Returns whether the batch sweeps.
    pub(super) async fn names(
        &self,
        set: &mut WorkingSet,
        ops: &[QueueOp<'_>],
        due_from: i64,
    ) -> Result<bool> {
        let Names { queues, clients, all, sweeps } = names(ops);
        let queues: Vec<&str> = queues.into_iter().collect();
        let clients: Vec<&str> = clients.into_iter().collect();
        // Statements that are on their way together are done one after another.
        let planning = async || self.tx.batch("preparing", sql::PLANNING).await;
        let mut due: Vec<i32> = Vec::new();
        if sweeps {
            let (until, proven) = (self.clock.now().as_micros(), self.clock.proven().as_micros());
            let params: [Param<'_>; 3] = [&time(due_from), &time(until), &time(proven)];
            let (_, rows) = try_join!(biased; planning(), self.tx.query(&sql::QUEUES_DUE, &params))?;
            due.extend(rows.iter().map(|row| row.get::<_, i32>(0)));
        }
        if self.locks {
            // A statement that is not prepared is sent later than those that are, which would then read before the lock.
            let (queues, due) = (queues.as_slice(), due.as_slice());
            let (lock, _, params) = statements(all, true, (&queues, &due));
            self.tx.prepared(lock, &params).await?;
        }
        let known: [Param<'_>; 1] = [&clients];
        let (_, locked, known) = try_join!(
            biased;
            planning(),
            self.queues(&queues, &due, all),
            self.tx.query_for(&sql::READ_CLIENTS, &known)
        )?;
        set.queried_clients = clients.iter().map(|name| Arc::from(*name)).collect();
        set.has_all_queues = all;
        set.queried_names.extend(queues.iter().map(|name| Arc::from(*name)));
        insert_queues(set, &locked);
        known.iter().for_each(|row| insert_client(set, row));
        Ok(sweeps)
    }

    /// Queues by name and number, or all; locked if they are to be changed. Up to when they were seen to is read afterwards:
    /// it stands in another row than the lock.
    pub(super) async fn queues(&self, names: &[&str], numbers: &[i32], all: bool) -> Result<QueueRows> {
        if !all && names.is_empty() && numbers.is_empty() {
            return Ok(QueueRows::default());
        }
        let (queues, seen_to, params) = statements(all, self.locks, (&names, &numbers));
        try_join!(biased; self.tx.query(queues, &params), self.tx.query(seen_to, &params))
    }
}

/// What reads or locks queues, what reads up to when they were seen to, and the parameters of both.
fn statements<'a>(
    all: bool,
    locks: bool,
    (names, numbers): (&'a &[&str], &'a &[i32]),
) -> (&'static Sql, &'static Sql, Vec<Param<'a>>) {
    let named = || -> Vec<Param<'a>> { vec![names, numbers, &DEAD_LETTER_SUFFIX] };
    match (all, locks) {
        (true, true) => (&sql::LOCK_ALL, &sql::SEEN_ALL, Vec::new()),
        (true, false) => (&sql::READ_ALL, &sql::SEEN_ALL, Vec::new()),
        (false, true) => (&sql::LOCK_QUEUES, &sql::SEEN_NAMED, named()),
        (false, false) => (&sql::READ_QUEUES, &sql::SEEN_NAMED, named()),
    }
}

pub(super) fn insert_queues(set: &mut WorkingSet, (queues, seen_to): &QueueRows) {
    let seen_to = seen_to.iter().map(|row| (row.get("queue"), row.get::<_, PgTime>("seen_to")));
    let seen_to: HashMap<i32, PgTime> = seen_to.collect();
    for row in queues {
        // A queue without totals was made after the lock was asked for.
        if let Some(seen_to) = seen_to.get(&row.get("no")) {
            insert_queue(set, row, seen_to.0.as_micros());
        }
    }
}
