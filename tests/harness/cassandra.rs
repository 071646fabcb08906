//! Cassandra: a keyspace of one's own on the server that runs for all tests, or a server of one's own.

use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::deserialize::row::DeserializeRow;

use super::Setup;
use super::service::{Script, Service, unique};

/// Where the server for all tests is, unless `HUBBUB_TEST_CQL` says otherwise.
const SHARED: &str = "127.0.0.1:19042";
/// What a server with one node needs.
const REPLICATION: &str = "store.scylla.replication={'class': 'NetworkTopologyStrategy', 'datacenter1': 1}";

/// Its own port, two for other nodes, and one for JMX.
const PORTS: u16 = 4;
const SCRIPT: Script = Script { name: "cassandra.sh", port: "CQL_PORT" };

/// A keyspace; on the server for all tests it is dropped with this value.
pub(crate) struct Cassandra {
    service: Service,
    keyspace: String,
}

impl Cassandra {
    pub(crate) fn shared() -> Self {
        let service = Service::shared(SCRIPT, "HUBBUB_TEST_CQL", SHARED);
        Self { service, keyspace: format!("process_{}", unique().replace('-', "_")) }
    }

    /// A server of one's own, which runs, and writes to its disk before it answers.
    pub(crate) fn start() -> Self {
        let mut service = Self::not_started();
        service.set("CASS_SYNC", "batch");
        Self::started(service)
    }

    /// One that speaks nothing but TLS, with a certificate for `127.0.0.1`, and asks for a password; and with `for_clients`
    /// for a certificate as well.
    pub(crate) fn start_with_tls(for_clients: bool) -> Self {
        let mut service = Self::not_started();
        service.make_certificates("IP:127.0.0.1");
        let home = service.home().to_owned();
        let of = |file: &str| std::fs::read_to_string(home.join(file)).unwrap();
        std::fs::write(home.join("store.pem"), of("server.key") + &of("server.crt")).unwrap();
        let home = home.display();
        service.set(
            "CASS_CONF",
            format!(
                "client_encryption_options: {{enabled: true, optional: false, require_client_auth: {for_clients}, \
                 ssl_context_factory: {{class_name: org.apache.cassandra.security.PEMBasedSslContextFactory}}, \
                 keystore: {home}/store.pem, truststore: {home}/ca.pem}}"
            ),
        );
        service.set("CASS_AUTHENTICATOR", "PasswordAuthenticator");
        Self::started(service)
    }

    fn not_started() -> Service {
        let mut service = Service::own(SCRIPT, PORTS);
        service.set("CQL_STORE_PORT", (service.port() + 1).to_string());
        service.set("CQL_JMX_PORT", (service.port() + 3).to_string());
        service
    }

    fn started(service: Service) -> Self {
        let cassandra = Self { service, keyspace: "own".to_owned() };
        cassandra.restart();
        cassandra
    }

    pub(crate) fn restart(&self) {
        self.service.run(&["start"]);
    }

    pub(crate) fn kill(&self) {
        self.service.run(&["stop", "KILL"]);
    }

    /// `ca.pem`, `server.crt` and `server.key`.
    pub(crate) fn file(&self, name: &str) -> String {
        self.service.home().join(name).display().to_string()
    }

    /// The server, without a keyspace.
    pub(crate) fn cluster(&self) -> String {
        format!("scylla://{}", self.host())
    }

    /// All keyspaces of the server, of whomever.
    pub(crate) async fn keyspaces(&self) -> Vec<String> {
        let select = "select keyspace_name from system_schema.keyspaces";
        let rows = self.connect().await.query_unpaged(select, ()).await.unwrap().into_rows_result().unwrap();
        rows.rows::<(String,)>().unwrap().map(|row| row.unwrap().0).collect()
    }

    fn host(&self) -> String {
        format!("127.0.0.1:{}", self.service.port())
    }

    pub(crate) fn url(&self) -> String {
        format!("scylla://{}/{}", self.host(), self.keyspace)
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
        let mut tables: Vec<_> = tables.rows::<(String,)>().unwrap().map(|row| row.unwrap().0).collect();
        tables.retain(|table| table != "properties" && table != "schema_versions");
        // Servers notice by the positions, and begin to store everything again.
        tables.sort_by_key(|table| table == "positions");
        for table in tables {
            session.query_unpaged(format!("truncate {}.{table}", self.keyspace), ()).await.unwrap();
        }
    }

    /// Executes a statement in the keyspace.
    pub(crate) async fn execute(&self, statement: &str) {
        let session = self.connect().await;
        session.use_keyspace(&self.keyspace, false).await.unwrap();
        session.query_unpaged(statement, ()).await.unwrap();
    }

    /// The rows that a statement selects from the keyspace.
    pub(crate) async fn rows<R>(&self, select: &str) -> Vec<R>
    where
        R: for<'frame, 'metadata> DeserializeRow<'frame, 'metadata>,
    {
        let session = self.connect().await;
        session.use_keyspace(&self.keyspace, false).await.unwrap();
        let rows = session.query_unpaged(select, ()).await.unwrap().into_rows_result().unwrap();
        rows.rows::<R>().unwrap().map(|row| row.unwrap()).collect()
    }

    async fn connect(&self) -> Session {
        SessionBuilder::new().known_node(self.host()).build().await.unwrap()
    }
}

impl Drop for Cassandra {
    fn drop(&mut self) {
        if !self.service.is_shared() {
            return;
        }
        let (host, keyspace) = (self.host(), self.keyspace.clone());
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
