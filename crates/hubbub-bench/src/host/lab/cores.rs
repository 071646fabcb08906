//! Pins processes to processors, for as long as a measurement takes.
//!
//! A process that is started takes the processors of the thread that starts it, and its threads take them from each other;
//! what runs already is pinned thread by thread.

use std::fs;

use anyhow::{Context, ensure};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::Deserialize;

use crate::host::machine::processors_in;

/// Processors by their numbers, as a scenario has them: `"2,3"` or `"0-3"`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Cores {
    text: String,
    numbers: Vec<usize>,
}

impl TryFrom<String> for Cores {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let numbers = processors_in(&text)
            .ok_or_else(|| format!("'{text}' must be numbers of processors, such as \"2,3\" or \"0-3\""))?;
        Ok(Self { text, numbers })
    }
}

impl Cores {
    /// Refuses processors that this process may not use, or that the machine does not have; `what` they are for is said.
    pub(crate) fn check(&self, what: &str) -> anyhow::Result<()> {
        let allowed = sched_getaffinity(None).context("cannot ask which processors may be used")?;
        let all: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|number| allowed.is_set(*number)).collect();
        let missing = self.numbers.iter().find(|number| !all.contains(number));
        ensure!(
            missing.is_none(),
            "cores: {what} = \"{}\": there is no processor {} here; these may be used: {all:?}",
            self.text,
            missing.copied().unwrap_or_default()
        );
        Ok(())
    }

    fn set(&self) -> CpuSet {
        let mut set = CpuSet::new();
        self.numbers.iter().filter(|number| **number < CpuSet::MAX_CPU).for_each(|number| set.set(*number));
        set
    }
}

/// Puts back what was before when it is dropped.
pub(crate) struct Pinned(Vec<(Pid, CpuSet)>);

impl Pinned {
    /// The calling thread, and what it starts meanwhile.
    pub(crate) fn thread(cores: &Cores) -> anyhow::Result<Self> {
        pin(vec![rustix::thread::gettid()], cores)
    }

    /// All threads of these processes, and what they start meanwhile.
    pub(crate) fn processes(pids: &[u32], cores: &Cores) -> anyhow::Result<Self> {
        let threads = pids.iter().flat_map(|pid| {
            fs::read_dir(format!("/proc/{pid}/task"))
                .into_iter()
                .flatten()
                .flatten()
                .filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
        });
        pin(threads.collect(), cores)
    }
}

fn pin(threads: Vec<Pid>, cores: &Cores) -> anyhow::Result<Pinned> {
    let mut pinned = Pinned(Vec::new());
    for thread in threads {
        // One that ended meanwhile needs nothing.
        let Ok(before) = sched_getaffinity(Some(thread)) else { continue };
        sched_setaffinity(Some(thread), &cores.set()).with_context(|| {
            format!("process {} cannot be pinned to processors {}", thread.as_raw_nonzero(), cores.text)
        })?;
        pinned.0.push((thread, before));
    }
    Ok(pinned)
}

impl Drop for Pinned {
    fn drop(&mut self) {
        for (thread, before) in &self.0 {
            // It may have ended.
            let _ = sched_setaffinity(Some(*thread), before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first processor that this test may run on.
    fn first() -> usize {
        let set = sched_getaffinity(None).unwrap();
        (0..CpuSet::MAX_CPU).find(|number| set.is_set(*number)).unwrap()
    }

    #[test]
    fn a_thread_is_pinned_and_let_go() {
        let before = sched_getaffinity(None).unwrap();
        let cores = Cores::try_from(first().to_string()).unwrap();
        cores.check("server").unwrap();
        let pinned = Pinned::thread(&cores).unwrap();
        assert_eq!(sched_getaffinity(None).unwrap(), cores.set());
        let inherited = std::thread::spawn(|| sched_getaffinity(None).unwrap()).join().unwrap();
        assert_eq!(inherited, cores.set());
        drop(pinned);
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }

    #[test]
    fn processors_that_are_not_there_are_named() {
        let text = format!("{},1023", first());
        let error = Cores::try_from(text.clone()).unwrap().check("database").unwrap_err().to_string();
        assert!(
            error.contains(&format!("database = \"{text}\"")) && error.contains("no processor 1023"),
            "{error}"
        );
        assert!(Cores::try_from("two".to_owned()).unwrap_err().contains("numbers of processors"));
    }
}
