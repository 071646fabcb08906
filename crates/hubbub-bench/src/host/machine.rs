//! What this machine is and what its processors do, from `/proc`. Where that is missing the answers are empty.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use hubbub_core::invariant::saturate;
use hubbub_core::{Clock, Timestamp};
use serde::Serialize;
use tempfile::TempDir;

use crate::host::lab::cgroup;

pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_micros(saturate(since.as_micros()))
}

/// The machine's clocks, for what must be handed one.
#[derive(Debug)]
pub(crate) struct SystemClock {
    started: Instant,
}

impl SystemClock {
    /// A clock whose durations count from now.
    pub(crate) fn new() -> Self {
        Self { started: Instant::now() }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        now()
    }

    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }
}

/// A directory in `dir` that goes when nobody holds it any more.
pub(crate) fn scratch(prefix: &str, dir: &Path) -> anyhow::Result<TempDir> {
    let made = tempfile::Builder::new().prefix(prefix).tempdir_in(dir);
    made.with_context(|| format!("cannot make a directory in {}", dir.display()))
}

/// Random enough to tell runs apart.
pub(crate) fn seed() -> u64 {
    now().as_micros().unsigned_abs().wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ u64::from(std::process::id())
}

#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Machine {
    cpu: String,
    cores: usize,
    memory_mib: u64,
    kernel: String,
}

impl Machine {
    pub(crate) fn look() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            cpu: field(&cpuinfo, "model name").unwrap_or("unknown").to_owned(),
            cores: cores(),
            memory_mib: number_in(&meminfo, "MemTotal").unwrap_or(0) / 1024,
            kernel: kernel.trim().to_owned(),
        }
    }
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} × {}, {} MiB, Linux {}", self.cores, self.cpu, self.memory_mib, self.kernel)
    }
}

pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Processors of the whole machine, whichever of them this process may use.
pub(crate) fn all_cores() -> usize {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    match core_lines(&stat).count() {
        0 => cores(),
        count => count,
    }
}

/// A field of a file of `/proc` that has a name and a value in each line.
pub(crate) fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim())
}

/// The number that such a field begins with.
pub(crate) fn number_in(text: &str, name: &str) -> Option<u64> {
    field(text, name)?.split_whitespace().next()?.parse().ok()
}

/// Anonymous memory of a process, in KiB.
pub(crate) fn rss_anon_kib(pid: u32) -> Option<u64> {
    memory_kib(pid, "RssAnon")
}

/// Memory of a process in KiB, by its name in `/proc/PID/status`.
pub(crate) fn memory_kib(pid: u32, name: &str) -> Option<u64> {
    number_in(&status(pid)?, name)
}

/// The process that started another.
pub(crate) fn parent(pid: u32) -> Option<u32> {
    field(&status(pid)?, "PPid")?.parse().ok()
}

/// The `status` of a process.
pub(crate) fn status(pid: u32) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/status")).ok()
}

/// Linux counts processor time in hundredths of a second for its users.
const TICKS_PER_SECOND: f64 = 100.0;

/// Processor time used by this process, a server and the whole machine, since some moment.
#[derive(Debug, Clone)]
pub(crate) struct CpuMark {
    at: Instant,
    own_s: f64,
    /// By each server, by its process; `None` where that is gone.
    servers_s: BTreeMap<u32, Option<f64>>,
    busy_s: f64,
    stolen_s: f64,
}

impl CpuMark {
    pub(crate) fn now(server_pids: &[u32]) -> Self {
        let (busy_s, stolen_s) = machine_seconds().unwrap_or_default();
        Self {
            at: Instant::now(),
            own_s: process_seconds(std::process::id()).unwrap_or(0.0),
            servers_s: server_pids.iter().map(|pid| (*pid, process_seconds(*pid))).collect(),
            busy_s,
            stolen_s,
        }
    }

    /// What was used between `self` and `later`, as processors kept busy.
    pub(crate) fn until(&self, later: &Self) -> CpuUse {
        let elapsed = later.at.duration_since(self.at).as_secs_f64().max(1e-9);
        CpuUse {
            seconds: elapsed,
            cores: all_cores(),
            generator: (later.own_s - self.own_s) / elapsed,
            server: self.used_by_servers(later).map(|seconds| seconds / elapsed),
            machine: (later.busy_s - self.busy_s) / elapsed,
            stolen: (later.stolen_s - self.stolen_s) / elapsed,
        }
    }

    /// In seconds; `None` where no server is known, or one has ended: what it used is not known.
    fn used_by_servers(&self, later: &Self) -> Option<f64> {
        let used = |(pid, before): (&u32, &Option<f64>)| Some((*later.servers_s.get(pid)?)? - (*before)?);
        let all = self.servers_s.iter().map(used).sum::<Option<f64>>()?;
        (!self.servers_s.is_empty()).then_some(all)
    }
}

