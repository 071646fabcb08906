//! One replica: what is known of it, and reading from it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use hubbub_core::replica::ReplicaFigures;
use parking_lot::Mutex;
use tokio_postgres::types::PgLsn;

use super::position::{Position, Trail};
use crate::db::connect::{self, OpenError};
use crate::db::source::Source;
use crate::db::{Conn, Db, Fault, Sql};
use crate::history::History;
use crate::options::{PoolOptions, PostgresOptions};

/// Longest wait for a connection, and for an answer about how far the replica has come.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often a replica is asked whether it has come far enough, and time in between.
const ASKED_MAX: u32 = 10;
const ASK_AFTER: Duration = Duration::from_millis(5);

/// Shortest and longest time between two looks at a replica that is away.
const RETRY_MIN: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(10);

/// The epoch tells which history was replayed last. The position is taken before the next statement sees anything.
const STANDING: Sql = Sql {
    what: "asking how far a replica has come",
    text: "select pg_is_in_recovery(), pg_last_wal_replay_lsn(), (select epoch from history)",
    types: &[],
};

/// The timeline stands in different places, none of which is current at all times; the last one is not shown to everybody.
const IDENTITY: Sql = Sql {
    what: "asking which database a replica copies",
    text: "select s.system_identifier::text, greatest(c.timeline_id, r.min_recovery_end_timeline, \
               (select received_tli from pg_stat_wal_receiver)), \
               extract(epoch from now() - pg_last_xact_replay_timestamp())::float8 \
           from pg_control_system() s, pg_control_checkpoint() c, pg_control_recovery() r",
    types: &[],
};

/// A replica.
pub(super) struct Replica {
    place: String,
    db: Db,
    pool: PoolOptions,
    lag_max: Duration,
    history: Arc<History>,
    state: Mutex<State>,
    reads: AtomicU64,
    fallbacks: AtomicU64,
}

/// What the last look showed.
struct State {
    /// Why it is passed over; `None` = it is read from.
    fault: Option<String>,
    lag: Option<Duration>,
    look_at: Instant,
    wait: Duration,
}

/// What a look at a replica found.
pub(super) struct Seen {
    replayed: Position,
    at: Instant,
    /// Time since the last commit that was replayed, by the replica's clock; says nothing while nothing is committed.
    since_commit: Duration,
}

impl Replica {
    pub(super) fn open(
        url: &str,
        options: &PostgresOptions,
        history: Arc<History>,
    ) -> Result<Self, OpenError> {
        let config = connect::config(url, false)?;
        let place = connect::hosts(&config);
        let pool = PoolOptions { min: 0, acquire_timeout: PATIENCE, ..options.pool };
        let connections = connect::pool(config, &PostgresOptions { pool, ..options.clone() }, None)?;
        let state = State {
            fault: Some("it was not looked at yet".into()),
            lag: None,
            look_at: Instant::now(),
            wait: RETRY_MIN,
        };
        Ok(Self {
            place,
            db: Db::new(connections, options.pooler, PATIENCE, None),
            pool,
            lag_max: options.replica_lag,
            history,
            state: Mutex::new(state),
            reads: AtomicU64::new(0),
            fallbacks: AtomicU64::new(0),
        })
    }

    pub(super) fn is_fit(&self) -> bool {
        self.state.lock().fault.is_none()
    }

    pub(super) fn figures(&self) -> ReplicaFigures {
        let state = self.state.lock();
        ReplicaFigures {
            place: self.place.clone(),
            fault: state.fault.clone(),
            lag_us: state.lag.map(|lag| u64::try_from(lag.as_micros()).unwrap_or(u64::MAX)),
            reads: self.reads.load(Relaxed),
            fallbacks: self.fallbacks.load(Relaxed),
        }
    }

    pub(super) fn close(&self) {
        self.db.close();
    }

    /// Counts a read by whether it was answered here.
    pub(super) fn count<T>(&self, found: Option<T>) -> Option<T> {
        if found.is_some() { &self.reads } else { &self.fallbacks }.fetch_add(1, Relaxed);
        found
    }

