//! One replica: its state, and reads from it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use hubbub_core::backoff::Backoff;
use hubbub_core::invariant::saturate;
use hubbub_core::replica::ReplicaFigures;
use parking_lot::Mutex;
use tokio_postgres::types::PgLsn;

use super::log_position::{LogPosition, PositionHistory};
use crate::db::connect::{self, OpenError};
use crate::db::{Conn, Db, DbError, ReadSource, Result, statements};
use crate::history::DatabaseHistory;
use crate::options::{PoolOptions, PostgresOptions};

/// Timeout of a connection, and of a query for the replica's position.
const PATIENCE: Duration = Duration::from_secs(2);

/// Most polls of a replica's position for one read, and the time in between.
const POLLS_MAX: u32 = 10;
const POLL_AFTER: Duration = Duration::from_millis(5);

/// Shortest and longest time between two probes of a replica that is away.
const RETRY_MIN: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(10);

statements! {
    /// The epoch identifies the replayed history. The position is taken before the next statement takes its snapshot.
    REPLAYED("reading the log position of a replica") =
        "select pg_is_in_recovery(), pg_last_wal_replay_lsn(), (select epoch from history)";

    /// The timeline is in several places, none of which is always current; not every user may read the last one.
    IDENTITY("identifying the database of a replica") =
        "select s.system_identifier::text, greatest(c.timeline_id, r.min_recovery_end_timeline, \
             (select received_tli from pg_stat_wal_receiver)), \
             extract(epoch from now() - pg_last_xact_replay_timestamp())::float8 \
         from pg_control_system() s, pg_control_checkpoint() c, pg_control_recovery() r";
}

pub(super) struct Replica {
    place: String,
    db: Db,
    pool: PoolOptions,
    lag_max: Duration,
    history: Arc<DatabaseHistory>,
    state: Mutex<State>,
    reads: AtomicU64,
    fallbacks: AtomicU64,
}

/// The result of the last probe.
struct State {
    /// Why it is skipped; `None` if it is used.
    fault: Option<String>,
    lag: Option<Duration>,
    next_probe: Instant,
    backoff: Backoff,
}

/// What a probe found.
pub(super) struct Observation {
    replayed: LogPosition,
    at: Instant,
    /// Time since the last replayed commit, by the replica's clock; meaningless while nothing is committed.
    since_commit: Duration,
}

impl Replica {
    pub(super) fn open(
        url: &str,
        options: &PostgresOptions,
        history: Arc<DatabaseHistory>,
    ) -> Result<Self, OpenError> {
        let config = connect::config(url, false)?;
        let place = connect::hosts(&config);
        let pool = PoolOptions { min: 0, acquire_timeout: PATIENCE, ..options.pool };
        let connections = connect::pool(config, &PostgresOptions { pool, ..options.clone() }, None)?;
        let state = State {
            fault: Some("it was not probed yet".into()),
            lag: None,
            next_probe: Instant::now(),
            backoff: Backoff::new(RETRY_MIN, RETRY_MAX),
        };
        Ok(Self {
            place,
            // It repeats nothing, so the seed of its pauses does not matter.
            db: Db::new(connections, options.pooler, (PATIENCE, pool.max_lifetime), None, 0),
            pool,
            lag_max: options.replica_lag,
            history,
            state: Mutex::new(state),
            reads: AtomicU64::new(0),
            fallbacks: AtomicU64::new(0),
        })
    }

    pub(super) fn is_usable(&self) -> bool {
        self.state.lock().fault.is_none()
    }

    pub(super) fn figures(&self) -> ReplicaFigures {
        let state = self.state.lock();
        ReplicaFigures {
            place: self.place.clone(),
            fault: state.fault.clone(),
            lag_us: state.lag.map(|lag| saturate(lag.as_micros())),
            reads: self.reads.load(Relaxed),
            fallbacks: self.fallbacks.load(Relaxed),
        }
    }

    pub(super) fn close(&self) {
        self.db.close();
    }

    /// Counts a read as answered here or by the primary.
    pub(super) fn count<T>(&self, found: Option<T>) -> Option<T> {
        if found.is_some() { &self.reads } else { &self.fallbacks }.fetch_add(1, Relaxed);
        found
    }

