//! Processor time, waiting, context switches and memory of processes and their threads, and of the processors, from `/proc`.

use std::fs;

use super::DATABASE_CORES;
use super::raw::{Named, Raw};
use super::threads::{Thread, threads};
use crate::host::machine::{core_seconds, may_use, number_in, process_seconds, status};

/// The load generator and the servers as samples name them, and how they name the processors that a process used.
pub(crate) const GENERATOR: &str = "generator";
pub(crate) const SERVER: &str = "server";
pub(crate) const CPU: &str = "CPU";

/// What the server has threads for, by their names: those that serve sockets and drive the database, those of the broker's
/// client, and those that commit, seal and merge.
pub(crate) const WORKERS: &str = "workers";
pub(crate) const LOG: &str = "log";
pub(crate) const COMMIT: &str = "commit";

fn thread_group(name: &str) -> &'static str {
    match name {
        _ if name.starts_with("tokio") => WORKERS,
        _ if name.starts_with("rdk") || name.starts_with("kafka-") => LOG,
        _ => COMMIT,
    }
}

/// What samples call the processes of a database that is known by its address only.
pub(crate) const DATABASE: &str = "database";
/// The processors that it used.
pub(crate) const DATABASE_CPU: &str = "database CPU";

/// What the processes of PostgreSQL are called.
pub(crate) const POSTGRES: &str = "postgres";
/// What the process of RabbitMQ is called.
pub(super) const BEAM: &str = "beam";

/// The processes that are looked at.
#[derive(Debug, Clone, Default)]
pub(super) struct Watched {
    /// What sends the load: this process, or agents and their runs.
    pub(super) generator_pids: Vec<u32>,
    pub(super) server_pids: Vec<u32>,
    /// Those of the brokers that run here.
    pub(super) broker_pids: Vec<u32>,
    /// Names of processes to sample besides the server and this one.
    pub(super) names: Vec<String>,
    /// The process that started those of the database, if it runs here.
    pub(super) database_pid: Option<u32>,
    /// Processes of a database that is known by its address only, if they run here.
    pub(super) database_pids: Vec<u32>,
    /// Processes that count otherwise: they are left out of those that have a name, so that nothing counts twice.
    pub(super) known_pids: Vec<u32>,
}

impl Watched {
    /// All servers together, all that send, all brokers, and all processes whose names begin as `names` say.
    pub(super) fn sample(&self, raw: &mut Raw) {
        add_processes(GENERATOR, &self.generator_pids, raw);
        add_processes("broker", &self.broker_pids, raw);
        add_processes(DATABASE, &self.database_pids, raw);
        let may_use = self.database_pids.iter().map(|pid| may_use(*pid)).reduce(f64::max);
        raw.figures.extend(may_use.map(|cores| (DATABASE_CORES.to_owned(), cores)));
        for thread in add_processes(SERVER, &self.server_pids, raw).into_iter().flatten() {
            let group = format!("{SERVER} {} {CPU}", thread_group(&thread.name));
            raw.by_id.entry(group).or_default().insert(thread.id, thread.run_s);
        }
        for name in &self.names {
            let own = self.database_pid.filter(|_| name == POSTGRES);
            let is_counted =
                |pid: &u32| !self.known_pids.contains(pid) && own.is_none_or(|main| is_of(*pid, main));
            let pids: Vec<u32> = pids_named(name).into_iter().filter(is_counted).collect();
            add_processes(name, &pids, raw);
            if !pids.is_empty() {
                raw.figures.insert(format!("{name} processes"), pids.len() as f64);
            }
        }
    }
}

