//! Creates the partitions of `messages` ahead of time, so that no writer has to wait for one.
//!
//! Each [`tick`] ensures a partition for now and for two lengths ahead, which costs nothing if they exist. A writer calls
//! [`ensure`] for its own time before it begins, and [`create_all`] if the database refuses a message all the same. The table
//! `partitions` lists them. Creating one takes a lock, so any number of servers may need the same one.
//!
//! A partition is created as a table of its own and then attached. That blocks nobody, while `create table … partition of`
//! would wait for all writers and block those behind it. There is no default partition: messages in it would prevent
//! their real partition from being created. [`retention`] drops expired partitions.

mod locks;
pub(crate) mod retention;
mod span;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use hubbub_core::Timestamp;
use hubbub_core::store::StoreFigures;
use parking_lot::RwLock;

use crate::db::{PgTime, Result, Tx, statements};
use crate::maintenance::Tick;
use crate::store::Context;
use span::Span;

/// Lengths ahead of now for which there is always a partition.
const AHEAD: i64 = 2;

/// Most spans cached; others are looked up.
const CACHED_MAX: usize = 64;

statements! {
    /// Everybody who creates or drops partitions holds this lock until the end of the transaction. The number is arbitrary.
    LOCK("locking the partitions") = "select pg_advisory_xact_lock(7161616175)";

    NEIGHBOURS("finding a partition") =
        "select (select ends from partitions where begins <= $1 order by begins desc limit 1), \
                (select begins from partitions where begins <= $1 order by begins desc limit 1), \
                (select begins from partitions where begins > $1 order by begins limit 1)";

    INSERT("recording a partition") = "insert into partitions (begins, ends, name) values ($1, $2, $3)";
}

/// Cache of the partitions. Only old ones are dropped, so it stays valid for writers.
#[derive(Debug, Default)]
pub(crate) struct Partitions {
    cached: RwLock<Vec<Span>>,
    /// Whether there are as many as when it was last looked whether the database has locks for all.
    has_compared: AtomicBool,
}

impl Partitions {
    fn covers(&self, time: Timestamp) -> bool {
        self.cached.read().iter().any(|span| span.holds(time))
    }

    fn insert(&self, span: Span) {
        let mut cached = self.cached.write();
        cached.retain(|other| *other != span);
        if cached.len() >= CACHED_MAX {
            cached.remove(0);
        }
        cached.push(span);
    }

    fn remove(&self, time: Timestamp) {
        self.cached.write().retain(|span| !span.holds(time));
    }
}

/// Ensures that there is a partition for `time`. Costs nothing if it is cached.
pub(crate) async fn ensure(context: &Context, time: Timestamp) -> Result<()> {
    if context.partitions.covers(time) { Ok(()) } else { create(context, time).await }
}

/// The same without the cache.
async fn create(context: &Context, time: Timestamp) -> Result<()> {
    let length = context.options.partition;
    context.partitions.remove(time);
    let created = context.db.run("creating a partition", async |tx| create_in(tx, time, length).await);
    let (span, is_new) = created.await?;
    context.partitions.insert(span);
    if is_new {
        tracing::info!(partition = span.name(), "created a partition of messages");
        context.partitions.has_compared.store(false, Relaxed);
    }
    Ok(())
}

/// The same for several times, of which many may be of one partition: for a writer that found none although one was
/// cached.
pub(crate) async fn create_all(context: &Context, times: &BTreeSet<Timestamp>) -> Result<()> {
    times.iter().for_each(|time| context.partitions.remove(*time));
    for time in times {
        ensure(context, *time).await?;
    }
    Ok(())
}

async fn create_in(tx: &Tx<'_>, time: Timestamp, length: Duration) -> Result<(Span, bool)> {
    tx.execute(&LOCK, &[]).await?;
    let row = tx.query_one(&NEIGHBOURS, &[&PgTime(time)]).await?;
    let found = |column| row.get::<_, Option<PgTime>>(column).map(|time| time.0);
    let (before_ends, before_begins, after) = (found(0), found(1), found(2));
    if let (Some(begins), Some(ends)) = (before_begins, before_ends)
        && time < ends
    {
        return Ok((Span { begins, ends }, false));
    }
    let span = Span::around(time, length, before_ends, after);
    let (name, begins, ends) = (span.name(), span.begins, span.ends);
    let text = format!(
        "create table {name} (like messages including defaults including storage including compression); \
         alter table {name} add primary key (room, seq); \
         alter table messages attach partition {name} for values from ('{begins}') to ('{ends}')"
    );
    tx.batch("creating a partition", &text).await?;
    tx.execute(&INSERT, &[&PgTime(begins), &PgTime(ends), &name]).await?;
    Ok((span, true))
}

/// Creates partitions ahead of the store's clock. One that cannot be made is only told of: the store works as long as there is
/// a partition for now. Fails if the database does not answer.
pub(crate) async fn tick(context: &Context, figures: &mut StoreFigures, tick: &mut Tick<'_>) -> Result<()> {
    let (now, length) = (context.clock.now(), span::micros(context.options.partition));
    for lengths in 0..=AHEAD {
        let time = Timestamp::from_micros(now.as_micros().saturating_add(length.saturating_mul(lengths)));
        if let Err(error) = ensure(context, time).await {
            tracing::error!(%time, %error, "creating a partition of messages ahead of time failed; retrying in 0.5 s");
            figures.partitions_missing += 1;
            let reason = format!("no partition for messages received from {time} on could be made: {error}");
            tick.note(&error, reason).await?;
        }
    }
    // At the start, and once there are more.
    if !context.partitions.has_compared.swap(true, Relaxed) {
        tick.done(locks::warn_if_scarce(context).await).await?;
    }
    Ok(())
}
