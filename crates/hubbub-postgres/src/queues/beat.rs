//! What is done every half second: comparing what is remembered with the database, and clearing away.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hubbub_core::invariant::saturate;
use hubbub_core::queue::ID_KEPT_MS;
use hubbub_core::store::StoreFigures;

use super::memory::Said;
use super::settings::signed;
use super::sql::time;
use super::{Queues, repair, sql};
use crate::db::{DbError, PgTime, Sql, Tx};

/// Beats between two looks at figures.
const FIGURES_EVERY: u32 = 4;
/// Beats between two looks for what was written late.
const LATE_EVERY: u32 = 120;
/// What is due is written so much before other servers look for it, but for what comes late, in microseconds.
const SOON: i64 = 2_000_000;
/// No commit takes longer, and no clock is further behind, in microseconds.
const LATE: i64 = 150_000_000;
/// Rows cleared away at once.
const CLEAR: i64 = 10_000;

/// Later than anything can be due: the year 8000 or so.
const FAR: i64 = 190_000_000_000_000_000;

const CHANGED_CLIENTS: Sql = Sql {
    what: "reading which clients changed",
    text: "select id, registered, version from clients where version > $1",
};

const FIGURES: Sql = Sql {
    what: "counting queues",
    text: "select count(*) as queues, (select count(*) from clients where registered) as clients, \
             coalesce(sum(t.messages + c.messages), 0)::int8 as messages, \
             coalesce(sum(t.bytes + c.bytes), 0)::int8 as bytes \
           from (select no from queues where not deleted offset 0) q \
           cross join lateral (select * from queue_totals where queue = q.no offset 0) t \
           cross join lateral ( \
             select coalesce(sum(messages), 0) as messages, coalesce(sum(bytes), 0) as bytes \
             from queue_counts where queue = t.queue and no > t.counted) c",
};

/// One server at a time clears away.
const ALONE: Sql = Sql { what: "clearing away queues", text: "select pg_try_advisory_xact_lock(7161616178)" };

const CLEAR_MESSAGES: Sql = Sql {
    what: "clearing away messages of deleted queues",
    // Dead letters are known by the ids of the queue they came from, which may be there. The rows are locked in their order,
    // as by whoever takes messages.
    text: "with cleared as (delete from queue_messages where ctid = any(array( \
               select m.at from (select no from queues where deleted offset 0) q \
               cross join lateral (select ctid as at from queue_messages where queue = q.no limit $1) m limit $1)) \
             returning known_as), \
           gone as (select known_as, count(*) as copies from cleared where known_as is not null group by known_as), \
           locked as (select k.first, g.copies from gone g join queue_known k on k.first = g.known_as \
             order by k.first for update of k) \
           update queue_known k set waiting = k.waiting - l.copies, \
             forget_at = case when k.waiting <= l.copies then $2 end \
           from locked l where k.first = l.first",
};

const CLEAR_PENDING: Sql = Sql {
    what: "clearing away messages to everybody of deleted queues",
    text: "with cleared as (delete from queue_pending where first = any(array( \
               select p.first from (select no from queues where deleted offset 0) q \
               cross join lateral (select first from queue_pending where queue = q.no) p limit 100)) \
             returning first, known_as, unmade), \
           chunks as (delete from queue_pending_chunks where first in (select first from cleared)), \
           locked as (select k.first, c.unmade from cleared c join queue_known k on k.first = c.known_as \
             order by k.first for update of k) \
           update queue_known k set waiting = k.waiting - l.unmade, \
             forget_at = case when k.waiting <= l.unmade then $1 end \
           from locked l where k.first = l.first",
};

const CLEAR_QUEUES: Sql = Sql {
    what: "clearing away deleted queues",
    text: "delete from queues q where q.deleted \
             and not exists (select from queue_messages m where m.queue = q.no) \
             and not exists (select from queue_pending p where p.queue = q.no)",
};

const FORGET: Sql = Sql {
    what: "forgetting ids of senders",
    text: "delete from queue_known where ctid = any(array( \
             select ctid from queue_known where forget_at > $1 and forget_at <= $2 limit $3)) and forget_at <= $2",
};

