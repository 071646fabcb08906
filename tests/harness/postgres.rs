//! PostgreSQL servers: each test that stops, breaks or configures one has its own.

use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;
use tokio_postgres::{Client, NoTls};

use super::free_ports;

/// A server of its own, with data that survive a power failure; ended and removed with this.
pub(crate) struct Postgres {
    pub(crate) port: u16,
    dir: TempDir,
    settings: String,
}

impl Postgres {
    /// With further lines of `postgresql.conf`.
    pub(crate) fn start(settings: &str) -> Self {
        let server = Self::not_started(settings);
        server.script(&["start"]);
        server
    }

    /// A streaming copy of `primary`.
    pub(crate) fn replica_of(primary: &Self) -> Self {
        let server = Self::not_started("");
        server.script(&["replica", &primary.port.to_string()]);
        server
    }

    fn not_started(settings: &str) -> Self {
        let port = free_ports(1);
        let dir = tempfile::Builder::new().prefix("hubbub-pg-").tempdir().unwrap();
        Self { port, dir, settings: settings.to_owned() }
    }

    /// Runs `scripts/services/postgres.sh` for this server; must succeed.
    pub(crate) fn script(&self, arguments: &[&str]) -> String {
        let ran = self.try_script(arguments);
        ran.unwrap_or_else(|said| panic!("postgres.sh {arguments:?}: {said}"))
    }

    pub(crate) fn try_script(&self, arguments: &[&str]) -> Result<String, String> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/services/postgres.sh");
        let mut command = Command::new(script);
        command.args(arguments).env("PGPORT", self.port.to_string()).env("SVC_HOME", self.dir.path());
        command.env("PGCONF", &self.settings).env("PGFSYNC", "on");
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    /// Where it keeps what it has; `data` is the data directory.
    pub(crate) fn home(&self) -> PathBuf {
        self.dir.path().join(format!("postgres-{}", self.port))
    }

    pub(crate) fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// Ends it as a power failure would.
    pub(crate) fn crash(&self) {
        self.script(&["stop", "immediate"]);
    }

    /// Kills it with all its processes.
    pub(crate) fn kill(&self) {
        self.script(&["stop", "KILL"]);
    }

    pub(crate) fn restart(&self) {
        self.script(&["start"]);
    }

    pub(crate) async fn connect(&self, database: &str) -> Client {
        connect(&self.url(database)).await
    }

    /// Runs statements in the database `postgres`.
    pub(crate) async fn run(&self, sql: &str) {
        self.connect("postgres").await.batch_execute(sql).await.unwrap();
    }

    /// The first column of the first row of an answer, as text.
    pub(crate) async fn query(&self, database: &str, sql: &str) -> String {
        query(&self.connect(database).await, sql).await
    }
}

/// A pooler of transactions; ended with this. Its connections to the database change while clients keep theirs.
pub(crate) struct Pooler {
    port: u16,
    dir: TempDir,
}

impl Pooler {
    /// Before a server.
    pub(crate) fn start(before: &Postgres) -> Self {
        let dir = tempfile::Builder::new().prefix("hubbub-pooler-").tempdir().unwrap();
        let pooler = Self { port: free_ports(1), dir };
        pooler.script("start", before.port).unwrap();
        pooler
    }

    /// A command of its console: "pause" holds clients back and closes connections to the database, until "resume".
    pub(crate) async fn command(&self, command: &str) {
        connect(&self.url("pgbouncer")).await.batch_execute(command).await.unwrap();
    }

    /// From now on before another one.
    pub(crate) fn lead_to(&self, other: &Postgres) {
        self.script("lead", other.port).unwrap();
    }

    pub(crate) fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    fn script(&self, argument: &str, server_port: u16) -> Result<(), String> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/services/pgbouncer.sh");
        let mut command = Command::new(script);
        command.arg(argument).env("PGPORT", server_port.to_string()).env("SVC_HOME", self.dir.path());
        let output = command.env("BOUNCER_PORT", self.port.to_string()).output().unwrap();
        let said = || String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(()) } else { Err(said()) }
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        // Not there when it did not start.
        let _ = self.script("wipe", 0);
    }
}

/// A connection to any server.
async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// The first column of the first row of an answer, as text; nothing for null.
async fn query(client: &Client, sql: &str) -> String {
    for message in client.simple_query(sql).await.unwrap() {
        if let tokio_postgres::SimpleQueryMessage::Row(row) = message {
            return row.get(0).unwrap_or_default().to_owned();
        }
    }
    panic!("no answer to {sql}")
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // Not there when it did not start.
        let _ = self.try_script(&["wipe"]);
    }
}