    /// What `work` reads, if the replica is fit and has replayed everything up to `position`.
    pub(super) async fn read<T, F>(&self, position: Position, work: impl Fn(Source) -> F) -> Option<T>
    where
        F: Future<Output = Result<T, Fault>> + Send,
    {
        // It may have gone away while the position was asked for.
        if !self.is_fit() {
            return None;
        }
        match self.attempt(position, work).await {
            Ok(found) => found,
            // Replaying may have cancelled the statement, which says nothing about the next one.
            Err(fault) if !(fault.spoils_connection() || matches!(fault, Fault::Connection(_))) => {
                tracing::debug!(replica = self.place, %fault, "a replica did not answer a read");
                None
            }
            Err(fault) => {
                self.away(&fault);
                None
            }
        }
    }

    async fn attempt<T, F>(&self, position: Position, work: impl Fn(Source) -> F) -> Result<Option<T>, Fault>
    where
        F: Future<Output = Result<T, Fault>> + Send,
    {
        let conn = Arc::new(self.db.get().await?);
        if !self.reaches(&conn, position).await? {
            return Ok(None);
        }
        work(Source::Replica(conn)).await.map(Some)
    }

    /// Whether everything up to `position` is replayed. Waits a moment for it.
    async fn reaches(&self, conn: &Conn, position: Position) -> Result<bool, Fault> {
        for _ in 1..ASKED_MAX {
            if self.standing(conn).await? >= position {
                return Ok(true);
            }
            tokio::time::sleep(ASK_AFTER).await;
        }
        Ok(self.standing(conn).await? >= position)
    }

    /// How far it has replayed this history.
    async fn standing(&self, conn: &Conn) -> Result<Position, Fault> {
        let row = self.db.within(STANDING.what, conn.unchecked().query_one(&STANDING, &[])).await?;
        if !row.get::<_, bool>(0) {
            return Err(Fault::Connection("it is no replica, but takes writes itself".into()));
        }
        if row.get::<_, Option<&str>>(2) != Some(&*self.history.epoch) {
            return Err(Fault::Connection("it holds another history than the primary".into()));
        }
        Ok(row.get::<_, Option<PgLsn>>(1).unwrap_or(PgLsn::from(0)))
    }

    /// Looks at it; `None` when it is not time yet, or it is away.
    pub(super) async fn look(&self) -> Option<Seen> {
        if Instant::now() < self.state.lock().look_at {
            return None;
        }
        let looked = self.db.within("looking at a replica", async {
            self.db.keep(&self.pool).await?;
            let conn = self.db.get().await?;
            let (replayed, at) = (self.standing(&conn).await?, Instant::now());
            let row = conn.unchecked().query_one(&IDENTITY, &[]).await?;
            if !self.history.is_replicated_by(row.get(0), row.get(1)) {
                return Err(Fault::Connection("it copies another database than the primary".into()));
            }
            let seconds = row.get::<_, Option<f64>>(2).unwrap_or(0.0);
            let since_commit = Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or_default();
            Ok(Seen { replayed, at, since_commit })
        });
        looked.await.inspect_err(|fault| self.away(fault)).ok()
    }

    /// Notes what was seen, while the primary came at most to `position`.
    pub(super) fn judge(&self, seen: Seen, trail: &Trail, position: Position) {
        if seen.replayed > position {
            let words = "it is ahead of the primary, so it holds another history".to_owned();
            return self.away(&Fault::Connection(words));
        }
        let (mut lag, may_be_longer) = trail.lag(seen.replayed, seen.at);
        if may_be_longer {
            lag = lag.max(seen.since_commit);
        }
        let fault = (lag > self.lag_max).then(|| {
            format!("it is {} ms behind, more than store.postgres.replica_lag allows", lag.as_millis())
        });
        let mut state = self.state.lock();
        if state.fault.is_some() != fault.is_some() {
            match &fault {
                Some(reason) => tracing::warn!(replica = self.place, reason, "a replica is not read from"),
                None => tracing::info!(replica = self.place, "a replica is read from"),
            }
        }
        *state = State { fault, lag: Some(lag), look_at: Instant::now(), wait: RETRY_MIN };
    }

    /// Passes it over until it is looked at again, later each time.
    fn away(&self, fault: &Fault) {
        let reason = match fault {
            Fault::Connection(words) => words.clone(),
            fault => fault.to_string(),
        };
        let (mut state, now) = (self.state.lock(), Instant::now());
        // Reads that failed together are one failure.
        if now < state.look_at {
            return;
        }
        if state.fault.as_ref() != Some(&reason) {
            tracing::warn!(replica = self.place, reason, "a replica is not read from");
        }
        let (look_at, wait) = (now + state.wait, (state.wait * 2).min(RETRY_MAX));
        *state = State { fault: Some(reason), lag: None, look_at, wait };
    }
}
