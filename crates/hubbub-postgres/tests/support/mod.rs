//! A database for each test, in a real PostgreSQL started by `scripts/services/postgres.sh start`.

#[allow(dead_code)]
pub mod fixture;
#[allow(dead_code)]
pub mod queues;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio_postgres::{Client, NoTls};

/// The server; `HUBBUB_TEST_POSTGRES` names another one.
const URL: &str = "postgres://postgres@127.0.0.1:15432/postgres";

/// The transaction pooler; `HUBBUB_TEST_PGBOUNCER` names another one.
const POOLER: &str = "postgres://postgres@127.0.0.1:16432";

static NEXT: AtomicU64 = AtomicU64::new(0);

/// A database, dropped with this value.
pub struct Database {
    name: String,
    pub url: String,
}

fn server() -> String {
    std::env::var("HUBBUB_TEST_POSTGRES").unwrap_or_else(|_| URL.into())
}

pub async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap_or_else(|error| {
        panic!("no PostgreSQL at {url} ({error}): scripts/services/postgres.sh start")
    });
    tokio::spawn(connection);
    client
}

impl Database {
    /// An empty database.
    pub async fn fresh() -> Self {
        Self::of("template1").await
    }

    /// A copy of the database. Waits until nobody is connected to it.
    #[allow(dead_code)]
    pub async fn copy(&self) -> Self {
        let client = connect(&server()).await;
        let connected = "select count(*) from pg_stat_activity where datname = $1";
        eventually("nobody is connected", async || {
            client.query_one(connected, &[&self.name]).await.unwrap().get::<_, i64>(0) == 0
        })
        .await;
        Self::of(&self.name).await
    }

    async fn of(template: &str) -> Self {
        let name = format!("test_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let client = connect(&server()).await;
        client.batch_execute(&format!("drop database if exists {name} with (force)")).await.unwrap();
        client.batch_execute(&format!("create database {name} template {template}")).await.unwrap();
        let (before, _) = server().rsplit_once('/').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
        Self { url: format!("{before}/{name}"), name }
    }

    /// The same behind `scripts/services/pgbouncer.sh start`.
    #[allow(dead_code)]
    pub fn pooled_url(&self) -> String {
        let pooler = std::env::var("HUBBUB_TEST_PGBOUNCER").unwrap_or_else(|_| POOLER.into());
        format!("{pooler}/{}", self.name)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let name = std::mem::take(&mut self.name);
        // A runtime of its own: the test's may be shutting down.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let drop = format!("drop database if exists {name} with (force)");
                let _ = connect(&server()).await.batch_execute(&drop).await;
            });
        });
        let _ = dropping.join();
    }
}

/// Waits until so many sessions of the client's database wait for an advisory lock, by the two halves of its key.
#[allow(dead_code)]
pub async fn wait_for_waiters(client: &Client, (high, low): (i64, i64), wanted: i64) {
    let text = "select count(*) from pg_locks where locktype = 'advisory' and not granted \
                and classid::int8 = $1 and objid::int8 = $2 \
                and database = (select oid from pg_database where datname = current_database())";
    let waiters = async || client.query_one(text, &[&high, &low]).await.unwrap().get::<_, i64>(0);
    eventually("sessions wait for the lock", async || waiters().await >= wanted).await;
}

/// The beginning of a relay to a database: where it listens, the URL of the database through it, and the address behind it.
#[allow(dead_code)]
pub async fn relay_to(url: &str) -> (TcpListener, String, String) {
    let (before, rest) = url.split_once('@').unwrap();
    let (address, name) = rest.split_once('/').unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let through = format!("{before}@{}/{name}", listener.local_addr().unwrap());
    (listener, through, address.to_owned())
}

/// Waits until `is_so`, or fails.
#[allow(dead_code)]
pub async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    for _ in 0..200 {
        if is_so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{what}");
}
