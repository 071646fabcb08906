//! Where samples come from: servers, broker, database, and the `/proc` of this machine.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

#[cfg(feature = "postgres")]
use anyhow::Context as _;

use super::disks::disks;
use super::network::network;
#[cfg(feature = "postgres")]
use super::processes::is_of;
use super::processes::{BEAM, POSTGRES, Watched, cores, pids_named};
use super::raw::Raw;
#[cfg(feature = "postgres")]
use super::{DATABASE_CORES, LOCK_WAITS};
use crate::client::Targets;
use crate::host::background_load::processes_at;
use crate::load::run::Run;
use crate::options::Common;
use crate::workloads::engine::Setup;
use crate::workloads::persist::PersistArgs;

/// Where to ask; nothing is asked where nothing is known.
pub(crate) struct Source {
    targets: Option<Targets>,
    watched: Arc<Watched>,
    /// What was given of it and is not there.
    unseen: Vec<String>,
    /// Whose messages are counted as published.
    run: Option<Arc<Run>>,
    /// A channel, and the queues whose messages are counted.
    #[cfg(feature = "amqp")]
    broker: Option<(lapin::Channel, Vec<String>)>,
    #[cfg(feature = "postgres")]
    database: Option<tokio_postgres::Client>,
}

#[cfg(feature = "postgres")]
const DATABASE: &str = "select d.xact_commit, d.blks_hit, d.blks_read, d.numbackends, \
     pg_database_size(d.datname), w.wal_bytes::float8, w.wal_sync, \
     (select count(*) from pg_stat_activity a where a.datname = d.datname and a.wait_event_type = 'Lock') \
     from pg_stat_database d, pg_stat_wal w where d.datname = current_database()";

/// The process of a database that started all others, if it runs here.
#[cfg(feature = "postgres")]
async fn main_process(client: &tokio_postgres::Client) -> anyhow::Result<Option<u32>> {
    let pid: i32 = client.query_one("select pg_backend_pid()", &[]).await?.get(0);
    let pid = u32::try_from(pid).ok().filter(|pid| pids_named(POSTGRES).contains(pid));
    Ok(pid.and_then(crate::host::machine::parent))
}

/// The processes of a database; none if it runs elsewhere.
#[cfg(feature = "postgres")]
pub(crate) async fn database_pids(url: &str) -> anyhow::Result<Vec<u32>> {
    let client = crate::experiments::limits::postgres::connect(url).await?;
    let Some(main) = main_process(&client).await? else { return Ok(Vec::new()) };
    Ok(pids_named(POSTGRES).into_iter().filter(|pid| is_of(*pid, main)).collect())
}

/// The processes of a Cassandra or ScyllaDB that runs here: it is known by its address only, as nobody asks it.
fn cql_pids(common: &Common) -> Vec<u32> {
    let url = common.database.as_deref().filter(|url| url.starts_with("scylla"));
    url.and_then(processes_at).unwrap_or_default()
}

/// What the processes that are watched are called: those that are given, and those of a PostgreSQL, and of a RabbitMQ, that are
/// measured. To search for others among all processes would take time from what is measured, and they would count for its price.
fn watched_names(common: &Common, has_rabbitmq: bool) -> Vec<String> {
    let has_postgres = common.database.as_ref().is_some_and(|url| url.starts_with("postgres"));
    let usual = [(POSTGRES, has_postgres), (BEAM, has_postgres || has_rabbitmq)];
    let usual = usual.into_iter().filter(|(_, is_measured)| *is_measured).map(|(name, _)| name);
    let mut names: Vec<String> = Vec::new();
    for name in common.watch.iter().map(String::as_str).chain(usual) {
        if !names.iter().any(|other| other == name) {
            names.push(name.to_owned());
        }
    }
    names
}

/// Whether a process of this name, or id, is there.
fn is_there(name: &str) -> bool {
    pids_named(name).into_iter().any(|pid| crate::host::machine::status(pid).is_some())
}

