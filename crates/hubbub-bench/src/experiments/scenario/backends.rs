//! Where the servers of a measurement are started, and on what: a store and a log of their own, gone afterwards. Without these,
//! one server has a directory of its own.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use clap::Args;

use super::engines::{LOG, Part, STORE};
use super::file::{Measurement, PartLimits, Placement};
use super::shared::{SharedLog, SharedStore};
use super::workload::Measured;
use crate::host::background_load::{each_at, processes_at};
use crate::host::lab::cgroup::Group;
use crate::host::lab::cores::Pinned;
use crate::host::machine::scratch;
use crate::host::spawn::{Engines, Server};

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
    /// Store in Cassandra or ScyllaDB, scylla://…: a cluster where keyspaces may be made; behind Kafka
    #[arg(long, value_name = "URL", conflicts_with = "server")]
    cql: Option<String>,
    /// Behind Kafka, kafka://…: a cluster where topics may be made
    #[arg(long, value_name = "URL", conflicts_with = "server")]
    kafka: Option<String>,
    /// Behind RabbitMQ, amqp://…: a virtual host where exchanges and queues may be made
    #[arg(long, value_name = "URL", conflicts_with = "server")]
    rabbitmq: Option<String>,
}

impl BackendArgs {
    /// The same with nothing but what a scenario is about, by what it says of store and log.
    ///
    /// # Errors
    /// What is missing, or given for nothing.
    pub(super) fn chosen(&self, store: Option<&str>, log: Option<&str>) -> anyhow::Result<Self> {
        let [postgres, cql] = STORE.choose(store, [self.postgres(), self.cql()])?;
        let [kafka, rabbitmq] = LOG.choose(log, [self.kafka(), self.rabbitmq()])?;
        Ok(Self { postgres, cql, kafka, rabbitmq, ..self.clone() })
    }

    /// What servers store in, once it is [chosen](Self::chosen).
    pub(super) fn store(&self) -> &'static str {
        name_in(&STORE, [self.postgres(), self.cql()])
    }

    pub(super) fn log(&self) -> &'static str {
        name_in(&LOG, [self.kafka(), self.rabbitmq()])
    }

    /// Where data of servers go.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn postgres(&self) -> Option<&str> {
        self.postgres.as_deref()
    }

    pub(super) fn cql(&self) -> Option<&str> {
        self.cql.as_deref()
    }

    pub(super) fn kafka(&self) -> Option<&str> {
        self.kafka.as_deref()
    }

    pub(super) fn rabbitmq(&self) -> Option<&str> {
        self.rabbitmq.as_deref()
    }

    /// What servers are started on.
    pub(super) fn urls(&self) -> impl Iterator<Item = &str> {
        [self.postgres(), self.cql(), self.kafka(), self.rabbitmq()].into_iter().flatten()
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
        let is_shared = self.postgres.is_some() || self.cql.is_some();
        ensure!(
            count == 1 || is_shared,
            "servers = {count} need a store that they share: give --postgres URL, or --cql URL"
        );
        ensure!(
            self.cql.is_none() || self.kafka.is_some(),
            "store = \"scylla\" needs Kafka as the log: give --kafka URL"
        );
        ensure!(
            self.kafka.is_none() || is_shared,
            "log = \"kafka\" needs a store that servers share: give --postgres URL, or --cql URL"
        );
        // Else its topics would stay.
        ensure!(
            self.kafka().is_none_or(|url| !url.contains('@')),
            "--kafka: topics of measurements can be removed only where Kafka asks for no password"
        );
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
            let pids = crate::host::sample::database_pids(url).await?;
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
        let (cores, limits) = (measurement.placement()?, measurement.limits()?);
        let store = SharedStore::make(self).await?;
        let placed = Placed { measurement, cores, limits, store, log: SharedLog::of(self, measurement) };
        let worked = self.on_database(&placed, work).await;
        let Placed { store, log, .. } = placed;
        // Both, whatever becomes of the other.
        let removed = [log.remove().await, store.remove().await];
        // Why it did not work comes first: what was never made cannot be removed.
        worked.and_then(|result| removed.into_iter().collect::<anyhow::Result<()>>().map(|()| result))
    }

    /// What a reader of figures must know of a store whose processes cannot be seen from here.
    pub(super) fn unseen_database(&self) -> Option<String> {
        let is_seen = processes_at(self.cql()?).is_some_and(|pids| !pids.is_empty());
        let note = "the processes of --cql run elsewhere, or cannot be seen: processors, costs and headroom leave them out";
        (!is_seen).then(|| note.to_owned())
    }

    /// The processes of the brokers that run on this machine.
    pub(super) fn broker_pids(&self) -> Vec<u32> {
        self.kafka().or(self.rabbitmq()).map(each_at).unwrap_or_default()
    }

    #[cfg(feature = "postgres")]
    async fn on_database(
        &self,
        placed: &Placed<'_>,
        work: impl AsyncFnOnce(&[Server], Option<&str>) -> anyhow::Result<Measured>,
    ) -> anyhow::Result<Measured> {
        let SharedStore::Database(database) = &placed.store else { return self.serve(placed, work).await };
        let (_pinned, group) = placed.confine_database(&database.url).await?;
        let served = self.serve(placed, work).await;
        explained(served, DATABASE_KILLED, &[group], Measured::with_fault)
    }

    #[cfg(not(feature = "postgres"))]
    async fn on_database(
        &self,
        placed: &Placed<'_>,
        work: impl AsyncFnOnce(&[Server], Option<&str>) -> anyhow::Result<Measured>,
    ) -> anyhow::Result<Measured> {
        self.serve(placed, work).await
    }

    async fn serve(
        &self,
        placed: &Placed<'_>,
        work: impl AsyncFnOnce(&[Server], Option<&str>) -> anyhow::Result<Measured>,
    ) -> anyhow::Result<Measured> {
        let program = self.program.clone().map_or_else(std::env::current_exe, Ok)?;
        let dir = scratch("hubbub-run-", &self.dir)?;
        // Groups can go when nothing runs in them any more: after the servers.
        let (mut groups, mut servers) = (Vec::new(), Vec::new());
        for index in 0..placed.measurement.servers()? {
            let data = dir.path().join(format!("data-{index}"));
            let group = Group::make(&format!("server-{index}"), &placed.limits.server, dir.path())?;
            let started = placed.start(&program, &data, &group).await;
            groups.push(group);
            servers.push(explained(started, SERVER_KILLED, &groups, |server, _| server)?);
        }
        let worked = work(&servers, placed.store.url()).await;
        let result = explained(worked, SERVER_KILLED, &groups, Measured::with_fault);
        for server in servers {
            server.kill().await?;
        }
        result
    }
}