/// Processors kept busy on average.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CpuUse {
    /// The time that this is the average of.
    pub seconds: f64,
    pub cores: usize,
    pub generator: f64,
    /// By the servers, if they run here and are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<f64>,
    pub machine: f64,
    /// Taken away by the hypervisor.
    pub stolen: f64,
}

impl CpuUse {
    /// In what way the measurement was limited by what measures, if it was.
    pub(crate) fn verdict(&self, generator_threads: usize) -> Option<String> {
        if self.generator > 0.9 * generator_threads as f64 {
            return Some(format!(
                "the generator was the limit: it kept its {generator_threads} threads busy ({:.2} processors)",
                self.generator
            ));
        }
        let full = self.machine + self.stolen > 0.92 * self.cores as f64;
        (full && self.generator > 0.25 * self.cores as f64).then(|| {
            format!(
                "the machine was full and the generator used {:.0} % of it: a server alone on it would do more",
                100.0 * self.generator / self.cores as f64
            )
        })
    }
}

pub(crate) fn process_seconds(pid: u32) -> Option<f64> {
    used_seconds(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Processor time by the `stat` of a process or thread.
pub(crate) fn used_seconds(stat: &str) -> Option<f64> {
    seconds_at(stat, [11, 12])
}

/// The times in user mode and in the kernel that stand in these fields of a `stat`, counted behind the name.
pub(crate) fn seconds_at(stat: &str, places: [usize; 2]) -> Option<f64> {
    // The name in parentheses may hold spaces.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |index: usize| fields.get(index)?.parse::<f64>().ok();
    let [user, kernel] = places.map(ticks);
    Some((user? + kernel?) / TICKS_PER_SECOND)
}

/// What a thread did until now, in seconds: it ran, or could have run and waited for a processor.
#[derive(Debug, Clone)]
pub(crate) struct ThreadTimes {
    pub(crate) name: String,
    pub(crate) run_s: f64,
    pub(crate) waited_s: f64,
}

/// The threads of a process that live now, by their ids.
pub(crate) fn thread_times(pid: u32) -> BTreeMap<u32, ThreadTimes> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let thread = |entry: fs::DirEntry| {
        let name = fs::read_to_string(entry.path().join("comm")).ok()?;
        let [run_s, waited_s] = schedstat(&fs::read_to_string(entry.path().join("schedstat")).ok()?)?;
        let id = entry.file_name().to_str()?.parse().ok()?;
        Some((id, ThreadTimes { name: name.trim_end().to_owned(), run_s, waited_s }))
    };
    entries.filter_map(thread).collect()
}

/// For how many seconds a thread ran, and waited for a processor, by its `schedstat`; `None` where the kernel does not count
/// that, or the thread has not begun: then it is all zeros.
pub(crate) fn schedstat(text: &str) -> Option<[f64; 2]> {
    let nanos: Vec<f64> = text.split_whitespace().map_while(|number| number.parse().ok()).collect();
    let [run, waited, slices] = *nanos.as_slice() else { return None };
    (slices > 0.0).then_some([run / 1e9, waited / 1e9])
}

/// How many processors a process may use, by where it may run and what its group may have; all, where that is not known.
pub(crate) fn may_use(pid: u32) -> f64 {
    let status = status(pid).unwrap_or_default();
    let pinned = field(&status, "Cpus_allowed_list").and_then(processors_in);
    let pinned = pinned.map_or_else(cores, |list| list.len()) as f64;
    cgroup::cpus_of(pid).map_or(pinned, |cpus| cpus.min(pinned))
}

/// Processors in the way of Linux: `0,2-3`.
pub(crate) fn processors_in(list: &str) -> Option<Vec<usize>> {
    let mut all = Vec::new();
    for part in list.split(',').map(str::trim) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        if first > last || last > 4_096 {
            return None;
        }
        all.extend(first..=last);
    }
    Some(all)
}

/// Processor time that all took, and that the hypervisor took away, since the machine was started.
pub(crate) fn machine_seconds() -> Option<(f64, f64)> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let [busy_s, stolen_s, _] = processor_seconds(stat.lines().next()?.strip_prefix("cpu")?)?;
    Some((busy_s, stolen_s))
}

/// The same of one processor.
#[derive(Debug, PartialEq)]
pub(crate) struct CoreSeconds {
    pub(crate) core: usize,
    pub(crate) busy_s: f64,
    pub(crate) stolen_s: f64,
}

/// The processors of the whole machine.
pub(crate) fn core_seconds() -> Vec<CoreSeconds> {
    cores_of(&fs::read_to_string("/proc/stat").unwrap_or_default())
}

