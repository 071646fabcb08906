//! What a server process takes of the machine.

use std::time::Duration;

use super::Server;

impl Server {
    /// Memory of the process that is not a file's, in KiB.
    pub(crate) fn memory_kib(&self) -> u64 {
        let path = format!("/proc/{}/status", self.process_id());
        let status = std::fs::read_to_string(path).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// What all its threads have taken of the processor.
    pub(crate) fn processor_time(&self) -> Duration {
        let path = format!("/proc/{}/stat", self.process_id());
        let stat = std::fs::read_to_string(path).unwrap();
        // Behind the name, which may hold anything: in user mode and in the kernel, the 14th and 15th of all.
        let (_, fields) = stat.rsplit_once(')').unwrap();
        let ticks = fields.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap());
        // USER_HZ, 100 on every Linux.
        Duration::from_millis(ticks.sum::<u64>() * 10)
    }
}
