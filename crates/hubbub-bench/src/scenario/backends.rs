//! What the servers of one measurement share: a database and topics of their own, gone afterwards. Without these, one server
//! has a directory of its own.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use clap::Args;

use super::file::{Measurement, PartLimits, Placement};
use super::workload::Measured;
use crate::lab::cgroup::Group;
use crate::lab::cores::Pinned;
#[cfg(feature = "postgres")]
use crate::limits::postgres::Database;
use crate::machine::scratch;
use crate::others::process_at;
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

    /// What servers are started on.
    pub(super) fn urls(&self) -> impl Iterator<Item = &str> {
        [&self.postgres, &self.kafka].into_iter().flatten().map(String::as_str)
    }

    /// Refuses what this program cannot start, before anything is measured.
    pub(super) fn check(&self, point: &Measurement) -> anyhow::Result<()> {
        for (table, is_about_database) in [
            ("cores", point.placement()?.database.is_some()),
            ("cgroup", !point.limits()?.database.is_empty()),
        ] {
            ensure!(
                !is_about_database || self.postgres.is_some(),
                "{table}: database is for a database: give --postgres URL"
            );
        }
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

    /// Makes the groups of a point, and removes them again.
    ///
    /// # Errors
    /// The limit that this machine, or this process's rights, do not allow.
    pub(super) async fn try_limits(&self, point: &Measurement) -> anyhow::Result<()> {
        let limits = point.limits()?;
        Group::make("server", &limits.server, &self.dir)?;
        #[cfg(feature = "postgres")]
        if let Some(url) = self.postgres.as_ref().filter(|_| !limits.database.is_empty()) {
            let pids = crate::sample::database_pids(url).await?;
            Group::make("database", &limits.database, &directory_of(&pids)?)?;
        }
        Ok(())
    }

    /// Has `work` done with the servers of a measurement, on an empty store and log. If one needed more memory than it may
    /// have, that is the first reason why the work failed, or the measurement is not clean.
    pub(super) async fn during(
        &self,
        measurement: &Measurement,
        work: impl AsyncFnOnce(&[Server], Option<&str>) -> anyhow::Result<Measured>,
    ) -> anyhow::Result<Measured> {
        let placed = Placed { measurement, cores: measurement.placement()?, limits: measurement.limits()? };
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
        process_at(self.kafka.as_deref()?)
    }

    #[cfg(feature = "postgres")]
    async fn on_database(
        &self,
        placed: &Placed<'_>,
        topics: Option<&Topics>,
        work: impl AsyncFnOnce(&[Server], Option<&str>) -> anyhow::Result<Measured>,
    ) -> anyhow::Result<Measured> {
        let Some(url) = &self.postgres else { return self.serve(placed, topics, None, work).await };
        let database = Database::fresh(url).await?;
        let working = async {
            let (_pinned, group) = placed.confine_database(&database.url).await?;
            let served = self.serve(placed, topics, Some(&database.url), work).await;
            explained(served, DATABASE_KILLED, &[group], Measured::with_fault)
        };
        let worked = working.await;
        let dropped = database.drop().await;
        worked.and_then(|result| dropped.map(|()| result))
    }

    #[cfg(not(feature = "postgres"))]
    async fn on_database(
        &self,
        placed: &Placed<'_>,
        topics: Option<&Topics>,
        work: impl AsyncFnOnce(&[Server], Option<&str>) -> anyhow::Result<Measured>,
    ) -> anyhow::Result<Measured> {
        self.serve(placed, topics, None, work).await
    }

    async fn serve(
        &self,
        placed: &Placed<'_>,
        topics: Option<&Topics>,
        database: Option<&str>,
        work: impl AsyncFnOnce(&[Server], Option<&str>) -> anyhow::Result<Measured>,
    ) -> anyhow::Result<Measured> {
        let program = self.program.clone().map_or_else(std::env::current_exe, Ok)?;
        let dir = scratch("hubbub-run-", &self.dir)?;
        // Groups can go when nothing runs in them any more: after the servers.
        let (mut groups, mut servers) = (Vec::new(), Vec::new());
        for index in 0..placed.measurement.servers()? {
            let data = dir.path().join(format!("data-{index}"));
            let group = Group::make(&format!("server-{index}"), &placed.limits.server, dir.path())?;
            let started = self.start(&program, &data, placed, topics, database, &group).await;
            groups.push(group);
            servers.push(explained(started, SERVER_KILLED, &groups, |server, _| server)?);
        }
        let worked = work(&servers, database).await;
        let result = explained(worked, SERVER_KILLED, &groups, Measured::with_fault);
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
        group: &Group,
    ) -> anyhow::Result<Server> {
        let prefix = topics.map(|topics| ("kafka.topic_prefix", topics.prefix.as_str()));
        // What this thread starts inherits where it may run.
        let _pinned = placed.cores.server.as_ref().map(Pinned::thread).transpose()?;
        let settings = placed.measurement.settings().chain(prefix);
        let engines = Engines { store: database, log: self.kafka.as_deref() };
        Server::configured(program, data, settings, engines, group).await
    }
}

