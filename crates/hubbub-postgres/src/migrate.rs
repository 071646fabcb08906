//! Migrates the schema.
//!
//! Each version is a file that never changes after its release. Each runs in a transaction of its own, so that an interrupted
//! run continues where it stopped.

use std::pin::pin;
use std::time::Duration;

use hubbub_core::backoff::Backoff;
use refinery_core::traits::r#async::{AsyncMigrate, AsyncQuery, AsyncTransaction};
use refinery_core::{Migration, Runner};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config};

use crate::db::connect::{OpenError, address, config, session_settings, tls};
use crate::db::error::open_error;
use crate::options::{Pooler, PostgresOptions};

macro_rules! versions {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../migrations/", $name, ".sql")))),*]
    };
}

/// The schema's versions from 1 on: the name of each file, and the SQL it holds.
const VERSIONS: [(&str, &str); 11] = versions![
    "V1__rooms",
    "V2__queues",
    "V3__keys",
    "V4__stats",
    "V5__log",
    "V6__heads",
    "V7__lease",
    "V8__turns",
    "V9__places",
    "V10__identities",
    "V11__uncounted"
];

/// The version this program knows.
const NEWEST: i64 = VERSIONS.len() as i64;

/// Any number, the same in all processes: servers that start together migrate one after another. Held until the
/// connection ends.
const LOCK: &str = "select pg_advisory_lock(7161616174)";

/// How long a step waits for a lock. Whoever comes after it waits behind it, also those who only read: a backup that holds
/// the table would stop all servers for as long as it takes.
const PATIENCE: &str = "set lock_timeout = '500ms'";
/// A limit of the user's or the database's is meant for short statements: a step may take long, and so may the wait for another
/// server that migrates.
const UNLIMITED: &str = "set statement_timeout = 0; set lock_timeout = 0";
/// What a killed process has begun ends with its connection; otherwise it would hold its locks until it is through, perhaps for
/// hours. Not every system's PostgreSQL can look for that.
const ENDS_WITH_CLIENT: &str = "set client_connection_check_interval = '1s'";
/// After this time it is told that another server migrates.
const SILENCE: Duration = Duration::from_secs(2);
/// Until the next attempt; each is twice the one before. Those who waited behind the last attempt go on, and the longer the
/// lock is held the less they are held up.
const PAUSES: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
/// Locks that a step takes before all else, where it would otherwise wait for a table while it holds another, on which it has
/// worked for long: each attempt would begin that work anew, and hold up those who write.
const LOCKS: [(&str, &str); 1] =
    [("V4__stats", "lock table takeouts in access exclusive mode; lock table messages, rooms in share mode")];
/// Attempts of a run that the database ends because others hold its locks, or wait for them and it for theirs: ten minutes.
const TRIES_MAX: u32 = 24;

/// `null` if there is no schema yet.
const HAS_SCHEMA: &str = "select to_regclass('refinery_schema_history')::text";
/// Tables with the rows and bytes of their partitions.
const TABLES: &str = "select c.relname::text, \
     (select coalesce(sum(greatest(p.reltuples, 0)), 0)::bigint from pg_partition_tree(c.oid) t join pg_class p on p.oid = t.relid), \
     (select coalesce(sum(pg_total_relation_size(t.relid)), 0)::bigint from pg_partition_tree(c.oid) t) \
     from pg_class c where c.relnamespace = current_schema()::regnamespace and c.relkind in ('r', 'p') \
     and not c.relispartition order by 1";
const VERSION: &str = "select coalesce(max(version), 0)::bigint from refinery_schema_history";

/// Ensures that the schema has this program's version; runs missing migrations if allowed. Returns the connection it used.
pub(crate) async fn prepare(config: &Config, options: &PostgresOptions) -> Result<Client, OpenError> {
    let client = connect(config, options).await?;
    let found = version(&client, config).await?;
    let address = address(config);
    match found {
        NEWEST => Ok(client),
        _ if !options.migrate => Err(OpenError(format!(
            "the schema of {address} has version {found}, this program needs {NEWEST}: run `hubbub migrate`, or start \
             without --no-migrate (store.postgres.migrate)"
        ))),
        _ => run(options).await.map(|()| client),
    }
}

