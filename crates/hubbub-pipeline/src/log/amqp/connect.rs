//! Connects to the broker, checks permissions, and reconnects after failures.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lapin::tcp::OwnedTLSConfig;
use lapin::{Channel, Connection, ConnectionProperties, DefaultConnectionBuilder};
use tokio::sync::watch;

use super::Core;
use super::address::AmqpError;
use super::consumer::{self, QueueConsumer};
use super::topology::Topology;
use crate::log::backoff::Backoff;

const TIMEOUT: Duration = Duration::from_secs(20);
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The TLS configuration, with certificates to trust besides the system's.
pub(super) fn tls(ca: Option<&Path>) -> Result<OwnedTLSConfig, AmqpError> {
    let Some(path) = ca else { return Ok(OwnedTLSConfig::default()) };
    let unreadable = |reason: &dyn std::fmt::Display| {
        AmqpError(format!("the certificates of amqp.ca ({}) cannot be read: {reason}", path.display()))
    };
    let pem = std::fs::read_to_string(path).map_err(|error| unreadable(&error))?;
    if !pem.contains("-----BEGIN CERTIFICATE-----") {
        return Err(unreadable(&"it contains no PEM certificate"));
    }
    Ok(OwnedTLSConfig { identity: None, cert_chain: Some(pem) })
}

impl Core {
    /// Connects, declares the topology, and opens a channel with checked permission to publish.
    pub(super) async fn connect_publishing(&self) -> Result<(Connection, Channel), AmqpError> {
        self.in_time(async {
            let connection = self.connect("publishing").await?;
            let channel = self.topology(&connection).publishing_channel().await?;
            Ok((connection, channel))
        })
        .await
    }

    /// Connects, declares the topology, and starts a consumer of each queue.
    pub(super) async fn connect_consuming(&self) -> Result<(Connection, Vec<QueueConsumer>), AmqpError> {
        self.in_time(async {
            let connection = self.connect("consuming").await?;
            let consumers = consumer::open(self, &connection).await?;
            Ok((connection, consumers))
        })
        .await
    }

    async fn connect(&self, purpose: &str) -> Result<Connection, AmqpError> {
        let properties =
            ConnectionProperties::default().with_connection_name(format!("hubbub {purpose}").into());
        let connecting = async {
            let builder = DefaultConnectionBuilder::new()?;
            let builder = builder.with_uri(self.options.address.uri()).with_properties(properties);
            builder.with_tls_config(self.tls.clone()).connect().await
        };
        let explain = |error| self.options.address.explain("connecting to RabbitMQ", &error);
        let connection = connecting.await.map_err(explain)?;
        self.topology(&connection).declare().await?;
        Ok(connection)
    }

    async fn in_time<T>(
        &self,
        connecting: impl Future<Output = Result<T, AmqpError>>,
    ) -> Result<T, AmqpError> {
        tokio::time::timeout(TIMEOUT, connecting).await.unwrap_or_else(|_| {
            let seconds = TIMEOUT.as_secs();
            Err(AmqpError(format!("RabbitMQ at {} did not answer within {seconds} s", self.options.address)))
        })
    }

    fn topology<'a>(&'a self, connection: &'a Connection) -> Topology<'a> {
        Topology { connection, options: &self.options }
    }

    /// Runs `work` on a connection. When it returns why the connection was lost, connects again until that succeeds.
    /// Ends when `work` returns `None`, or the server stops. `set_fault` gets the reason while there is no connection.
    pub(super) async fn keep_connected<T, C, W>(
        &self,
        purpose: &str,
        stop: &watch::Receiver<bool>,
        mut connected: (Connection, T),
        connect: impl Fn() -> C,
        work: impl Fn(Arc<Connection>, T) -> W,
        set_fault: impl Fn(Option<String>),
    ) where
        C: Future<Output = Result<(Connection, T), AmqpError>>,
        W: Future<Output = Option<String>>,
    {
        loop {
            let connection = Arc::new(connected.0);
            let lost = work(connection.clone(), connected.1).await;
            if let Some(reason) = &lost {
                tracing::warn!(purpose, reason, "lost a connection to the broker; reconnecting");
            }
            set_fault(lost.clone());
            close(&connection).await;
            if lost.is_none() {
                return;
            }
            let mut backoff = Backoff::new(self.random.clone());
            connected = loop {
                if backoff.pause_unless(stop).await.is_none() {
                    return;
                }
                match connect().await {
                    Ok(made) => break made,
                    Err(error) => {
                        tracing::warn!(purpose, %error, "connecting to the broker failed; retrying");
                        set_fault(Some(error.to_string()));
                    }
                }
            };
            tracing::info!(purpose, "reconnected to the broker");
            set_fault(None);
        }
    }
}

/// Closes a connection, which may be dead.
async fn close(connection: &Connection) {
    let closing = connection.close(200, "bye".into());
    // Nothing depends on it.
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, closing).await;
}
