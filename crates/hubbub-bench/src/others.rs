//! What others take of the machine while something is measured: all that was used, less what this process, its children and the
//! databases and brokers of the measurement used. From `/proc`; without it, others take nothing.

use std::fs;
use std::time::Instant;

use crate::machine::{all_cores, family_seconds, listening_on, machine_seconds, parent};

/// Share of the machine that others may take before a figure is marked.
const OTHERS_MAX: f64 = 0.05;

/// Counts from when it is made.
pub(crate) struct OthersMeter {
    /// Processes that belong to what is measured, besides this one; their children do, too.
    engines: Vec<u32>,
    begun: Instant,
    before_s: f64,
}

impl OthersMeter {
    /// `urls` are those of the servers, databases and brokers of the measurement. Those that run elsewhere take nothing here.
    pub(crate) fn start<'u>(urls: impl IntoIterator<Item = &'u str>) -> Self {
        let engines: Vec<u32> = urls.into_iter().filter_map(process_at).collect();
        let before_s = others_seconds(&engines);
        Self { engines, begun: Instant::now(), before_s }
    }

    /// Share of the machine that others took until now.
    pub(crate) fn share(&self) -> f64 {
        let used_s = others_seconds(&self.engines) - self.before_s;
        let all_s = self.begun.elapsed().as_secs_f64() * all_cores() as f64;
        // Processor time is counted in hundredths of a second, so a short time has less than none.
        (used_s / all_s.max(1e-9)).max(0.0)
    }
}

/// Processor time of all who do not belong to the measurement, since the machine was started.
fn others_seconds(engines: &[u32]) -> f64 {
    let (busy, stolen) = machine_seconds().unwrap_or_default();
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let all = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_ours = |pid: u32| pid == std::process::id() || engines.contains(&pid);
    let own: f64 =
        all.filter(|pid| is_ours(*pid) || parent(*pid).is_some_and(is_ours)).filter_map(family_seconds).sum();
    busy + stolen - own
}

/// The process that a URL leads to, if it runs on this machine and can be seen. Of several addresses the first counts.
pub(crate) fn process_at(url: &str) -> Option<u32> {
    let address = url.split_once("://").map_or(url, |(_, address)| address);
    let first = address.split([',', '/', '?']).next()?;
    let first = first.rsplit_once('@').map_or(first, |(_, place)| place);
    let (host, port) = first.rsplit_once(':')?;
    let is_here = ["127.0.0.1", "localhost", "[::1]"].contains(&host);
    listening_on(port.parse().ok().filter(|_| is_here)?)
}

/// What makes figures worth less than they seem, for the table that has them: a ledger that does not close, and others at work
/// on the same machine.
pub(crate) fn marks(is_closed: bool, others: f64) -> Vec<String> {
    let ledger = (!is_closed).then(|| "books do not close".to_owned());
    let taken =
        (others > OTHERS_MAX).then(|| format!("{:.0} % of the machine taken by others", 100.0 * others));
    ledger.into_iter().chain(taken).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::process_seconds;

    #[test]
    fn a_process_is_found_by_its_url() {
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        let port = address.port();
        for url in [
            format!("http://{address}"),
            format!("postgres://user:p@ss@localhost:{port}/name?x=y"),
            format!("kafka://{address},127.0.0.1:1"),
            address.to_string(),
        ] {
            assert_eq!(process_at(&url), Some(std::process::id()), "{url}");
        }
        assert_eq!(process_at(&format!("http://database.example:{port}")), None, "elsewhere");
        assert_eq!(process_at("postgres://localhost/name"), None);
    }

    #[test]
    fn children_are_no_others() {
        let burn = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
        let own = std::process::id();
        let of_children = || family_seconds(own).unwrap() - process_seconds(own).unwrap();
        let before = of_children();
        let status = std::process::Command::new("sh").args(["-c", burn]).status().unwrap();
        assert!(status.success());
        let used = of_children() - before;
        assert!(used >= 0.02, "what a child used counts once it was waited for: {used}");
    }

    #[test]
    fn marks_name_what_is_wrong() {
        assert_eq!(marks(true, 0.05), Vec::<String>::new());
        assert_eq!(marks(false, 0.0), ["books do not close"]);
        assert_eq!(marks(false, 0.094), ["books do not close", "9 % of the machine taken by others"]);
    }
}
