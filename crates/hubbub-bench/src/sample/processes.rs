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
    let is_named = |pid: &u32| {
        let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        comm.trim_end().starts_with(name)
    };
    crate::process_tree::ids().into_iter().filter(is_named).collect()
}

/// Writes finished and bytes written on all whole disks.
pub(super) fn disk() -> Option<(f64, f64)> {
    Some(written(&fs::read_to_string("/proc/diskstats").ok()?))
}

/// Devices whose writes go to other devices, where they are counted, or to memory.
const STACKED_OR_VIRTUAL: [&str; 7] = ["dm-", "md", "zram", "loop", "ram", "bcache", "drbd"];

/// The same from the text of `/proc/diskstats`.
fn written(stats: &str) -> (f64, f64) {
    let devices: Vec<Vec<&str>> = stats.lines().map(|line| line.split_whitespace().collect()).collect();
    let name = |fields: &[&'_ str]| fields.get(2).map(ToString::to_string).unwrap_or_default();
    let names: Vec<String> = devices.iter().map(|fields| name(fields)).collect();
    let (mut writes, mut bytes) = (0.0, 0.0);
    for (fields, name) in devices.iter().zip(&names) {
        let is_stacked = STACKED_OR_VIRTUAL.iter().any(|kind| name.starts_with(kind));
        // Parts of a disk are counted with it.
        if is_stacked || names.iter().any(|disk| is_partition(name, disk)) {
            continue;
        }
        let field = |index: usize| fields.get(index).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
        writes += field(7);
        bytes += field(9) * 512.0;
    }
    (writes, bytes)
}

/// By the names that Linux gives: `sda1` is one of `sda`, `nvme0n1p2` one of `nvme0n1`.
fn is_partition(name: &str, disk: &str) -> bool {
    let number = name.strip_prefix(disk).and_then(|rest| {
        if disk.ends_with(|last: char| last.is_ascii_digit()) { rest.strip_prefix('p') } else { Some(rest) }
    });
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
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
    fn bytes_are_counted_once_and_only_those_of_disks() {
        let one = |name: &str, writes: u32, sectors: u32| {
            format!(" 8 0 {name} 1 2 3 4 {writes} 6 {sectors} 8 0 0 0\n")
        };
        let whole = [
            ("sda", 10, 100),
            ("sdaa", 20, 200),
            ("nvme0n1", 40, 400),
            ("nvme0n10", 80, 800),
            ("mmcblk0", 160, 1_600),
        ];
        let skipped = [
            "sda1",
            "sda12",
            "sdaa3",
            "nvme0n1p1",
            "nvme0n10p2",
            "mmcblk0p1",
            "dm-0",
            "md0",
            "md127",
            "zram0",
            "loop3",
            "ram0",
        ];
        let mut text: String = whole.map(|(name, writes, sectors)| one(name, writes, sectors)).concat();
        assert_eq!(written(&text), (310.0, 3_100.0 * 512.0));
        text.extend(skipped.map(|name| one(name, 7, 70)));
        assert_eq!(written(&text), (310.0, 3_100.0 * 512.0));
        // A container may see a part alone.
        assert_eq!(written(&one("vda1", 7, 70)), (7.0, 70.0 * 512.0));
        assert_eq!(written("\n8 0\n"), (0.0, 0.0));
    }
}