impl Source {
    /// Servers, database and processes of a run whose load these processes send.
    pub(crate) async fn open(setup: &Setup, generator_pids: Vec<u32>) -> anyhow::Result<Self> {
        let common = &setup.common;
        #[cfg(feature = "postgres")]
        let database = match common.database.as_deref().filter(|url| url.starts_with("postgres")) {
            Some(url) => {
                let connecting = crate::experiments::limits::postgres::connect(url).await;
                Some(connecting.context("the database given by --database cannot be reached")?)
            }
            None => None,
        };
        let database_pids = cql_pids(common);
        let names = watched_names(common, false);
        let unseen = common.watch.iter().filter(|name| !is_there(name)).cloned().collect();
        #[cfg(feature = "postgres")]
        let database_pid = match &database {
            Some(client) => main_process(client).await?,
            None => None,
        };
        #[cfg(not(feature = "postgres"))]
        let database_pid = None;
        let (server_pids, broker_pids) = (common.server_pid.clone(), common.broker_pid.clone());
        let known_pids = [&generator_pids[..], &server_pids, &broker_pids, &database_pids].concat();
        let watched = Watched {
            generator_pids,
            server_pids,
            broker_pids,
            names,
            database_pid,
            database_pids,
            known_pids,
        };
        Ok(Self {
            targets: Some(setup.targets.clone()),
            watched: Arc::new(watched),
            unseen,
            run: None,
            #[cfg(feature = "amqp")]
            broker: None,
            #[cfg(feature = "postgres")]
            database,
        })
    }

    /// The same for messages that are persisted, with what is published and what waits in the broker.
    pub(crate) async fn of_persisting(
        args: &PersistArgs,
        setup: &Setup,
        run: Arc<Run>,
    ) -> anyhow::Result<Self> {
        let mut source = Self::open(setup, vec![std::process::id()]).await?;
        source.targets = source.targets.filter(|_| !args.fill);
        let names = watched_names(&setup.common, args.broker().is_some());
        source.watched = Arc::new(Watched { names, ..Watched::clone(&source.watched) });
        source.run = Some(run);
        #[cfg(feature = "amqp")]
        if let Some(url) = args.broker() {
            let channel = crate::workloads::persist::amqp::connect(url).await?.create_channel().await?;
            source.broker = Some((channel, args.queues.clone()));
        }
        Ok(source)
    }

    /// What is to be known of processes that were given and are not there.
    pub(crate) fn notes(&self) -> impl Iterator<Item = String> {
        let note = |name: &String| {
            format!("--watch: there is no process called {name} on this machine, or none that is seen")
        };
        self.unseen.iter().map(note)
    }

