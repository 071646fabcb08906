//! The stores behind Kafka: what a test says must be true with each of them.

#[cfg(feature = "scylla")]
use super::Cassandra;
use super::{Kafka, Postgres, Setup};

/// A store that servers share; ended or dropped with this.
pub(crate) enum SharedStore {
    Postgres(Postgres),
    #[cfg(feature = "scylla")]
    Cassandra(Cassandra),
}

impl SharedStore {
    /// A server of one's own.
    pub(crate) fn postgres() -> Self {
        Self::Postgres(Postgres::start(""))
    }

    /// A keyspace on the server that runs for all tests.
    #[cfg(feature = "scylla")]
    pub(crate) fn cassandra() -> Self {
        Self::Cassandra(Cassandra::shared())
    }

    /// A server with this store and a log of so many partitions.
    pub(crate) fn behind(&self, kafka: &Kafka, partitions: u32) -> Setup {
        match self {
            Self::Postgres(postgres) => kafka.setup(&postgres.url("postgres"), partitions),
            #[cfg(feature = "scylla")]
            Self::Cassandra(cassandra) => Cassandra::replicated(kafka.setup(&cassandra.url(), partitions)),
        }
    }

    /// Whether it has queues and keys.
    pub(crate) fn has_queues(&self) -> bool {
        matches!(self, Self::Postgres(_))
    }

    /// Ends a server of one's own as a power failure would, and starts it again with what `meanwhile` does in between. The
    /// server that runs for all tests stays.
    pub(crate) fn crash(&self, meanwhile: impl FnOnce()) {
        match self {
            Self::Postgres(postgres) => {
                postgres.crash();
                meanwhile();
                postgres.restart();
            }
            #[cfg(feature = "scylla")]
            Self::Cassandra(_) => meanwhile(),
        }
    }

    /// Whether a part of the records of a batch is stored, and the rest is not. Whoever stores them should stand still.
    pub(crate) async fn is_half_written(&self) -> bool {
        match self {
            Self::Postgres(postgres) => {
                // Whoever stores records locks where their partitions stand, until all is committed.
                let locked = "select (select count(*) from log_offsets) - (select count(*) from \
                    (select from log_offsets for update skip locked) as free)";
                postgres.query("postgres", locked).await != "0"
            }
            #[cfg(feature = "scylla")]
            Self::Cassandra(cassandra) => {
                // Messages come first, and where their partition stands comes last.
                let messages = "select room, max(seq) from messages group by room, bucket";
                let messages = cassandra.rows::<(String, i64)>(messages).await;
                let rooms = cassandra.rows::<(String, i32)>("select room, part from room_names").await;
                let next = cassandra.rows::<(i32, i64)>("select part, next_offset from positions").await;
                messages.iter().any(|(room, seq)| {
                    let part = rooms.iter().find(|(name, _)| name == room).map(|(_, part)| part);
                    next.iter().any(|(of, next)| Some(of) == part && seq > next)
                })
            }
        }
    }
}

/// Makes a test of a function that takes a [`SharedStore`], for each store: `NAME::on_postgres` and `NAME::on_cassandra`.
macro_rules! with_each_store {
    ($($test:ident),+ $(,)?) => {$(
        #[allow(clippy::module_inception, reason = "a file is called what its first test is")]
        mod $test {
            use crate::harness::SharedStore;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_postgres() {
                super::$test(SharedStore::postgres()).await;
            }

            #[cfg(feature = "scylla")]
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_cassandra() {
                super::$test(SharedStore::cassandra()).await;
            }
        }
    )+};
}

pub(crate) use with_each_store;
