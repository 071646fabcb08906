//! PostgreSQL servers to measure with.

use anyhow::Context;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, NoTls, Row, Statement};

use crate::host::machine::seed;
use crate::host::temporary::{Remove, Temporary};

/// A database of its own on a server.
pub(crate) struct Database {
    server: String,
    name: String,
    pub(crate) url: String,
}

impl Database {
    pub(crate) async fn fresh(server: &str) -> anyhow::Result<Temporary<Self>> {
        let name = format!("hubbub_bench_{:012x}", seed() & 0xffff_ffff_ffff);
        let (base, _) = server.rsplit_once('/').context("the URL names no database")?;
        let url = format!("{base}/{name}");
        let client = connect(server).await?;
        // It may be there although nobody has heard so.
        let database = Temporary::new(Self { server: server.to_owned(), url, name });
        client.batch_execute(&format!("create database {}", database.name)).await?;
        Ok(database)
    }
}

impl Remove for Database {
    /// With whoever is still connected.
    async fn remove(&self) -> anyhow::Result<()> {
        let drop = format!("drop database if exists {} with (force)", self.name);
        let dropped = connect(&self.server).await?.batch_execute(&drop).await;
        dropped.with_context(|| format!("the database {} could not be removed", self.name))
    }
}

/// A connection; errors do not show the URL.
pub(crate) async fn connect(url: &str) -> anyhow::Result<Client> {
    let (client, connection) =
        tokio_postgres::connect(url, NoTls).await.context("connecting to PostgreSQL")?;
    tokio::spawn(connection);
    Ok(client)
}

/// Fails unless what the server acknowledges survives a power failure: figures of one that does not are worth nothing.
pub(crate) async fn check_durable(server: &str) -> anyhow::Result<()> {
    let client = connect(server).await?;
    for setting in ["fsync", "synchronous_commit", "full_page_writes"] {
        let value: String = client.query_one(&format!("show {setting}"), &[]).await?.get(0);
        anyhow::ensure!(
            value == "on",
            "PostgreSQL has {setting} = {value}: these figures would be worth nothing"
        );
    }
    Ok(())
}

/// Connections that each have a statement prepared.
pub(crate) struct Prepared {
    idle: Mutex<Vec<(Client, Statement)>>,
    permits: Semaphore,
}

impl Prepared {
    pub(crate) async fn open(url: &str, connections: usize, statement: &str) -> anyhow::Result<Self> {
        let mut idle = Vec::new();
        for _ in 0..connections {
            let client = connect(url).await?;
            let statement = client.prepare(statement).await?;
            idle.push((client, statement));
        }
        Ok(Self { idle: Mutex::new(idle), permits: Semaphore::new(connections) })
    }

    /// The row that the statement returns, if it does.
    pub(crate) async fn run(&self, params: &[&(dyn ToSql + Sync)]) -> anyhow::Result<Option<Row>> {
        let _permit = self.permits.acquire().await?;
        let (client, statement) = self.idle.lock().pop().context("more permits than connections")?;
        let row = client.query_opt(&statement, params).await;
        self.idle.lock().push((client, statement));
        Ok(row?)
    }
}
