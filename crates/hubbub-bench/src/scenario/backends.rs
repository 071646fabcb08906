//! What the servers of one measurement share: a database and topics of their own, gone afterwards. Without these, one server
//! has a directory of its own.

use std::path::{Path, PathBuf};

use anyhow::ensure;
use clap::Args;

use super::file::{Measurement, Placement};
use crate::lab::cores::Pinned;
#[cfg(feature = "postgres")]
use crate::limits::postgres::Database;
use crate::machine::scratch;
use crate::spawn::{Engines, Server};

/// Where servers are started, and on what.
#[derive(Debug, Clone, Args)]
pub(crate) struct BackendArgs {
    /// The program to start servers with; by default this one
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Directory for the data of servers, on the disk to measure
    #[arg(long, default_value = ".", value_name = "DIR")]
    dir: PathBuf,
    /// Store in PostgreSQL, postgres://…: a server where databases may be made
    #[arg(long, value_name = "URL", conflicts_with = "server")]
    postgres: Option<String>,
    /// Behind Kafka, kafka://…: a cluster where topics may be made
    #[arg(long, value_name = "URL", conflicts_with = "server", requires = "postgres")]
    kafka: Option<String>,
}

impl BackendArgs {
    pub(super) fn store(&self) -> &'static str {
        if self.postgres.is_some() { "postgres" } else { "embedded" }
    }

    pub(super) fn log(&self) -> &'static str {
        if self.kafka.is_some() { "kafka" } else { "direct" }
    }

    /// Where data of servers go.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn postgres(&self) -> Option<&str> {
        self.postgres.as_deref()
    }

    /// Refuses what this program cannot start, before anything is measured.
    pub(super) fn check(&self, point: &Measurement, has_database_cores: bool) -> anyhow::Result<()> {
        ensure!(
            !has_database_cores || self.postgres.is_some(),
            "cores: database is for a database: give --postgres URL"
        );
        let count = point.servers()?;
        ensure!(
            count == 1 || self.postgres.is_some(),
            "servers = {count} need a store that they share: give --postgres URL"
        );
        for (option, is_given, is_built) in [
            ("postgres", self.postgres.is_some(), cfg!(feature = "postgres")),
            ("kafka", self.kafka.is_some(), cfg!(feature = "kafka")),
        ] {
            ensure!(!is_given || is_built, "--{option}: this program was built without the feature {option}");
        }
        Ok(())
    }

    /// Has `work` done with the servers of a measurement, on an empty store and log.
    pub(super) async fn during<R>(
        &self,
        measurement: &Measurement,
        work: impl AsyncFnOnce(&[Server], Option<&str>) -> anyhow::Result<R>,
    ) -> anyhow::Result<R> {
        let placed = Placed { measurement, cores: measurement.placement()? };
        let topics = self.kafka.as_deref().map(Topics::new);
        let worked = self.on_database(&placed, topics.as_ref(), work).await;
        let removed = match topics {
            Some(topics) => topics.remove().await,
            None => Ok(()),
        };
        // Why it did not work comes first: what was never made cannot be removed.
        worked.and_then(|result| removed.map(|()| result))
    }

    /// The process of the broker, where it runs on this machine.
    pub(super) fn broker_pid(&self) -> Option<u32> {
        let (_, address) = self.kafka.as_deref()?.split_once("://")?;
        let first = address.split([',', '/']).next()?;
        let (host, port) = first.rsplit_once(':')?;
        let is_here = ["127.0.0.1", "localhost", "[::1]"].contains(&host);
        crate::machine::listening_on(port.parse().ok().filter(|_| is_here)?)
    }

    #[cfg(feature = "postgres")]
    async fn on_database<R>(
        &self,
        placed: &Placed<'_>,
        topics: Option<&Topics>,
        work: impl AsyncFnOnce(&[Server], Option<&str>) -> anyhow::Result<R>,
    ) -> anyhow::Result<R> {
        let Some(url) = &self.postgres else { return self.serve(placed, topics, None, work).await };
        let database = Database::fresh(url).await?;
        let pids = crate::sample::database_pids(&database.url).await?;
        let pin = |cores| {
            ensure!(!pids.is_empty(), "cores: the database of --postgres does not run on this machine");
            Pinned::processes(&pids, cores)
        };
        let _pinned = placed.cores.database.as_ref().map(pin).transpose()?;
        let worked = self.serve(placed, topics, Some(&database.url), work).await;
        let dropped = database.drop().await;
        worked.and_then(|result| dropped.map(|()| result))
    }

    #[cfg(not(feature = "postgres"))]
    async fn on_database<R>(
        &self,
        placed: &Placed<'_>,
        topics: Option<&Topics>,
        work: impl AsyncFnOnce(&[Server], Option<&str>) -> anyhow::Result<R>,
    ) -> anyhow::Result<R> {
        self.serve(placed, topics, None, work).await
    }

    async fn serve<R>(
        &self,
        placed: &Placed<'_>,
        topics: Option<&Topics>,
        database: Option<&str>,
        work: impl AsyncFnOnce(&[Server], Option<&str>) -> anyhow::Result<R>,
    ) -> anyhow::Result<R> {
        let program = self.program.clone().map_or_else(std::env::current_exe, Ok)?;
        let dir = scratch("hubbub-run-", &self.dir)?;
        let mut servers = Vec::new();
        for index in 0..placed.measurement.servers()? {
            let data = dir.path().join(format!("data-{index}"));
            servers.push(self.start(&program, &data, placed, topics, database).await?);
        }
        let result = work(&servers, database).await;
        for server in servers {
            server.kill().await?;
        }
        result
    }

    async fn start(
        &self,
        program: &Path,
        data: &Path,
        placed: &Placed<'_>,
        topics: Option<&Topics>,
        database: Option<&str>,
    ) -> anyhow::Result<Server> {
        let prefix = topics.map(|topics| ("kafka.topic_prefix", topics.prefix.as_str()));
        // What this thread starts inherits where it may run.
        let _pinned = placed.cores.server.as_ref().map(Pinned::thread).transpose()?;
        let settings = placed.measurement.settings().chain(prefix);
        let engines = Engines { store: database, log: self.kafka.as_deref() };
        Server::configured(program, data, settings, engines).await
    }
}

