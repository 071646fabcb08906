//! The partitions of `messages`: made ahead, so that no writer has to wait for one.
//!
//! Each beat looks whether there is a partition for now and for two lengths ahead ([`beat`]), which costs nothing while
//! there is. A writer makes sure of its own time by [`ensure`] before it begins, and by [`make`] where the database
//! refused a message all the same. The table `partitions` says what there is; whoever makes one holds a lock, so any
//! number of servers may want the same one.
//!
//! A partition is made as a table of its own and attached then: that stands in nobody's way, while `create table …
//! partition of` would wait for all writers and hold up those behind it. There is no default partition: what lands in one
//! keeps the partition it belongs to from being made. [`retention`] drops those that are too old.

pub(crate) mod retention;
mod span;

use std::time::Duration;

use hubbub_core::Timestamp;
use hubbub_core::store::StoreFigures;
use parking_lot::RwLock;
use tokio_postgres::types::Type;

use crate::db::{Fault, PgTime, Sql, Tx};
use crate::store::Context;
use span::Span;

/// Lengths ahead of now for which there is always a partition.
const AHEAD: i64 = 2;

/// Spans remembered; the others are looked up.
const KNOWN_MAX: usize = 64;

/// Whoever makes or drops partitions holds this lock to the end of the transaction; any number, the same everywhere.
const LOCK: Sql = Sql {
    what: "waiting for others who make partitions",
    text: "select pg_advisory_xact_lock(7161616175)",
    types: &[],
};

const NEIGHBOURS: Sql = Sql {
    what: "looking for a partition",
    text: "select (select ends from partitions where begins <= $1 order by begins desc limit 1), \
                  (select begins from partitions where begins <= $1 order by begins desc limit 1), \
                  (select begins from partitions where begins > $1 order by begins limit 1)",
    types: &[Type::TIMESTAMPTZ],
};

const ENTER: Sql = Sql {
    what: "entering a partition",
    text: "insert into partitions (begins, ends, name) values ($1, $2, $3)",
    types: &[Type::TIMESTAMPTZ, Type::TIMESTAMPTZ, Type::TEXT],
};

/// What this server knows of the partitions. They only go when they are old, so what is known stays true for writers.
#[derive(Debug, Default)]
pub(crate) struct Partitions {
    known: RwLock<Vec<Span>>,
}

impl Partitions {
    fn knows(&self, time: Timestamp) -> bool {
        self.known.read().iter().any(|span| span.holds(time))
    }

    fn learn(&self, span: Span) {
        let mut known = self.known.write();
        known.retain(|other| *other != span);
        if known.len() >= KNOWN_MAX {
            known.remove(0);
        }
        known.push(span);
    }

    fn forget(&self, time: Timestamp) {
        self.known.write().retain(|span| !span.holds(time));
    }
}

/// Makes sure that there is a partition for `time`. Costs nothing where that is known.
pub(crate) async fn ensure(context: &Context, time: Timestamp) -> Result<(), Fault> {
    if context.partitions.knows(time) { Ok(()) } else { make(context, time).await }
}

/// The same, believing only the database: for a writer that met no partition although one was known.
pub(crate) async fn make(context: &Context, time: Timestamp) -> Result<(), Fault> {
    let length = context.options.partition;
    context.partitions.forget(time);
    let made = context.db.within("making a partition", async {
        let mut conn = context.db.get().await?;
        let tx = conn.begin().await?;
        let made = make_in(&tx, time, length).await?;
        tx.commit().await?;
        Ok(made)
    });
    let (span, is_new) = made.await?;
    context.partitions.learn(span);
    if is_new {
        tracing::info!(partition = span.name(), "made a partition of messages");
    }
    Ok(())
}

async fn make_in(tx: &Tx<'_>, time: Timestamp, length: Duration) -> Result<(Span, bool), Fault> {
    tx.execute(&LOCK, &[]).await?;
    let row = tx.query_one(&NEIGHBOURS, &[&PgTime(time)]).await?;
    let found = |column| row.get::<_, Option<PgTime>>(column).map(|time| time.0);
    let (before_ends, before_begins, behind) = (found(0), found(1), found(2));
    if let (Some(begins), Some(ends)) = (before_begins, before_ends)
        && time < ends
    {
        return Ok((Span { begins, ends }, false));
    }
    let span = Span::around(time, length, before_ends, behind);
    let (name, begins, ends) = (span.name(), span.begins, span.ends);
    let text = format!(
        "create table {name} (like messages including defaults including storage including compression); \
         alter table {name} add primary key (room, seq); \
         alter table messages attach partition {name} for values from ('{begins}') to ('{ends}')"
    );
    tx.batch("making a partition", &text).await?;
    tx.execute(&ENTER, &[&PgTime(begins), &PgTime(ends), &name]).await?;
    Ok((span, true))
}

/// Makes partitions ahead of the store's clock. What stands in the way is an alarm, not a failure: the store works as
/// long as there is a partition for now.
pub(crate) async fn beat(context: &Context, figures: &mut StoreFigures) {
    let (now, length) = (context.clock.now(), span::micros(context.options.partition));
    let mut alarm = None;
    for lengths in 0..=AHEAD {
        let time = Timestamp::from_micros(now.as_micros().saturating_add(length.saturating_mul(lengths)));
        if let Err(error) = ensure(context, time).await {
            tracing::error!(%time, %error, "a partition of messages could not be made ahead");
            figures.partitions_missing += 1;
            alarm.get_or_insert_with(|| {
                format!("no partition for messages received from {time} on could be made: {error}")
            });
        }
    }
    context.status.alarm(alarm);
}