const SERVER_KILLED: &str = "cgroup.server.memory: a server needed more, and was killed";
#[cfg(feature = "postgres")]
const DATABASE_KILLED: &str = "cgroup.database.memory: a process of the database needed more, and was killed";

/// Names the limit of memory, where that is what ended a process in one of these groups: with the error, or by `with_fault`,
/// where all came to an end in spite of it.
fn explained<T>(
    result: anyhow::Result<T>,
    reason: &'static str,
    groups: &[Group],
    with_fault: impl FnOnce(T, &str) -> T,
) -> anyhow::Result<T> {
    if !groups.iter().any(Group::has_killed) {
        return result;
    }
    result.map(|result| with_fault(result, reason)).context(reason)
}

/// A measurement, where its parts may run, and how much of the machine they get.
struct Placed<'m> {
    measurement: &'m Measurement,
    cores: Placement,
    limits: PartLimits,
}

#[cfg(feature = "postgres")]
impl Placed<'_> {
    /// Pins and limits the processes of a database, until what is returned is dropped.
    async fn confine_database(&self, url: &str) -> anyhow::Result<(Option<Pinned>, Group)> {
        let Self {
            cores: Placement { database: cores, .. },
            limits: PartLimits { database: limits, .. },
            ..
        } = self;
        if cores.is_none() && limits.is_empty() {
            return Ok((None, Group::default()));
        }
        let pids = crate::sample::database_pids(url).await?;
        let mut group = Group::make("database", limits, &directory_of(&pids)?)?;
        group.take(&pids)?;
        // Those that were started while the first one was moved.
        group.take(&crate::sample::database_pids(url).await?)?;
        let pinned = cores.as_ref().map(|cores| Pinned::processes(&pids, cores)).transpose()?;
        Ok((pinned, group))
    }
}

/// The directory that a database works in, by its processes: that of its data.
#[cfg(feature = "postgres")]
fn directory_of(pids: &[u32]) -> anyhow::Result<PathBuf> {
    let here =
        pids.first().context("cores or cgroup: the database of --postgres does not run on this machine");
    here.map(|pid| PathBuf::from(format!("/proc/{pid}/cwd")))
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn memory_is_named_as_the_reason_whether_the_workload_failed_or_not() {
        let dir = tempfile::tempdir().unwrap();
        let group = [Group::at(dir.path())];
        let measured = || {
            let (summary, terminal) = (json!({}), String::new());
            Ok(Measured { summary, is_clean: true, mishaps: Vec::new(), terminal })
        };
        let explained = |result| explained(result, SERVER_KILLED, &group, Measured::with_fault);
        for (file, calm, killed) in [
            ("memory.events", "oom 0\noom_kill 0\n", "oom 3\noom_kill 2\noom_group_kill 0\n"),
            ("memory.oom_control", "oom_kill_disable 0\noom_kill 0\n", "oom_kill_disable 0\noom_kill 1\n"),
        ] {
            let path = dir.path().join(file);
            std::fs::write(&path, calm).unwrap();
            assert!(explained(measured()).unwrap().is_clean);
            std::fs::write(&path, killed).unwrap();
            let found = explained(measured()).unwrap();
            assert_eq!((found.is_clean, found.mishaps), (false, vec![SERVER_KILLED.to_owned()]));
            let failed = explained(Err(anyhow::anyhow!("connection reset"))).err().unwrap();
            assert_eq!(format!("{failed:#}"), format!("{SERVER_KILLED}: connection reset"));
            std::fs::remove_file(path).unwrap();
        }
    }
}