/// The name of the kind whose URL there is.
fn name_in(part: &Part, urls: [Option<&str>; 2]) -> &'static str {
    let kind = part.kinds.iter().zip(urls).find(|(_, url)| url.is_some());
    kind.map_or(part.own, |(kind, _)| kind.name)
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

/// A measurement, what its servers share, where its parts may run, and how much of the machine they get.
struct Placed<'m> {
    measurement: &'m Measurement,
    store: SharedStore,
    log: SharedLog,
    cores: Placement,
    limits: PartLimits,
}

impl Placed<'_> {
    async fn start(&self, program: &Path, data: &Path, group: &Group) -> anyhow::Result<Server> {
        // What this thread starts inherits where it may run.
        let _pinned = self.cores.server.as_ref().map(Pinned::thread).transpose()?;
        let (usual, own) = (self.store.settings(), self.log.settings());
        let [usual, own] =
            [&usual, &own].map(|settings| settings.iter().map(|(key, value)| (*key, &**value)));
        // The last one counts.
        let settings = usual.chain(self.measurement.settings()).chain(own);
        let engines = Engines { store: self.store.url(), log: self.log.url() };
        Server::configured(program, data, settings, engines, group).await
    }
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
        let pids = crate::host::sample::database_pids(url).await?;
        let mut group = Group::make("database", limits, &directory_of(&pids)?)?;
        group.take(&pids)?;
        // Those that were started while the first one was moved.
        group.take(&crate::host::sample::database_pids(url).await?)?;
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

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::fd::OwnedFd;
    use std::process::{Command, Stdio};

    use serde_json::json;

    use super::super::RunArgs;
    use super::*;
    use crate::options::arguments;

    #[test]
    fn all_brokers_of_a_cluster_are_known_and_each_once() {
        let pids = |line: &[&str]| {
            let args = arguments::<RunArgs>("run", &[&["x"], line].concat()).unwrap();
            args.backends.broker_pids()
        };
        let [own, other] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [at, other_at] = [&own, &other].map(|listener| listener.local_addr().unwrap());
        // Another process listens in place of this one.
        let other = Stdio::from(OwnedFd::from(other));
        let mut other = Command::new("sleep").arg("60").stdin(other).spawn().unwrap();
        let found = pids(&["--kafka", &format!("kafka://{at},192.0.2.1:1,{other_at},{at}")]);
        let single = pids(&["--rabbitmq", &format!("amqp://{other_at}")]);
        let mut both = [std::process::id(), other.id()];
        both.sort_unstable();
        other.kill().unwrap();
        other.wait().unwrap();
        assert_eq!((found, single), (both.to_vec(), vec![other.id()]));
        assert!(pids(&[]).is_empty(), "there is none");
    }

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
