//! The database's clock, used by all servers that share a database.
//!
//! Servers with different clocks would disagree about what has expired, and one that is ahead would delete for all. So
//! each queries the database's time every half second, and advances it by its own monotonic clock in between.
//! [`SteadyClock`] treats it as any wall clock: a step is not followed at once.
//!
//! At the start, the earliest of three times is proven: the database's, the server's, and that of the newest message of any
//! room. If the database is far ahead of another one, nothing is deleted until its clock has kept its time.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use hubbub_core::Timestamp;
use hubbub_core::clock::{Clock, SteadyClock};
use hubbub_core::invariant::saturate;

use super::{Db, PgTime, Result, statements};

/// Slower answers are ignored: their time may be wrong by half the round trip.
const ROUND_TRIP_MAX: Duration = Duration::from_millis(500);

/// Queries at the start, of which the fastest counts: the first one on a connection is slow.
const FIRST_TRIES: u32 = 3;

statements! {
    NOW("reading the time") = "select clock_timestamp()";

    NEWEST("reading the time of the newest message") =
        "select max(last_received_at) from rooms where last_received_at is not null";
}

/// Whether the database answers.
pub(crate) async fn ask(db: &Db) -> Result<()> {
    db.read_one(&NOW, &[]).await.map(drop)
}

pub(crate) struct DatabaseClock {
    machine: Arc<dyn Clock>,
    /// The database's time minus the machine's monotonic one, in microseconds.
    offset: AtomicI64,
}

fn micros(duration: Duration) -> i64 {
    saturate(duration.as_micros())
}

impl Clock for DatabaseClock {
    fn now(&self) -> Timestamp {
        let now = micros(self.machine.monotonic()).saturating_add(self.offset.load(Ordering::Relaxed));
        // Whole milliseconds, as on other stores.
        Timestamp::from_micros(now.div_euclid(1_000).saturating_mul(1_000))
    }

    fn monotonic(&self) -> Duration {
        self.machine.monotonic()
    }
}

impl DatabaseClock {
    /// Queries the database's time. The steady clock follows a step once it was held for `trust_after`.
    pub(crate) async fn open(
        db: &Db,
        machine: Arc<dyn Clock>,
        trust_after: Duration,
    ) -> Result<(Arc<Self>, Arc<SteadyClock>)> {
        let server = machine.now();
        let clock = Arc::new(Self { machine, offset: AtomicI64::new(0) });
        let mut best = clock.query_offset(db).await?;
        for _ in 1..FIRST_TRIES {
            let next = clock.query_offset(db).await?;
            best = if next.1 < best.1 { next } else { best };
        }
        clock.offset.store(best.0, Ordering::Relaxed);
        let newest = db.read_one(&NEWEST, &[]).await?.get::<_, Option<PgTime>>(0).map(|time| time.0);
        let steady = SteadyClock::new(clock.clone(), trust_after);
        let proven = [Some(server), newest, Some(clock.now())].into_iter().flatten().min();
        steady.begin_at(proven);
        Ok((clock, Arc::new(steady)))
    }

    /// Queries the time. An answer within the precision of the round trip changes nothing: otherwise time would go back
    /// and forth with the duration of answers.
    pub(crate) async fn measure(&self, db: &Db) -> Result<()> {
        let (offset, round_trip) = self.query_offset(db).await?;
        let apart = offset.abs_diff(self.offset.load(Ordering::Relaxed));
        if round_trip <= ROUND_TRIP_MAX && apart > micros(round_trip / 2).unsigned_abs() {
            self.offset.store(offset, Ordering::Relaxed);
        }
        Ok(())
    }

    async fn query_offset(&self, db: &Db) -> Result<(i64, Duration)> {
        let mut conn = db.get().await?;
        let before = self.machine.monotonic();
        let rows = db.within(NOW.what, conn.read(&NOW, &[])).await?;
        let round_trip = self.machine.monotonic().saturating_sub(before);
        let time: PgTime = NOW.only(rows)?.get(0);
        let offset = time.0.as_micros().saturating_sub(micros(before + round_trip / 2));
        Ok((offset, round_trip))
    }
}
