//! Processor time and memory of processes and their threads, and what disks do, from `/proc`.

use std::collections::BTreeMap;
use std::fs;

use super::{Raw, Source};

/// Processor time and memory of all servers together, of this process, and of all processes whose names begin as `names` say. The
/// memory of several is what each has alone and, once, the most that one of them has touched of what they share: a
/// database's buffers.
pub(super) fn processes(source: &Source, raw: &mut Raw) {
    let Source { server_pids, broker_pid, names, database_pid, .. } = source;
    let once = [(GENERATOR, Some(std::process::id())), ("broker", *broker_pid)];
    let once = once.into_iter().filter_map(|(shown, pid)| Some((shown, pid?)));
    for (shown, pid) in once.chain(server_pids.iter().map(|pid| (SERVER, *pid))) {
        if let Some(cpu) = crate::machine::process_seconds(pid) {
            *raw.counters.entry(format!("{shown} {CPU}")).or_default() += cpu;
        }
        if let Some(kib) = crate::machine::rss_anon_kib(pid) {
            *raw.figures.entry(format!("{shown} MiB")).or_default() += kib as f64 / 1024.0;
        }
    }
    for thread in server_pids.iter().flat_map(|pid| crate::machine::threads(*pid)) {
        let group = raw.seconds.entry(format!("{SERVER} {} {CPU}", thread_group(&thread.name))).or_default();
        group.insert(thread.id, thread.seconds);
    }
    for name in names {
        let (mut seconds, mut kib, mut shared_kib, mut count) = (BTreeMap::new(), 0, 0, 0);
        let own = database_pid.filter(|_| name == POSTGRES);
        for pid in pids_named(name).into_iter().filter(|pid| own.is_none_or(|main| is_of(*pid, main))) {
            seconds.extend(crate::machine::process_seconds(pid).map(|used| (pid, used)));
            kib += crate::machine::rss_anon_kib(pid).unwrap_or(0);
            shared_kib = crate::machine::memory_kib(pid, "RssShmem").unwrap_or(0).max(shared_kib);
            count += 1;
        }
        if count > 0 {
            raw.seconds.insert(format!("{name} {CPU}"), seconds);
            raw.figures.insert(format!("{name} MiB"), (kib + shared_kib) as f64 / 1024.0);
            raw.figures.insert(format!("{name} processes"), f64::from(count));
        }
    }
}

/// The load generator and the servers as looks call them, and what they call the processors that a process used.
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

/// What the processes of PostgreSQL are called.
pub(super) const POSTGRES: &str = "postgres";
/// Processes of databases and brokers that are looked at when nothing is said.
pub(crate) const USUAL: [&str; 2] = [POSTGRES, "beam"];

/// Whether it is the process `main`, or was started by it.
pub(super) fn is_of(pid: u32, main: u32) -> bool {
    pid == main || crate::machine::parent(pid) == Some(main)
}

/// Processes whose names begin so, or the one of this id.
pub(super) fn pids_named(name: &str) -> Vec<u32> {
    if let Ok(pid) = name.parse() {
        return vec![pid];
    }
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        comm.trim_end().starts_with(name)
    })
    .collect()
}

/// Writes finished and bytes written on all whole disks.
pub(super) fn disk() -> Option<(f64, f64)> {
    let stats = fs::read_to_string("/proc/diskstats").ok()?;
    let (mut writes, mut bytes) = (0.0, 0.0);
    for line in stats.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let Some(name) = fields.get(2) else { continue };
        // Parts of a disk are counted with it.
        if name.starts_with("loop") || !fs::exists(format!("/sys/block/{name}")).unwrap_or(false) {
            continue;
        }
        let field = |index: usize| fields.get(index).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
        writes += field(7);
        bytes += field(9) * 512.0;
    }
    Some((writes, bytes))
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
}