/// Adds some processes as one. Their memory is what each has alone and, once, the most that one of them has touched of what
/// they share: a database's buffers. Returns their threads, if they are not too many.
fn add_processes(shown: &str, pids: &[u32], raw: &mut Raw) -> Option<Vec<Thread>> {
    let seconds = pids.iter().filter_map(|pid| Some((*pid, process_seconds(*pid)?)));
    raw.count_each(format!("{shown} {CPU}"), seconds);
    let statuses: Vec<String> = pids.iter().filter_map(|pid| status(*pid)).collect();
    let kib = |name| statuses.iter().filter_map(move |status| number_in(status, name));
    if let Some(own) = kib("RssAnon").reduce(|all, one| all + one) {
        let shared = kib("RssShmem").max().unwrap_or(0);
        raw.figures.insert(format!("{shown} MiB"), (own + shared) as f64 / 1024.0);
    }
    let threads = threads(pids)?;
    add_threads(shown, &threads, raw);
    Some(threads)
}

fn add_threads(shown: &str, threads: &[Thread], raw: &mut Raw) {
    let mut count = |what: &str, of: fn(&Thread) -> Option<f64>| {
        let counts = threads.iter().filter_map(|thread| Some((thread.id, of(thread)?)));
        raw.count_each(format!("{shown} {what}"), counts);
    };
    count("run-queue delay ms/s", |thread| thread.waited_s.map(|seconds| 1e3 * seconds));
    count("voluntary switches/s", |thread| thread.voluntary);
    count("involuntary switches/s", |thread| thread.involuntary);
    let hottest = threads.iter().map(|thread| {
        (thread.id.to_string(), Named { name: thread.name.clone(), count: 100.0 * thread.run_s })
    });
    raw.busiest.insert(format!("{shown} hottest thread %"), hottest.collect());
}

/// How busy each processor is, and how much of it the hypervisor takes away, in percent.
pub(super) fn cores(raw: &mut Raw) {
    for core in core_seconds() {
        let mut count = |what: &str, seconds: f64| {
            raw.count(format!("core {} {what} %", core.core), Some(100.0 * seconds))
        };
        count("busy", core.busy_s);
        count("stolen", core.stolen_s);
    }
}

/// Whether it is the process `main`, or was started by it.
pub(super) fn is_of(pid: u32, main: u32) -> bool {
    pid == main || crate::host::machine::parent(pid) == Some(main)
}

/// Processes whose names begin so, or the one of this id.
pub(super) fn pids_named(name: &str) -> Vec<u32> {
    if let Ok(pid) = name.parse() {
        return vec![pid];
    }
    let is_named = |pid: &u32| {
        let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        comm.trim_end().starts_with(name)
    };
    crate::host::process_tree::ids().into_iter().filter(is_named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_told_apart_by_what_they_do() {
        for (name, group) in [
            ("tokio-rt-worker", WORKERS),
            ("tokio-runtime-w", WORKERS),
            ("rdk:broker1", LOG),
            ("kafka-producer", LOG),
            ("commit", COMMIT),
            ("hubbub-seal", COMMIT),
        ] {
            assert_eq!(thread_group(name), group, "{name}");
        }
    }

    #[test]
    fn threads_that_say_nothing_leave_nothing() {
        let thread = |id, run_s| Thread {
            id,
            name: format!("t{id}"),
            run_s,
            waited_s: None,
            voluntary: Some(3.0),
            involuntary: None,
        };
        let mut raw = Raw::default();
        add_threads("server", &[thread(1, 0.5), thread(2, 0.25)], &mut raw);
        let mut later = Raw { at_s: 1.0, ..Raw::default() };
        add_threads("server", &[thread(1, 0.75), thread(2, 1.0)], &mut later);
        let sample = later.since(&raw);
        let shown: Vec<(&str, f64)> =
            sample.values.iter().map(|(name, value)| (&**name, value.mean())).collect();
        assert_eq!(shown, [("server hottest thread %", 75.0), ("server voluntary switches/s", 0.0)]);
        assert_eq!(sample.busiest["server hottest thread %"], "t2");
        let mut none = Raw::default();
        assert_eq!(add_processes("server", &[u32::MAX], &mut none), Some(Vec::new()));
        let figures = (none.figures.len(), none.by_id.len(), none.counters.len());
        assert_eq!(figures, (0, 0, 0), "a process that has ended: {none:?}");
        assert!(Raw::default().since(&none).values.is_empty());
    }
}