/// The same from the text of `/proc/stat`. A sandbox may show processors that never did anything; of these nothing is known.
fn cores_of(stat: &str) -> Vec<CoreSeconds> {
    let core = |(core, ticks): (usize, &str)| {
        let [busy_s, stolen_s, all_s] = processor_seconds(ticks)?;
        (all_s > 0.0).then_some(CoreSeconds { core, busy_s, stolen_s })
    };
    core_lines(stat).filter_map(core).collect()
}

/// Numbers of processors, and what stands behind them.
fn core_lines(stat: &str) -> impl Iterator<Item = (usize, &str)> {
    stat.lines().filter_map(|line| {
        let (core, ticks) = line.strip_prefix("cpu")?.split_once(' ')?;
        Some((core.parse().ok()?, ticks))
    })
}

/// Seconds of a line of `/proc/stat`: busy, taken away by the hypervisor, and all, in which it was idle, too.
fn processor_seconds(ticks: &str) -> Option<[f64; 3]> {
    let ticks: Vec<f64> = ticks.split_whitespace().filter_map(|text| text.parse().ok()).collect();
    let [user, nice, system, idle, iowait, irq, softirq, stolen, ..] = *ticks.as_slice() else {
        return None;
    };
    let busy = user + nice + system + irq + softirq;
    Some([busy, stolen, busy + stolen + idle + iowait].map(|ticks| ticks / TICKS_PER_SECOND))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_processor_has_its_own_time() {
        let stat = "cpu  700 20 30 900 5 6 7 50 40 0\ncpu0 600 10 20 400 5 3 4 25 40 0\n\
            cpu3 100 10 10 500 0 3 3 25 0 0\ncpu4 0 0 0 0 0 0 0 0 0 0\ncpu5 1 2\nintr 5 0\ncpufreq 1\n";
        let core = |core, busy_s, stolen_s| CoreSeconds { core, busy_s, stolen_s };
        assert_eq!(cores_of(stat), [core(0, 6.37, 0.25), core(3, 1.26, 0.25)]);
        assert_eq!(core_lines(stat).count(), 4);
        assert_eq!(cores_of(""), []);
        let (busy_s, _) = machine_seconds().unwrap();
        let cores: f64 = core_seconds().iter().map(|core| core.busy_s).sum();
        assert!(busy_s > 0.0 && cores > 0.0, "{busy_s} {cores}");
    }

    #[test]
    fn what_the_scheduler_does_not_count_is_not_known() {
        assert_eq!(schedstat("1500000000 250000000 7\n"), Some([1.5, 0.25]));
        for unknown in ["0 0 0\n", "", "1 2", "1 x 3"] {
            assert_eq!(schedstat(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn processors_are_listed_as_linux_does() {
        assert_eq!(processors_in("0,2-4"), Some(vec![0, 2, 3, 4]));
        for wrong in ["", "a", "3-1", "1-", "0-99999999"] {
            assert_eq!(processors_in(wrong), None, "{wrong}");
        }
        let may_use = may_use(std::process::id());
        assert!(may_use > 0.0 && may_use <= 4_097.0, "{may_use}");
        let busy = std::time::Instant::now();
        while busy.elapsed() < Duration::from_millis(20) {
            std::hint::spin_loop();
        }
        let own = thread_times(std::process::id());
        assert!(own.values().any(|thread| thread.run_s > 0.0), "{own:?}");
    }

    #[test]
    fn the_time_of_a_server_that_has_ended_is_not_known() {
        let mark = |servers: &[(u32, Option<f64>)]| CpuMark {
            servers_s: servers.iter().copied().collect(),
            ..CpuMark::now(&[])
        };
        let before = mark(&[(1, Some(50.0)), (2, Some(7.0))]);
        let used = |later: &[(u32, Option<f64>)]| before.used_by_servers(&mark(later));
        assert_eq!(used(&[(1, Some(52.0)), (2, Some(8.0))]), Some(3.0));
        assert_eq!(used(&[(1, None), (2, Some(8.0))]), None);
        assert_eq!(used(&[(2, Some(8.0))]), None);
        assert_eq!(mark(&[(1, None)]).used_by_servers(&mark(&[(1, Some(2.0))])), None, "it came later");
        assert_eq!(mark(&[]).used_by_servers(&mark(&[])), None, "none is known");
        let own = std::process::id();
        assert!(CpuMark::now(&[own]).until(&CpuMark::now(&[own])).server.is_some_and(|used| used >= 0.0));
    }

    #[test]
    fn the_limit_is_named() {
        let used = |generator, machine| CpuUse {
            seconds: 1.0,
            cores: 4,
            generator,
            server: None,
            machine,
            stolen: 0.0,
        };
        assert!(
            used(1.95, 2.5).verdict(2).is_some_and(|text| text.starts_with("the generator was the limit"))
        );
        assert!(used(1.5, 3.9).verdict(2).is_some_and(|text| text.contains("38 %")));
        assert_eq!(used(0.5, 2.0).verdict(2), None);
    }
}