    /// Everything now; `begun` is when samples count from.
    pub(super) async fn sample(&self, begun: Instant) -> Raw {
        let mut raw = Raw::default();
        if let Some(run) = &self.run {
            let published = run.counts.accepted.load(Ordering::Relaxed);
            raw.counters.insert("published/s".into(), published as f64);
        }
        if let Some(targets) = &self.targets
            && let Ok(metrics) = targets.metrics().await
        {
            raw.take(&metrics);
        }
        #[cfg(feature = "amqp")]
        if let Some((channel, queues)) = &self.broker {
            let mut waiting = Some(0);
            for queue in queues {
                let depth = crate::workloads::persist::amqp::depth(channel, queue).await.ok();
                waiting = waiting.zip(depth).map(|(all, one)| all + one);
            }
            raw.figures.extend(waiting.map(|count| ("in the broker".to_owned(), count as f64)));
        }
        #[cfg(feature = "postgres")]
        if let Some(client) = &self.database
            && let Ok(row) = client.query_one(DATABASE, &[]).await
        {
            let [commits, hit, blocks_read] = [0, 1, 2].map(|index| row.get::<_, i64>(index) as f64);
            raw.counters.insert("commits/s".into(), commits);
            raw.counters.insert("WAL MB/s".into(), row.get::<_, f64>(5) / 1e6);
            raw.counters.insert("WAL syncs/s".into(), row.get::<_, i64>(6) as f64);
            raw.counters.insert("blocks read/s".into(), blocks_read);
            raw.figures.insert("connections".into(), f64::from(row.get::<_, i32>(3)));
            raw.figures.insert(LOCK_WAITS.into(), row.get::<_, i64>(7) as f64);
            raw.figures.extend(
                self.watched
                    .database_pid
                    .map(|pid| (DATABASE_CORES.to_owned(), crate::host::machine::may_use(pid))),
            );
            raw.figures.insert("database MB".into(), row.get::<_, i64>(4) as f64 / 1e6);
            raw.ratios.insert("cache hits %".into(), (100.0 * hit, hit + blocks_read));
        }
        // Hundreds of small files: whoever measures latencies on this thread does not wait for them.
        let watched = Arc::clone(&self.watched);
        let reading = tokio::task::spawn_blocking(move || {
            watched.sample(&mut raw);
            cores(&mut raw);
            disks(&mut raw);
            network(&mut raw);
            raw.at_s = begun.elapsed().as_secs_f64();
            raw
        });
        reading.await.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::host::sample::{DATABASE_CORES, samples_csv};

    #[tokio::test]
    async fn this_process_is_seen() {
        let own = std::process::id();
        let (server_pids, database_pids, names) = (vec![own], vec![own], vec![own.to_string()]);
        let source = Source {
            targets: None,
            watched: Arc::new(Watched {
                generator_pids: vec![own],
                server_pids,
                database_pids,
                names,
                ..Watched::default()
            }),
            unseen: Vec::new(),
            run: None,
            #[cfg(feature = "amqp")]
            broker: None,
            #[cfg(feature = "postgres")]
            database: None,
        };
        let begun = Instant::now();
        let before = source.sample(begun).await;
        let busy = Instant::now();
        while busy.elapsed() < Duration::from_millis(20) {
            std::hint::spin_loop();
        }
        let after = source.sample(begun).await;
        let sample = after.since(&before);
        let value = |name: &str| sample.values.get(name).map(|value| value.mean());
        assert!(value(DATABASE_CORES).is_some_and(|cores| cores > 0.0), "{sample:?}");
        for who in ["generator", "server", "database", &own.to_string()] {
            assert!(value(&format!("{who} MiB")).is_some_and(|mib| mib > 0.0), "{sample:?}");
            for what in ["CPU", "run-queue delay ms/s", "voluntary switches/s", "involuntary switches/s"] {
                assert!(
                    value(&format!("{who} {what}")).is_some_and(|rate| rate >= 0.0),
                    "{who} {what}: {sample:?}"
                );
            }
            let hottest = format!("{who} hottest thread %");
            assert!(value(&hottest).is_some_and(|percent| percent > 0.0), "{sample:?}");
            assert!(sample.busiest.get(&hottest).is_some_and(|name| !name.is_empty()), "{sample:?}");
        }
        let cores =
            sample.values.keys().filter(|name| name.starts_with("core ") && name.ends_with(" busy %"));
        assert!(cores.count() > 0 && value("TCP retransmits/s").is_some(), "{sample:?}");
        assert_eq!((value("stored/s"), value("postgres CPU")), (None, None), "nobody was asked");
        let csv = samples_csv(&[sample]);
        let columns: Vec<usize> = csv.lines().map(|line| line.split(',').count()).collect();
        assert!(columns.len() == 2 && columns[0] == columns[1] && columns[0] > 10, "{csv}");
    }

    fn common(line: &[&str]) -> Common {
        crate::options::arguments("common", line).unwrap()
    }

    #[test]
    fn what_is_given_is_watched_and_the_usual_only_where_it_is_measured() {
        let names = |line: &[&str], has_rabbitmq| watched_names(&common(line), has_rabbitmq).join(" ");
        let (none, postgres) = (["--database", "none"], ["--database", "postgres://localhost/x"]);
        assert_eq!((names(&none, false), names(&none, true)), (String::new(), "beam".to_owned()));
        assert_eq!(names(&postgres, false), "postgres beam");
        let given = ["--watch", "nginx,postgres"];
        assert_eq!(names(&[none, given].concat(), false), "nginx postgres", "somebody wants to see it");
        assert_eq!(names(&[postgres, given].concat(), true), "nginx postgres beam");
    }

    #[tokio::test]
    async fn known_processes_are_left_out_of_a_name_and_others_are_not() {
        let other = std::process::Command::new("sleep").arg("60").spawn();
        let mut other = other.unwrap();
        let names = vec![std::process::id().to_string(), other.id().to_string()];
        let watched = Watched { known_pids: vec![std::process::id()], names, ..Watched::default() };
        let mut raw = Raw::default();
        watched.sample(&mut raw);
        let is_seen = |pid: u32| raw.figures.contains_key(&format!("{pid} processes"));
        assert_eq!((is_seen(std::process::id()), is_seen(other.id())), (false, true));

        let given = format!("{},no such thing,{}", other.id(), u32::MAX);
        let target = crate::client::Target::parse("127.0.0.1:1").unwrap();
        let setup = Setup::new(common(&["--database", "none", "--watch", &given]), target.into());
        let notes: Vec<String> = Source::open(&setup, Vec::new()).await.unwrap().notes().collect();
        let said = |name: &str| {
            format!("--watch: there is no process called {name} on this machine, or none that is seen")
        };
        assert_eq!(notes, [said("no such thing"), said(&u32::MAX.to_string())]);
        other.kill().unwrap();
        other.wait().unwrap();
    }

    #[test]
    fn a_database_that_is_known_by_its_address_is_watched() {
        let database = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = database.local_addr().unwrap();
        let pids = |url: &str| {
            let line = ["--database", url];
            cql_pids(&common(&line))
        };
        assert_eq!(pids(&format!("scylla://{address}/keyspace")), [std::process::id()]);
        for url in ["none", "scylla://192.0.2.1/keyspace", &format!("postgres://{address}/name")] {
            assert!(pids(url).is_empty(), "{url}");
        }
    }
}
