//! PostgreSQL does what every store must do.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, unreachable_pub)]

mod support;

use std::sync::Arc;

use hubbub_core::clock::{ManualClock, SeededRandom};
use hubbub_core::{Store, Timestamp};
use hubbub_postgres::{Postgres, PostgresOptions};
use hubbub_store::conformance::Fixture;
use support::Database;

struct Opened {
    store: Arc<Postgres>,
    clock: Arc<ManualClock>,
    database: Database,
}

impl Opened {
    async fn fresh() -> Self {
        let database = Database::fresh().await;
        let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_700_000_000_000_000)));
        let store = Self::open(&database.url, &clock, true).await;
        Self { store, clock, database }
    }

    async fn open(url: &str, clock: &Arc<ManualClock>, autocreate: bool) -> Arc<Postgres> {
        let options = PostgresOptions { autocreate, ..PostgresOptions::new(url) };
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
        self.store = Self::open(&self.database.url, &self.clock, autocreate).await;
    }

    async fn settle(&mut self) {
        self.store.settle().await.unwrap();
    }
}

mod rooms {
    use super::Opened;
    hubbub_store::conformance_tests!(Opened::fresh().await);
}

mod queues {
    use super::Opened;
    hubbub_store::queue_conformance_tests!(Opened::fresh().await);
}

mod keys {
    use super::Opened;
    hubbub_store::key_conformance_tests!(Opened::fresh().await);
}