impl Queues {
    /// Does what is due, and enters what is known into `figures`.
    pub(crate) async fn beat(&self, figures: &mut StoreFigures) -> Result<(), DbError> {
        let beat = self.beats.fetch_add(1, Ordering::Relaxed);
        if beat.is_multiple_of(LATE_EVERY) {
            let asked_at = self.asked_at.load(Ordering::Relaxed);
            self.asked_at.store(asked_at.saturating_sub(LATE), Ordering::Relaxed);
        }
        let db = &self.context.db;
        db.within("looking for times ahead of the clock", self.repair()).await?;
        self.compare(beat).await?;
        db.within("clearing away queues", self.clear_away()).await?;
        self.memory.figures(figures);
        Ok(())
    }

    async fn repair(&self) -> Result<(), DbError> {
        let mut conn = self.context.db.get().await?;
        let tx = conn.begin().await?;
        tx.batch("preparing", sql::PLANNING).await?;
        repair::of_all(&tx, &*self.context.clock).await?;
        tx.commit().await
    }

    async fn compare(&self, beat: u32) -> Result<(), DbError> {
        let is_asking = self.memory.begin_asking();
        let comparing = self.compare_asking(beat, is_asking);
        let compared = self.context.db.within("comparing queues", comparing).await;
        if is_asking {
            let said = compared.as_ref().ok().copied().flatten();
            self.memory.end_asking(said);
        }
        compared.map(drop)
    }

    async fn compare_asking(&self, beat: u32, is_asking: bool) -> Result<Option<Said>, DbError> {
        let mut conn = self.context.db.get().await?;
        let tx = conn.begin_reading().await?;
        tx.batch("preparing", sql::PLANNING).await?;
        let next = if is_asking { Some(self.next_due(&tx, beat == 0).await?) } else { None };
        let rows = tx.query(&CHANGED_CLIENTS, &[&self.memory.clients_version()]).await?;
        if !rows.is_empty() {
            let version = rows.iter().map(|row| row.get("version")).max();
            let changes = rows.iter().map(|row| (Arc::from(row.get::<_, &str>("id")), row.get("registered")));
            self.memory.note_clients(changes, version);
        }
        if beat.is_multiple_of(FIGURES_EVERY) {
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
        self.asked(next);
        Ok(next)
    }

    /// Notes up to when everything was seen to, which what is due still is not.
    pub(super) fn asked(&self, said: Option<Said>) {
        let Some(Said { due, upto, proven }) = said else { return };
        // What runs out later than the time that is proven is not seen to; and the clock may have moved on since the
        // question.
        let asked_at = proven.min(upto.saturating_sub(SOON));
        if due.is_none_or(|due| due > asked_at) {
            self.asked_at.store(asked_at, Ordering::Relaxed);
        }
    }

    /// When there is something to sweep next, and up to when that was looked for: what is due much later may be long done
    /// by then, and walking over the done is dear while something keeps them from being cleared away.
    pub(super) async fn next_due(&self, tx: &Tx<'_>, is_first: bool) -> Result<Said, DbError> {
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
        Ok(Said { due, upto, proven })
    }

    /// Nothing is due that was due before this, but for what was written late: behind it, the index is full of what was
    /// seen to.
    pub(super) fn due_from(&self) -> i64 {
        self.asked_at.load(Ordering::Relaxed).saturating_sub(SOON).max(0)
    }

    async fn clear_away(&self) -> Result<(), DbError> {
        let mut conn = self.context.db.get().await?;
        let tx = conn.begin().await?;
        if tx.query_one(&ALONE, &[]).await?.get::<_, bool>(0) {
            tx.batch("preparing", sql::PLANNING).await?;
            let (from, now) = (self.forgot_to.load(Ordering::Relaxed), self.proven());
            let forget_at = self.now().saturating_add(signed(ID_KEPT_MS * 1_000));
            tx.execute(&CLEAR_MESSAGES, &[&CLEAR, &time(forget_at)]).await?;
            tx.execute(&CLEAR_PENDING, &[&time(forget_at)]).await?;
            tx.execute(&CLEAR_QUEUES, &[]).await?;
            let forgot = tx.execute(&FORGET, &[&time(from), &time(now), &CLEAR]).await?;
            tx.commit().await?;
            // Whatever is written from now on is remembered for minutes.
            if i64::try_from(forgot).is_ok_and(|forgot| forgot < CLEAR) {
                self.forgot_to.store(now, Ordering::Relaxed);
            }
            return Ok(());
        }
        tx.commit().await
    }
}
