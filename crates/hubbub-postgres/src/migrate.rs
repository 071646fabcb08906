//! The schema's versions. Each is a file that is never changed again once it was released; each runs in a transaction
//! of its own, so that a run that was broken off goes on where it stopped.

use tokio_postgres::Config;

use crate::db::connect::{OpenError, place, tls};
use crate::db::fault::describe;
use crate::options::PostgresOptions;

mod embedded {
    refinery::embed_migrations!("migrations");
}

/// Any number, the same in all processes: servers that start together migrate one after another.
const LOCK: &str = "select pg_advisory_lock(7161616174)";

/// Brings the schema to the newest version.
pub(crate) async fn run(config: &Config, options: &PostgresOptions) -> Result<(), OpenError> {
    let place = place(config);
    let failed = |error: &tokio_postgres::Error| {
        OpenError(format!("the schema of {place} could not be migrated: {}", describe(error)))
    };
    let (mut client, connection) =
        config.connect(tls(options.ca.as_deref())?).await.map_err(|error| failed(&error))?;
    let driver = tokio::spawn(connection);
    client.batch_execute(LOCK).await.map_err(|error| failed(&error))?;
    let run = embedded::migrations::runner().run_async(&mut client).await;
    drop(client);
    let _ = driver.await;
    run.map(drop).map_err(|error| OpenError(format!("the schema of {place} could not be migrated: {error}")))
}