/// A measurement, and where its parts may run.
struct Placed<'m> {
    measurement: &'m Measurement,
    cores: Placement,
}

/// Topics of one measurement, by their prefix.
struct Topics {
    prefix: String,
    #[cfg(feature = "kafka")]
    url: String,
}

impl Topics {
    #[cfg_attr(not(feature = "kafka"), allow(unused_variables, reason = "there is nobody to ask there"))]
    fn new(url: &str) -> Self {
        Self {
            prefix: format!("hubbub-bench-{:012x}.", crate::machine::seed() & 0xffff_ffff_ffff),
            #[cfg(feature = "kafka")]
            url: url.to_owned(),
        }
    }

    #[cfg(not(feature = "kafka"))]
    async fn remove(self) -> anyhow::Result<()> {
        Ok(())
    }

    /// Servers that did not start may have made none.
    #[cfg(feature = "kafka")]
    async fn remove(self) -> anyhow::Result<()> {
        use anyhow::Context;
        use rdkafka::ClientConfig;
        use rdkafka::admin::{AdminClient, AdminOptions};
        use rdkafka::client::DefaultClientContext;

        const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);
        let names = ["messages", "live", "dead"].map(|name| format!("{}{name}", self.prefix));
        let brokers = self.url.strip_prefix("kafka://").unwrap_or(&self.url);
        let mut config = ClientConfig::new();
        let admin: AdminClient<DefaultClientContext> = config.set("bootstrap.servers", brokers).create()?;
        let options = AdminOptions::new().request_timeout(Some(PATIENCE)).operation_timeout(Some(PATIENCE));
        let topics: Vec<&str> = names.iter().map(String::as_str).collect();
        let removed = admin.delete_topics(&topics, &options).await;
        removed.with_context(|| format!("the topics {}* could not be removed", self.prefix)).map(drop)
    }
}
