//! A store for the conformance suite.

use std::sync::Arc;
use std::time::Duration;

use hubbub_conformance::log::LogFixture;
use hubbub_conformance::{CLIENTS_MAX, Fixture};
use hubbub_core::clock::{ManualClock, SeededRandom};
use hubbub_core::{Store, Timestamp};
use hubbub_postgres::{BroadcastOptions, Pooler, Postgres, PostgresOptions};

use super::Database;

/// A store in a database of its own.
pub struct Opened {
    store: Arc<Postgres>,
    clock: Arc<ManualClock>,
    database: Database,
    pooler: Pooler,
    pause: Duration,
}

impl Opened {
    pub async fn fresh() -> Self {
        Self::through(Pooler::Session, Duration::from_millis(15)).await
    }

    /// Creates two copies of a message to everybody, and more only on demand.
    pub async fn slow() -> Self {
        Self::through(Pooler::Session, Duration::from_secs(3_600)).await
    }

    /// Behind a transaction pooler.
    pub async fn pooled() -> Self {
        Self::through(Pooler::Transaction, Duration::from_millis(15)).await
    }

    async fn through(pooler: Pooler, pause: Duration) -> Self {
        let database = Database::fresh().await;
        let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_700_000_000_000_000)));
        let store = Self::open(&database, (pooler, pause), &clock, true).await;
        Self { store, clock, database, pooler, pause }
    }

    async fn open(
        database: &Database,
        (pooler, pause): (Pooler, Duration),
        clock: &Arc<ManualClock>,
        autocreate: bool,
    ) -> Arc<Postgres> {
        let direct = PostgresOptions {
            autocreate,
            queues_clients_max: CLIENTS_MAX,
            broadcasts: BroadcastOptions { at_once: 1, per_slice: 2, pause, ..BroadcastOptions::default() },
            ..PostgresOptions::new(&database.url)
        };
        let options = match pooler {
            Pooler::Session => direct,
            Pooler::Transaction => PostgresOptions {
                url: database.pooled_url(),
                pooler,
                migrate_url: Some(database.url.clone()),
                ..direct
            },
        };
        Arc::new(Postgres::open(options, clock.clone(), &SeededRandom::new(3)).await.unwrap())
    }
}

impl Fixture for Opened {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    fn clock(&self) -> &ManualClock {
        &self.clock
    }

    async fn restart(&mut self, autocreate: bool) {
        self.store.close();
        self.store = Self::open(&self.database, (self.pooler, self.pause), &self.clock, autocreate).await;
    }

    async fn seal_all(&mut self) {
        self.store.finish_maintenance().await.unwrap();
    }
}

impl LogFixture for Opened {
    async fn open_second(&mut self) -> Arc<dyn Store> {
        Self::open(&self.database, (self.pooler, self.pause), &self.clock, true).await
    }
}
