//! Databases of an example's own.

use tokio_postgres::{Client, NoTls};

use crate::Failure;

/// Connects.
pub(crate) async fn connect(url: &str) -> Result<Client, Failure> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// Makes an empty database on the server at `server`; what was called so before is gone. The answer is its URL.
pub(crate) async fn make(server: &str, name: &str) -> Result<String, Failure> {
    let (base, _) = server.rsplit_once('/').ok_or("the URL names no database")?;
    drop(server, name).await?;
    connect(server).await?.batch_execute(&format!("create database {name}")).await?;
    Ok(format!("{base}/{name}"))
}

/// Removes it, with whoever is still connected.
pub(crate) async fn drop(server: &str, name: &str) -> Result<(), Failure> {
    let text = format!("drop database if exists {name} with (force)");
    Ok(connect(server).await?.batch_execute(&text).await?)
}
