//! What the threads of processes did until now, from `/proc/PID/task`: two small files of each thread.

use std::fs;
use std::path::Path;

use crate::host::machine::{field, number_in, schedstat, used_seconds};

/// Threads that are read each second, of all processes of one name together: each costs some 20 µs. Of more than these, nothing
/// of threads is known.
const THREADS_MAX: usize = 1_000;

#[derive(Debug, PartialEq)]
pub(super) struct Thread {
    pub(super) id: u32,
    /// 15 bytes at most.
    pub(super) name: String,
    pub(super) run_s: f64,
    /// For how long it could have run, and waited for a processor; `None` where the kernel does not say, here and below.
    pub(super) waited_s: Option<f64>,
    /// Context switches: it had nothing to do, or another took its place.
    pub(super) voluntary: Option<f64>,
    pub(super) involuntary: Option<f64>,
}

impl Thread {
    /// From its directory; `None` if it has ended.
    fn read(dir: &Path) -> Option<Self> {
        let read = |file| fs::read_to_string(dir.join(file)).ok();
        let id = dir.file_name()?.to_str()?.parse().ok()?;
        let times = read("schedstat").as_deref().and_then(schedstat);
        let run_s = match times {
            Some([run_s, _]) => run_s,
            None => used_seconds(&read("stat")?)?,
        };
        Self::parse(id, &read("status")?, run_s, times.map(|[_, waited_s]| waited_s))
    }

    fn parse(id: u32, status: &str, run_s: f64, waited_s: Option<f64>) -> Option<Self> {
        let switches = |name| number_in(status, name).map(|count| count as f64);
        Some(Self {
            id,
            name: field(status, "Name")?.to_owned(),
            run_s,
            waited_s,
            voluntary: switches("voluntary_ctxt_switches"),
            involuntary: switches("nonvoluntary_ctxt_switches"),
        })
    }
}

/// The threads of some processes that live now; `None` if they are too many.
pub(super) fn threads(pids: &[u32]) -> Option<Vec<Thread>> {
    let of = |pid: &u32| fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let entries: Vec<fs::DirEntry> = pids.iter().flat_map(of).take(THREADS_MAX + 1).collect();
    if entries.len() > THREADS_MAX {
        return None;
    }
    Some(entries.iter().filter_map(|entry| Thread::read(&entry.path())).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Barrier};

    use super::*;

    #[test]
    fn threads_are_found() {
        let stop = Arc::new(Barrier::new(2));
        let stopped = Arc::clone(&stop);
        let named =
            std::thread::Builder::new().name("a (named) one".into()).spawn(move || stopped.wait()).unwrap();
        let found = std::iter::repeat_with(|| threads(&[std::process::id()]).unwrap()).take(10_000);
        let is_there = |threads: Vec<Thread>| threads.iter().any(|one| one.name == "a (named) one");
        assert!(found.into_iter().any(is_there), "a thread takes its name as it starts");
        stop.wait();
        named.join().unwrap();
        assert_eq!(threads(&[u32::MAX]), Some(Vec::new()), "a process that has ended");
        let own = std::process::id();
        assert_eq!(threads(&vec![own; THREADS_MAX + 1]), None, "each has one thread at least");
    }

    #[test]
    fn a_thread_is_what_linux_says_of_it() {
        let status = "Name:\ttokio-rt-worker\nUmask:\t0022\nTgid:\t7\nRssAnon:\t  12 kB\n\
            voluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t20\n";
        let thread = Thread::parse(8, status, 1.5, Some(0.25)).unwrap();
        assert_eq!((&*thread.name, thread.run_s, thread.waited_s), ("tokio-rt-worker", 1.5, Some(0.25)));
        assert_eq!((thread.voluntary, thread.involuntary), (Some(150.0), Some(20.0)));
        // A sandbox says less.
        let thread = Thread::parse(8, "Name:\tx\nState:\tR\n", 1.5, None).unwrap();
        assert_eq!((thread.waited_s, thread.voluntary, thread.involuntary), (None, None, None));
        assert_eq!(Thread::parse(8, "", 1.5, None), None);
    }
}
