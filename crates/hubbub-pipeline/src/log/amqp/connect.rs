//! Connections to the broker: made, checked for the rights that they are for, and made again for ever.

use std::path::Path;
use std::time::Duration;

use lapin::tcp::OwnedTLSConfig;
use lapin::{Channel, Connection, ConnectionProperties, DefaultConnectionBuilder};
use tokio::sync::watch;

use super::address::AmqpError;
use super::backoff::Backoff;
use super::consumer::{self, Source};
use super::{Core, topology};

/// How long one try to connect and declare may take.
const TIMEOUT: Duration = Duration::from_secs(20);
/// How long the broker may take to say goodbye.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// What to trust besides the system's authorities.
pub(super) fn tls(ca: Option<&Path>) -> Result<OwnedTLSConfig, AmqpError> {
    let Some(path) = ca else { return Ok(OwnedTLSConfig::default()) };
    let broken = |reason: &dyn std::fmt::Display| {
        AmqpError(format!("the certificates of amqp.ca ({}) cannot be read: {reason}", path.display()))
    };
    let pem = std::fs::read_to_string(path).map_err(|error| broken(&error))?;
    if !pem.contains("-----BEGIN CERTIFICATE-----") {
        return Err(broken(&"there is none in it, as PEM"));
    }
    Ok(OwnedTLSConfig { identity: None, cert_chain: Some(pem) })
}

impl Core {
    /// A connection on which everything is declared, and on it a channel of somebody who may publish.
    pub(super) async fn connect_publishing(&self) -> Result<(Connection, Channel), AmqpError> {
        self.in_time(async {
            let connection = self.connect("publishing").await?;
            let channel = topology::publishing_channel(&connection, &self.options, &self.address).await?;
            Ok((connection, channel))
        })
        .await
    }

    /// A connection on which everything is declared, and on it a consumer of each queue.
    pub(super) async fn connect_consuming(&self) -> Result<(Connection, Vec<Source>), AmqpError> {
        self.in_time(async {
            let connection = self.connect("consuming").await?;
            let sources = consumer::open(self, &connection).await?;
            Ok((connection, sources))
        })
        .await
    }

    async fn connect(&self, purpose: &str) -> Result<Connection, AmqpError> {
        let properties =
            ConnectionProperties::default().with_connection_name(format!("hubbub {purpose}").into());
        let connecting = async {
            let builder = DefaultConnectionBuilder::new()?;
            let builder = builder.with_uri(self.address.uri()).with_properties(properties);
            builder.with_tls_config(self.tls.clone()).connect().await
        };
        let connection =
            connecting.await.map_err(|error| self.address.explain("connecting to RabbitMQ", &error))?;
        topology::declare(&connection, &self.options, &self.address).await?;
        Ok(connection)
    }

    async fn in_time<T>(
        &self,
        connecting: impl Future<Output = Result<T, AmqpError>>,
    ) -> Result<T, AmqpError> {
        tokio::time::timeout(TIMEOUT, connecting).await.unwrap_or_else(|_| {
            let seconds = TIMEOUT.as_secs();
            Err(AmqpError(format!("RabbitMQ at {} gave no answer for {seconds} s", self.address)))
        })
    }

    /// Tries until `connect` succeeds, and tells `note` why it does not; `None` when the server is told to stop.
    pub(super) async fn again<T, F: Future<Output = Result<T, AmqpError>>>(
        &self,
        purpose: &str,
        stop: &watch::Receiver<bool>,
        connect: impl Fn() -> F,
        note: impl Fn(String),
    ) -> Option<T> {
        let mut backoff = Backoff::new(self.random.clone());
        loop {
            backoff.pause_unless(stop).await?;
            match connect().await {
                Ok(made) => {
                    tracing::info!(purpose, "connected to the broker again");
                    return Some(made);
                }
                Err(error) => {
                    tracing::warn!(purpose, %error, "the broker cannot be used; trying again");
                    note(error.to_string());
                }
            }
        }
    }
}

/// Ends a connection, which may be dead.
pub(super) async fn close(connection: &Connection) {
    let closing = connection.close(200, "bye".into());
    // Nothing depends on it.
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, closing).await;
}
