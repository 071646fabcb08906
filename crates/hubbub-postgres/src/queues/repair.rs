//! What a clock that was set back asks for: of whatever runs out, no more may be left than it was meant to be.
//!
//! A server that does not follow the database's clock yet ([`Clock::doubt`]) may be the one that is wrong, as after a sleep
//! of its machine: it repairs nothing, or it would end the leases that the others have given.

use hubbub_core::Clock;
use hubbub_core::clock::ClockAnomaly;

use super::sql::time;
use super::states::queue_statements;
use super::working_set::WorkingSet;
use crate::db::{PgTime, Result, Tx};

/// Clocks of several servers differ by less than this, in microseconds; a clock that is further behind was set.
const BEHIND_MAX: i64 = 5_000_000;

queue_statements! {
    FIND("looking for times ahead of the clock") =
        "select no from queues where not deleted \
         and (select seen_to from queue_totals where queue = no) > $1 order by no for no key update";

    TIMED("counting leases and delays from now on") =
        "update queue_messages set begun_at = $2, \
         due_at = greatest($2 + (due_at - begun_at), $2 + interval '1 microsecond') \
         where queue = any($1) and state in ({delayed}, {leased}) and begun_at > $3";

    EXPIRING("counting times to live from now on") =
        "update queue_messages set expires_at = $2 + (expires_at - sent_at) \
         where queue = any($1) and expires_at is not null and state <> {expired} and sent_at > $3";

    PENDING("counting times of messages to everybody from now on") =
        "update queue_pending set \
           due_at = case when begun_at > $3 \
             then greatest($2 + (due_at - begun_at), $2 + interval '1 microsecond') else due_at end, \
           begun_at = least(begun_at, $2), \
           expires_at = case when sent_at > $3 then $2 + (expires_at - sent_at) else expires_at end \
         where queue = any($1) and state <> {expired} and (begun_at > $3 or sent_at > $3)";

    SEEN("looking again from now on") = "update queue_totals set seen_to = $2 where queue = any($1)";
}

fn latest(now: i64) -> PgTime {
    time(now.saturating_add(BEHIND_MAX))
}

fn is_doubtful(clock: &dyn Clock) -> bool {
    matches!(clock.anomaly(), Some(ClockAnomaly::Stepped { .. }))
}

async fn repair(tx: &Tx<'_>, queues: &[i32], now: i64) -> Result<()> {
    let (at, latest) = (time(now), latest(now));
    tx.execute(&TIMED, &[&queues, &at, &latest]).await?;
    tx.execute(&EXPIRING, &[&queues, &at, &latest]).await?;
    tx.execute(&PENDING, &[&queues, &at, &latest]).await?;
    tx.execute(&SEEN, &[&queues, &at]).await.map(drop)
}

/// Of the queues of a batch, before any message of theirs is read.
pub(super) async fn of_working_set(tx: &Tx<'_>, set: &mut WorkingSet, clock: &dyn Clock) -> Result<()> {
    let now = set.now;
    let is_ahead = |seen_to: i64| seen_to > now.saturating_add(BEHIND_MAX);
    let ahead = set.queues.iter().filter(|(_, queue)| is_ahead(queue.seen_to));
    let ahead: Vec<i32> = ahead.map(|(no, _)| *no).collect();
    if ahead.is_empty() || is_doubtful(clock) {
        return Ok(());
    }
    repair(tx, &ahead, now).await?;
    for queue in set.queues.values_mut().filter(|queue| is_ahead(queue.seen_to)) {
        queue.seen_to = now;
    }
    Ok(())
}

pub(super) async fn of_all(tx: &Tx<'_>, clock: &dyn Clock) -> Result<()> {
    let now = clock.now().as_micros();
    let ahead = tx.query(&FIND, &[&latest(now)]).await?;
    if ahead.is_empty() || is_doubtful(clock) {
        return Ok(());
    }
    let ahead: Vec<i32> = ahead.iter().map(|row| row.get(0)).collect();
    repair(tx, &ahead, now).await
}
