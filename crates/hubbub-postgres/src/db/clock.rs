//! The database's clock, which all servers that share a database go by.
//!
//! Servers whose own clocks differ would disagree about what has run out, and one that is ahead would delete for all.
//! So each asks the database for the time every half second, and counts on from the answer by its own monotonic clock.
//! [`SteadyClock`] makes of that what it makes of any wall clock: a database whose clock jumps is not followed at once.
//!
//! At the start the earliest of three times is taken for proven: the database's, the server's, and that of the newest
//! message of any room. A database that is far ahead of one of the others deletes nothing until its clock has kept its
//! time.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use hubbub_core::Timestamp;
use hubbub_core::clock::{Clock, SteadyClock};

use super::{Db, Fault, PgTime, Sql};

/// An answer that took longer says too little: what it says may be wrong by half of that.
const ROUND_TRIP_MAX: Duration = Duration::from_millis(500);

/// Questions at the start until one is answered quickly: the first on a connection takes longer.
const FIRST_TRIES: u32 = 3;

const NOW: Sql = Sql { what: "asking for the time", text: "select clock_timestamp()", types: &[] };

const NEWEST: Sql = Sql {
    what: "asking for the newest time",
    text: "select max(last_received_at) from rooms where last_received_at is not null",
    types: &[],
};

/// What the database's clock says.
pub(crate) struct DatabaseClock {
    machine: Arc<dyn Clock>,
    /// The database's time minus the machine's monotonic one, in microseconds.
    offset: AtomicI64,
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
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
    /// Asks the database, and makes a clock of it that follows a step once it was held for `trust_after`.
    pub(crate) async fn open(
        db: &Db,
        machine: Arc<dyn Clock>,
        trust_after: Duration,
    ) -> Result<(Arc<Self>, Arc<SteadyClock>), Fault> {
        let server = machine.now();
        let clock = Arc::new(Self { machine, offset: AtomicI64::new(0) });
        let mut best = clock.ask(db).await?;
        for _ in 1..FIRST_TRIES {
            let next = clock.ask(db).await?;
            best = if next.1 < best.1 { next } else { best };
        }
        clock.offset.store(best.0, Ordering::Relaxed);
        let newest = db.read_one(&NEWEST, &[]).await?.get::<_, Option<PgTime>>(0).map(|time| time.0);
        let steady = SteadyClock::new(clock.clone(), trust_after);
        let proven = [Some(server), newest, Some(clock.now())].into_iter().flatten().min();
        steady.begin_at(proven);
        Ok((clock, Arc::new(steady)))
    }

    /// Asks the database what time it is. An answer that agrees with what is known, as far as it can be told, changes
    /// nothing: otherwise time would go back and forth with how long answers take.
    pub(crate) async fn measure(&self, db: &Db) -> Result<(), Fault> {
        let (offset, round_trip) = self.ask(db).await?;
        let apart = offset.abs_diff(self.offset.load(Ordering::Relaxed));
        if round_trip <= ROUND_TRIP_MAX && apart > micros(round_trip / 2).unsigned_abs() {
            self.offset.store(offset, Ordering::Relaxed);
        }
        Ok(())
    }

    async fn ask(&self, db: &Db) -> Result<(i64, Duration), Fault> {
        let mut conn = db.get().await?;
        let before = self.machine.monotonic();
        let rows = db.within(NOW.what, conn.read(&NOW, &[])).await?;
        let round_trip = self.machine.monotonic().saturating_sub(before);
        let unexpected = || Fault::Nonsense { what: NOW.what, found: "no row".into() };
        let time: PgTime = rows.first().ok_or_else(unexpected)?.get(0);
        let offset = time.0.as_micros().saturating_sub(micros(before + round_trip / 2));
        Ok((offset, round_trip))
    }
}