/// A step of the schema that the database does not have yet.
#[derive(Debug, Clone)]
pub struct Pending {
    /// Its number.
    pub version: i64,
    /// Its name.
    pub name: String,
    /// What it runs, in one transaction.
    pub sql: String,
    /// The tables there are that it names.
    pub tables: Vec<Touched>,
}

/// A table that a step names, which it may lock against everybody until it is through.
#[derive(Debug, Clone)]
pub struct Touched {
    /// Its name.
    pub table: String,
    /// Rows, as the database estimates them.
    pub rows: i64,
    /// Bytes with indexes.
    pub bytes: i64,
}

/// The missing migrations, in order. With `is_run`, runs them.
pub async fn migrate(options: &PostgresOptions, is_run: bool) -> Result<Vec<Pending>, OpenError> {
    let config = direct(options)?;
    let client = connect(&config, options).await?;
    let found = version(&client, &config).await?;
    let tables = client.query_typed(TABLES, &[]).await;
    let tables = tables.map_err(|error| open_error(&config, "reading the tables of", &error))?;
    let mut pending: Vec<Pending> = runner()?
        .get_migrations()
        .iter()
        .filter(|migration| i64::from(migration.version()) > found)
        .map(|migration| {
            let sql = migration.sql().unwrap_or_default().to_owned();
            let names =
                |name: &str| sql.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == name);
            let touched = tables.iter().filter(|row| names(row.get(0)));
            let tables = touched
                .map(|row| Touched { table: row.get(0), rows: row.get(1), bytes: row.get(2) })
                .collect();
            let (version, name) = (i64::from(migration.version()), migration.name().to_owned());
            Pending { version, name, sql, tables }
        })
        .collect();
    pending.sort_by_key(|step| step.version);
    if is_run && !pending.is_empty() {
        run(options).await?;
    }
    Ok(pending)
}

/// Brings the schema to the newest version.
async fn run(options: &PostgresOptions) -> Result<(), OpenError> {
    let config = direct(options)?;
    let mut client = connect(&config, options).await?;
    let lock = format!("{}; {UNLIMITED}; {LOCK}", session_settings(options));
    let waited = async |text: &str, client: &Client| {
        client.batch_execute(text).await.map_err(|error| open_error(&config, "waiting to migrate", &error))
    };
    let _ = client.batch_execute(ENDS_WITH_CLIENT).await;
    {
        let mut locking = pin!(waited(&lock, &client));
        if let Ok(locked) = tokio::time::timeout(SILENCE, &mut locking).await {
            locked?;
        } else {
            tracing::info!("another server is migrating the schema; waiting for it");
            locking.await?;
        }
    }
    waited(PATIENCE, &client).await?;
    // Another process may have migrated meanwhile.
    version(&client, &config).await?;
    let (mut tries, mut pauses) = (1, PAUSES);
    loop {
        // Goes on behind the last version that is done.
        let Err(error) = runner()?.run_async(&mut Migrating(&mut client)).await else { return Ok(()) };
        let code = cause(&error).and_then(|cause| cause.code());
        let is_locked = code.is_some_and(|code| {
            [SqlState::T_R_DEADLOCK_DETECTED, SqlState::LOCK_NOT_AVAILABLE].contains(code)
        });
        if !is_locked || tries == TRIES_MAX {
            return Err(failed(&config, &error));
        }
        tries += 1;
        let pause = pauses.exact_pause();
        tracing::warn!(
            seconds = pause.as_secs(),
            "a migration waits for others that use the tables (a backup?); trying again after a pause"
        );
        tokio::time::sleep(pause).await;
    }
}

/// A connection on which each step takes its [`LOCKS`] first.
struct Migrating<'a>(&'a mut Client);

impl AsyncTransaction for Migrating<'_> {
    type Error = tokio_postgres::Error;

    async fn execute<'a, T: Iterator<Item = &'a str> + Send + 'a>(
        &'a mut self,
        queries: T,
    ) -> Result<usize, Self::Error> {
        let mut all: Vec<&'a str> = Vec::new();
        for query in queries {
            all.extend(locks(query));
            all.push(query);
        }
        AsyncTransaction::execute(self.0, all.into_iter()).await
    }
}

