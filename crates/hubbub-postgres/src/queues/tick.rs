//! Maintenance of queues, every half second: compares what is remembered with the database, and clears away.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hubbub_core::invariant::saturate;
use hubbub_core::queue::ID_KEPT_MS;
use hubbub_core::store::StoreFigures;

use super::memory::NextDue;

use super::sql::time;
use super::working_set::signed;
use super::{Queues, repair, sql};
use crate::db::{PgTime, Result, Tx, statements};

/// Ticks between two queries for figures.
const FIGURES_EVERY: u32 = 4;
/// Ticks between two scans for what was written late.
const LATE_EVERY: u32 = 120;
/// What is due is written so much before other servers look for it, but for what comes late, in microseconds.
const SOON: i64 = 2_000_000;
/// No commit takes longer, and no clock is further behind, in microseconds.
const LATE: i64 = 150_000_000;
/// Rows cleared away at once.
const CLEAR: i64 = 10_000;

/// Later than anything can be due: the year 8000 or so.
const FAR: i64 = 190_000_000_000_000_000;

statements! {
    CHANGED_CLIENTS("reading which clients changed") =
        "select id, registered, version from clients where version > $1";

    FIGURES("counting queues") =
        "select count(*) as queues, (select count(*) from clients where registered) as clients, \
           coalesce(sum(t.messages + c.messages), 0)::int8 as messages, \
           coalesce(sum(t.bytes + c.bytes), 0)::int8 as bytes \
         from (select no from queues where not deleted offset 0) q \
         cross join lateral (select * from queue_totals where queue = q.no offset 0) t \
         cross join lateral ( \
           select coalesce(sum(messages), 0) as messages, coalesce(sum(bytes), 0) as bytes \
           from queue_counts where queue = t.queue and no > t.counted) c";

    /// One server at a time clears away.
    ALONE("clearing away queues") = "select pg_try_advisory_xact_lock(7161616178)";

    // Dead letters are known by the ids of the queue they came from, which may be there. The rows are locked in their order,
    // as by whoever takes messages.
    CLEAR_MESSAGES("clearing away messages of deleted queues") =
        "with cleared as (delete from queue_messages where ctid = any(array( \
             select m.at from (select no from queues where deleted offset 0) q \
             cross join lateral (select ctid as at from queue_messages where queue = q.no limit $1) m limit $1)) \
           returning known_as), \
         gone as (select known_as, count(*) as copies from cleared where known_as is not null group by known_as), \
         locked as (select k.first, g.copies from gone g join queue_known k on k.first = g.known_as \
           order by k.first for update of k) \
         update queue_known k set waiting = k.waiting - l.copies, \
           forget_at = case when k.waiting <= l.copies then $2 end \
         from locked l where k.first = l.first";

    CLEAR_PENDING("clearing away messages to everybody of deleted queues") =
        "with cleared as (delete from queue_pending where first = any(array( \
             select p.first from (select no from queues where deleted offset 0) q \
             cross join lateral (select first from queue_pending where queue = q.no) p limit 100)) \
           returning first, known_as, unmade), \
         chunks as (delete from queue_pending_chunks where first in (select first from cleared)), \
         locked as (select k.first, c.unmade from cleared c join queue_known k on k.first = c.known_as \
           order by k.first for update of k) \
         update queue_known k set waiting = k.waiting - l.unmade, \
           forget_at = case when k.waiting <= l.unmade then $1 end \
         from locked l where k.first = l.first";

    CLEAR_QUEUES("clearing away deleted queues") =
        "delete from queues q where q.deleted \
           and not exists (select from queue_messages m where m.queue = q.no) \
           and not exists (select from queue_pending p where p.queue = q.no)";

    FORGET("forgetting ids of senders") =
        "delete from queue_known where ctid = any(array( \
           select ctid from queue_known where forget_at > $1 and forget_at <= $2 limit $3)) and forget_at <= $2";
}

impl Queues {
    /// Runs due work, and adds the figures of queues.
    pub(crate) async fn tick(&self, figures: &mut StoreFigures) -> Result<()> {
        let tick = self.ticks.fetch_add(1, Ordering::Relaxed);
        if tick.is_multiple_of(LATE_EVERY) {
            let queried_to = self.queried_to.load(Ordering::Relaxed);
            self.queried_to.store(queried_to.saturating_sub(LATE), Ordering::Relaxed);
        }
        let clock = &*self.context.clock;
        self.run("looking for times ahead of the clock", async |tx| repair::of_all(tx, clock).await).await?;
        self.compare(tick).await?;
        let clearing = self.run("clearing away queues", async |tx| self.clear_away(tx).await);
        if let Some(forgot_to) = clearing.await? {
            self.forgot_to.store(forgot_to, Ordering::Relaxed);
        }
        self.memory.figures(figures);
        Ok(())
    }

