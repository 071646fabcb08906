//! Cassandra: a keyspace of one's own on the server that runs for all tests.

use std::sync::atomic::{AtomicU32, Ordering};

use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;

use super::Setup;

/// Where the server for all tests is, unless `HUBBUB_TEST_CQL` says otherwise.
const SHARED: &str = "127.0.0.1:19042";
/// What a server with one node needs.
const REPLICATION: &str = "store.scylla.replication={'class': 'NetworkTopologyStrategy', 'datacenter1': 1}";

/// A keyspace, dropped with this value.
pub(crate) struct Cassandra {
    host: String,
    keyspace: String,
}

impl Cassandra {
    pub(crate) fn shared() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let host = std::env::var("HUBBUB_TEST_CQL").unwrap_or_else(|_| SHARED.into());
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { host, keyspace: format!("process_{}_{number}", std::process::id()) }
    }

    pub(crate) fn url(&self) -> String {
        format!("scylla://{}/{}", self.host, self.keyspace)
    }

    /// With what a keyspace on it needs.
    pub(crate) fn replicated(setup: Setup) -> Setup {
        setup.set(REPLICATION)
    }

    /// Loses everything, but knows which log is attached.
    pub(crate) async fn forget(&self) {
        let session = self.connect().await;
        let tables = "select table_name from system_schema.tables where keyspace_name = ?";
        let tables =
            session.query_unpaged(tables, (&self.keyspace,)).await.unwrap().into_rows_result().unwrap();
        for row in tables.rows::<(String,)>().unwrap() {
            let (table,) = row.unwrap();
            if table != "properties" && table != "schema_versions" {
                session.query_unpaged(format!("truncate {}.{table}", self.keyspace), ()).await.unwrap();
            }
        }
    }

    async fn connect(&self) -> Session {
        SessionBuilder::new().known_node(&self.host).build().await.unwrap()
    }
}

impl Drop for Cassandra {
    fn drop(&mut self) {
        let (host, keyspace) = (self.host.clone(), self.keyspace.clone());
        // A runtime of its own: the test's may be shutting down.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let Ok(session) = SessionBuilder::new().known_node(host).build().await else { return };
                let _ = session.query_unpaged(format!("drop keyspace if exists {keyspace}"), ()).await;
            });
        });
        let _ = dropping.join();
    }
}