impl AsyncQuery<Vec<Migration>> for Migrating<'_> {
    async fn query(&mut self, query: &str) -> Result<Vec<Migration>, Self::Error> {
        AsyncQuery::query(self.0, query).await
    }
}

impl AsyncMigrate for Migrating<'_> {}

/// What a step with this text takes first.
fn locks(text: &str) -> Option<&str> {
    let (version, _) = VERSIONS.iter().find(|(_, sql)| *sql == text)?;
    let (_, locks) = LOCKS.iter().find(|(name, _)| name == version)?;
    Some(locks)
}

/// The URL that keeps a session, which the lock needs.
fn direct(options: &PostgresOptions) -> Result<Config, OpenError> {
    match (&options.migrate_url, options.pooler) {
        (Some(url), _) => config(url, true),
        (None, Pooler::Session) => config(&options.url, true),
        (None, Pooler::Transaction) => Err(OpenError(
            "the schema must be migrated, which does not work through a transaction pooler: set \
             store.postgres.migrate_url to a URL that leads to PostgreSQL itself"
                .into(),
        )),
    }
}

async fn connect(config: &Config, options: &PostgresOptions) -> Result<Client, OpenError> {
    let connected = config.connect(tls(options.ca.as_deref())?).await;
    let (client, connection) = connected.map_err(|error| open_error(config, "connecting to", &error))?;
    tokio::spawn(connection);
    Ok(client)
}

/// The version of the schema in the database; 0 if there is none. Refuses one that this program does not know.
async fn version(client: &Client, config: &Config) -> Result<i64, OpenError> {
    let failed = |error| open_error(config, "reading the version of the schema from", &error);
    // Typed, so that no statement is prepared, which a pooler would lose.
    let found = client.query_typed(HAS_SCHEMA, &[]).await.map_err(failed)?;
    if found.first().and_then(|row| row.get::<_, Option<String>>(0)).is_none() {
        return Ok(0);
    }
    let found = client.query_typed(VERSION, &[]).await.map_err(failed)?;
    match found.first().map_or(0, |row| row.get(0)) {
        found @ ..=NEWEST => Ok(found),
        found => Err(OpenError(format!(
            "the schema of {} has version {found}, this program knows {NEWEST} at most: run the newer hubbub that made it",
            address(config)
        ))),
    }
}

/// Runs the versions that a database does not have yet.
fn runner() -> Result<Runner, OpenError> {
    let versions = VERSIONS.map(|(name, sql)| Migration::unapplied(name, sql));
    let versions: Result<Vec<_>, _> = versions.into_iter().collect();
    let versions =
        versions.map_err(|error| OpenError(format!("a migration of this program is broken: {error}")))?;
    Ok(Runner::new(&versions))
}

fn failed(config: &Config, error: &refinery_core::Error) -> OpenError {
    match cause(error) {
        Some(cause) => open_error(config, "migrating the schema of", cause),
        None => OpenError(format!("migrating the schema of PostgreSQL at {}: {error}", address(config))),
    }
}

/// What the database said.
fn cause(error: &refinery_core::Error) -> Option<&tokio_postgres::Error> {
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        if let Some(inner) = inner.downcast_ref() {
            return Some(inner);
        }
        source = inner.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Senders are held up for the time of a lock only, and a backup of some minutes ends no start.
    #[test]
    fn attempts_become_rarer_and_end_after_ten_minutes() {
        let mut pauses = PAUSES;
        let seconds: Vec<u64> = (1..TRIES_MAX).map(|_| pauses.exact_pause().as_secs()).collect();
        assert_eq!(&seconds[..7], [1, 2, 4, 8, 16, 30, 30]);
        assert!((540..660).contains(&seconds.iter().sum::<u64>()), "{seconds:?}");
    }

    #[test]
    fn every_file_is_a_version() {
        let mut files: Vec<_> = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/migrations"))
            .unwrap()
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .collect();
        files.sort_by_key(|file| (file.find("__"), file.clone()));
        assert_eq!(files, VERSIONS.map(|(name, _)| format!("{name}.sql")));
        let versions: Vec<_> = runner().unwrap().get_migrations().iter().map(Migration::version).collect();
        assert_eq!(versions, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
    }
}