    /// Compares what is remembered with the database.
    async fn compare(&self, tick: u32) -> Result<()> {
        let queries_due = self.memory.begin_due_query();
        let comparing = self.snapshot("comparing queues", async |tx| {
            let next = if queries_due { Some(self.next_due(tx, tick == 0).await?) } else { None };
            let rows = tx.query(&CHANGED_CLIENTS, &[&self.memory.clients_version()]).await?;
            let version = rows.iter().map(|row| row.get("version")).max();
            let changes = rows.iter().map(|row| (Arc::from(row.get::<_, &str>("id")), row.get("registered")));
            self.memory.record_clients(changes, version);
            if tick.is_multiple_of(FIGURES_EVERY) {
                let row = tx.query_one(&FIGURES, &[]).await?;
                let count = |column: &str| saturate::<_, u64>(row.get::<_, i64>(column));
                self.memory.set_figures(StoreFigures {
                    queues: count("queues"),
                    clients: count("clients"),
                    queue_messages: count("messages"),
                    queue_bytes: count("bytes"),
                    ..StoreFigures::default()
                });
            }
            Ok(next)
        });
        let compared = comparing.await;
        if queries_due {
            self.end_due_query(compared.as_ref().ok().copied().flatten());
        }
        compared.map(drop)
    }

    /// Records what the database said of what is due; `None` if it failed.
    pub(super) fn end_due_query(&self, found: Option<NextDue>) {
        if let Some(NextDue { due, upto, proven }) = found {
            // What runs out later than the time that is proven is not seen to; and the clock may have moved on since the
            // query.
            let queried_to = proven.min(upto.saturating_sub(SOON));
            if due.is_none_or(|due| due > queried_to) {
                self.queried_to.store(queried_to, Ordering::Relaxed);
            }
        }
        self.memory.end_due_query(found);
    }

    /// When there is something to sweep next, and up to when that was looked for: what is due much later may be long done
    /// by then, and walking over the done is dear while something keeps them from being cleared away.
    pub(super) async fn next_due(&self, tx: &Tx<'_>, is_first: bool) -> Result<NextDue> {
        let now = self.now();
        let proven = self.proven().min(now);
        let upto = if is_first { FAR } else { now.saturating_add(SOON) };
        let row = tx.query_one(&sql::NEXT_DUE, &[&time(self.due_from()), &time(upto)]).await?;
        let micros = |column: &str| row.get::<_, Option<PgTime>>(column).map(|time| time.0.as_micros());
        let over = row.get::<_, bool>("over").then_some(i64::MIN);
        // Proven time gets there so much later.
        let behind = now.saturating_sub(proven);
        let pending_due = micros("pending_due").filter(|at| *at <= upto);
        let pending_expires = micros("pending_expires").filter(|at| *at <= upto);
        let expires =
            micros("expires").into_iter().chain(pending_expires).map(|at| at.saturating_add(behind));
        let due = micros("due").into_iter().chain(pending_due).chain(expires).chain(over).min();
        Ok(NextDue { due, upto, proven })
    }

    /// Lower bound for due scans; only late commits fall below it. Before it, the index is full of what was seen to.
    pub(super) fn due_from(&self) -> i64 {
        self.queried_to.load(Ordering::Relaxed).saturating_sub(SOON).max(0)
    }

    /// Clears away what is deleted and over. Returns up to when no id of a sender is left to be forgotten.
    async fn clear_away(&self, tx: &Tx<'_>) -> Result<Option<i64>> {
        if !tx.query_one(&ALONE, &[]).await?.get::<_, bool>(0) {
            return Ok(None);
        }
        let (from, now) = (self.forgot_to.load(Ordering::Relaxed), self.proven());
        let forget_at = time(self.now().saturating_add(signed(ID_KEPT_MS * 1_000)));
        tx.execute(&CLEAR_MESSAGES, &[&CLEAR, &forget_at]).await?;
        tx.execute(&CLEAR_PENDING, &[&forget_at]).await?;
        tx.execute(&CLEAR_QUEUES, &[]).await?;
        let forgot = tx.execute(&FORGET, &[&time(from), &time(now), &CLEAR]).await?;
        // Whatever is written from now on is remembered for minutes.
        Ok((saturate::<_, i64>(forgot) < CLEAR).then_some(now))
    }
}