    /// Runs `work` if the replica is usable and has replayed everything up to `position`.
    pub(super) async fn read<T>(
        &self,
        position: LogPosition,
        work: &impl AsyncFn(ReadSource) -> Result<T>,
    ) -> Option<T> {
        // It may have gone away while the position was queried.
        if !self.is_usable() {
            return None;
        }
        match self.try_read(position, work).await {
            Ok(found) => found,
            // Replay may have cancelled the statement. The next one may succeed.
            Err(fault) if !(fault.spoils_connection() || matches!(fault, DbError::Connection(_))) => {
                tracing::debug!(replica = self.place, %fault, "a replica did not answer a read; the primary does");
                None
            }
            Err(fault) => {
                self.mark_unavailable(&fault);
                None
            }
        }
    }

    async fn try_read<T>(
        &self,
        position: LogPosition,
        work: &impl AsyncFn(ReadSource) -> Result<T>,
    ) -> Result<Option<T>> {
        let conn = Arc::new(self.db.get().await?);
        let _pinned = self.db.within("beginning a transaction", conn.pinned()).await?;
        // Everything up to `position` may need a moment to be replayed.
        for poll in 1..=POLLS_MAX {
            if self.replayed_position(&conn).await? >= position {
                return work(ReadSource::Replica(conn.clone())).await.map(Some);
            }
            if poll < POLLS_MAX {
                tokio::time::sleep(POLL_AFTER).await;
            }
        }
        Ok(None)
    }

    /// How far it has replayed this history.
    async fn replayed_position(&self, conn: &Conn) -> Result<LogPosition> {
        let row = self.db.within(REPLAYED.what, conn.unchecked().query_one(&REPLAYED, &[])).await?;
        if !row.get::<_, bool>(0) {
            return Err(DbError::Connection("it is no replica, but takes writes itself".into()));
        }
        if row.get::<_, Option<&str>>(2) != Some(&*self.history.epoch) {
            return Err(DbError::Connection("it holds another history than the primary".into()));
        }
        Ok(row.get::<_, Option<PgLsn>>(1).unwrap_or(PgLsn::from(0)))
    }

    /// Probes it; `None` if it is not due yet, or away.
    pub(super) async fn probe(&self) -> Option<Observation> {
        if Instant::now() < self.state.lock().next_probe {
            return None;
        }
        let probed = self.db.within("probing a replica", async {
            self.db.reap(&self.pool).await?;
            let conn = self.db.get().await?;
            let _pinned = conn.pinned().await?;
            let (replayed, at) = (self.replayed_position(&conn).await?, Instant::now());
            let row = conn.unchecked().query_one(&IDENTITY, &[]).await?;
            if !self.history.is_replicated_by(row.get(0), row.get(1)) {
                return Err(DbError::Connection("it copies another database than the primary".into()));
            }
            let seconds = row.get::<_, Option<f64>>(2).unwrap_or(0.0);
            let since_commit = Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or_default();
            Ok(Observation { replayed, at, since_commit })
        });
        probed.await.inspect_err(|fault| self.mark_unavailable(fault)).ok()
    }

    /// Updates the state. `position` is one that the primary had reached after the probe.
    pub(super) fn update(&self, seen: Observation, past_positions: &PositionHistory, position: LogPosition) {
        if seen.replayed > position {
            let words = "it is ahead of the primary, so it holds another history".to_owned();
            return self.mark_unavailable(&DbError::Connection(words));
        }
        let (mut lag, may_be_longer) = past_positions.lag(seen.replayed, seen.at);
        if may_be_longer {
            lag = lag.max(seen.since_commit);
        }
        let fault = (lag > self.lag_max).then(|| {
            format!("it is {} ms behind, more than store.postgres.replica_lag allows", lag.as_millis())
        });
        let mut state = self.state.lock();
        if state.fault.is_some() != fault.is_some() {
            match &fault {
                Some(reason) => {
                    tracing::warn!(replica = self.place, reason, "a replica is not used; the primary answers")
                }
                None => tracing::info!(replica = self.place, "a replica is used"),
            }
        }
        (state.fault, state.lag, state.next_probe) = (fault, Some(lag), Instant::now());
        state.backoff.reset();
    }

    /// Skips it until the next probe, whose delay doubles each time.
    fn mark_unavailable(&self, fault: &DbError) {
        let reason = match fault {
            DbError::Connection(words) => words.clone(),
            fault => fault.to_string(),
        };
        let (mut state, now) = (self.state.lock(), Instant::now());
        // Reads that fail together count as one failure.
        if now < state.next_probe {
            return;
        }
        if state.fault.as_ref() != Some(&reason) {
            tracing::warn!(replica = self.place, reason, "a replica is not used; the primary answers");
        }
        (state.fault, state.lag, state.next_probe) = (Some(reason), None, now + state.backoff.exact_pause());
    }
}
