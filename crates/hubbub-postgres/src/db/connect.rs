//! Turns a URL into a pool of connections.

use std::path::Path;
use std::time::Duration;

use deadpool_postgres::{Hook, Manager, ManagerConfig, Pool, QueueMode, RecyclingMethod, Runtime, Timeouts};
use hubbub_tls::TlsFiles;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, TargetSessionAttrs};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::durability::SYNCHRONOUS;
use crate::options::{PoolOptions, PostgresOptions};

/// The database cannot be used. The text says what to do, and never a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OpenError(pub(crate) String);

/// Timeout of one attempt to connect, unless the URL sets one.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A peer that is silent for longer is gone.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Checks that a URL can be parsed.
pub fn check_url(url: &str) -> Result<(), OpenError> {
    config(url, true).map(drop)
}

/// Checks that these can be URLs of replicas: all different, with one host each, so that the state of a replica holds for
/// all its connections.
pub fn check_replica_urls(urls: &[String]) -> Result<(), OpenError> {
    let mut addresses = Vec::new();
    for (index, url) in urls.iter().enumerate() {
        let error = |words: String| OpenError(format!("number {}: {words}", index + 1));
        let config = config(url, false).map_err(|OpenError(words)| error(words))?;
        if config.get_hosts().len() != 1 {
            return Err(error("it must name one host; give each replica a URL of its own".into()));
        }
        let address = hosts(&config);
        if addresses.contains(&address) {
            return Err(error(format!("{address} is named twice")));
        }
        addresses.push(address);
    }
    Ok(())
}

/// Parses a URL. Writers connect to the one host that takes writes.
pub(crate) fn config(url: &str, is_writer: bool) -> Result<Config, OpenError> {
    let mut config: Config = url.parse().map_err(|error: tokio_postgres::Error| {
        // The driver's text names the fault, and no part of the URL.
        let reason = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
        OpenError(format!(
            "it cannot be read ({reason}); it should be like postgres://user:password@host:5432/database"
        ))
    })?;
    if config.get_hosts().iter().any(|host| matches!(host, Host::Tcp(name) if name.contains('@'))) {
        let text = "it has more than one '@': write those of user and password as %40";
        return Err(OpenError(text.into()));
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT_TIMEOUT);
    }
    config.tcp_user_timeout(SILENCE_MAX).keepalives_idle(SILENCE_MAX);
    if config.get_application_name().is_none() {
        config.application_name("hubbub");
    }
    if is_writer && config.get_target_session_attrs() == TargetSessionAttrs::Any {
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    }
    Ok(config)
}

/// Hosts and database of a URL, for messages; without user and password.
pub(crate) fn address(config: &Config) -> String {
    format!("{}/{}", hosts(config), config.get_dbname().unwrap_or_default())
}

/// The hosts of a URL, as `host:port`.
pub(crate) fn hosts(config: &Config) -> String {
    let hosts = config.get_hosts().iter().zip(config.get_ports().iter().chain(std::iter::repeat(&5432)));
    let hosts: Vec<_> = hosts
        .map(|(host, port)| match host {
            Host::Tcp(host) => format!("{host}:{port}"),
            Host::Unix(path) => format!("{}:{port}", path.display()),
        })
        .collect();
    hosts.join(",")
}

/// Trusts the certificates of `ca`, or of the system.
pub(crate) fn tls(ca: Option<&Path>) -> Result<MakeRustlsConnect, OpenError> {
    let files = TlsFiles { ca: ca.map(Path::to_owned), ..TlsFiles::default() };
    let config = files.client("store.postgres").map_err(|error| OpenError(error.to_string()))?;
    Ok(MakeRustlsConnect::new(config))
}

/// Settings of a session that is this server's alone. The database ends it if it stands still for longer in a transaction: a
/// server that is frozen or cut off would otherwise keep its locks, and all others would wait for ever.
pub(crate) fn session_settings(options: &PostgresOptions) -> String {
    let millis = options.idle_transaction_timeout.as_millis().clamp(1, i32::MAX as u128);
    format!("set idle_in_transaction_session_timeout = {millis}; {SYNCHRONOUS}")
}

/// A pool that connects on demand, and how it does. `created` checks each new connection.
pub(crate) fn pool(
    config: Config,
    options: &PostgresOptions,
    created: Option<Hook>,
) -> Result<(Pool, MakeRustlsConnect), OpenError> {
    let manager = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let tls = tls(options.ca.as_deref())?;
    let manager = Manager::from_config(config, tls.clone(), manager);
    let PoolOptions { max, acquire_timeout, .. } = options.pool;
    let timeouts = Timeouts {
        wait: Some(acquire_timeout),
        create: Some(acquire_timeout),
        // To recycle one takes no time: it is only asked whether it is closed.
        recycle: None,
    };
    let mut builder = Pool::builder(manager)
        .max_size(max.max(1))
        .timeouts(timeouts)
        .runtime(Runtime::Tokio1)
        .queue_mode(QueueMode::Lifo);
    if let Some(hook) = created {
        builder = builder.post_create(hook);
    }
    let pool = builder.build();
    let pool = pool.map_err(|error| OpenError(format!("no pool of connections can be made: {error}")))?;
    Ok((pool, tls))
}
