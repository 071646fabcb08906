//! What others take of the machine while something is measured: all that was used, less what this process, the databases and
//! brokers of the measurement, and all that they started used. From `/proc`; where that does not tell, it is not known.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, UdpSocket};
use std::time::Instant;

use rustix::process::{getpid, set_child_subreaper};

use crate::host::machine::{all_cores, machine_seconds};
use crate::host::process_tree::{Processes, TreeRoot, listening_on};
use crate::statistics::median;

/// Share of the machine that others may take before a figure is marked.
const OTHERS_MAX: f64 = 0.05;
/// What is said where there is no such share. That alone is no mark.
pub(crate) const NOT_KNOWN: &str = "what others took of the machine is not known";

/// Counts from when it is made, or began anew.
pub(crate) struct BackgroundLoadMeter {
    /// Processes that belong to what is measured, with all that they started: this one, and those that URLs lead to.
    roots: Vec<u32>,
    /// Whether all of these were found.
    is_known: bool,
    begun: Instant,
    /// `None` where it cannot be known.
    before: Option<Used>,
}

impl BackgroundLoadMeter {
    /// `urls` are those of the servers, databases and brokers of the measurement. Those that run elsewhere take nothing here.
    pub(crate) fn start<'u>(urls: impl IntoIterator<Item = &'u str>) -> Self {
        Self::beside(urls, &[])
    }

    /// The same, with processes that belong to what is measured besides those that URLs lead to.
    pub(crate) fn beside<'u>(urls: impl IntoIterator<Item = &'u str>, pids: &[u32]) -> Self {
        // What this process starts, and whose parent ends, becomes its own child instead of that of init, and so still counts
        // with it. Where the kernel refuses that, such a process counts with others, and nothing is made better than it is.
        let _ = set_child_subreaper(Some(getpid()));
        let engines: Option<Vec<Vec<u32>>> = urls.into_iter().map(processes_at).collect();
        let is_known = engines.is_some();
        let roots: Vec<u32> = [&[std::process::id()], pids, &engines.unwrap_or_default().concat()].concat();
        let before = if is_known { Used::now(&roots) } else { None };
        Self { roots, is_known, begun: Instant::now(), before }
    }

    /// Counts from now on, without looking for processes again: on a busy machine that takes tenths of a second.
    pub(crate) fn begin(&mut self) {
        self.before = if self.is_known { Used::now(&self.roots) } else { None };
        self.begun = Instant::now();
    }

    /// Share of the machine that others took until now; `None` where it is not known.
    pub(crate) fn share(&self) -> Option<f64> {
        self.taken().map(|taken| taken.share())
    }

    /// The same, by who took it.
    pub(crate) fn taken(&self) -> Option<Taken> {
        let [processes_s, hypervisor_s] = Used::now(&self.roots)?.by_others_since(self.before.as_ref()?)?;
        let all_s = (self.begun.elapsed().as_secs_f64() * all_cores() as f64).max(1e-9);
        // Processor time is counted in hundredths of a second, so a short time has less than none.
        let share = |seconds: f64| (seconds / all_s).max(0.0);
        Some(Taken { processes: share(processes_s), hypervisor: share(hypervisor_s) })
    }
}

/// Shares of the machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Taken {
    /// By processes that do not belong to what is measured.
    pub(crate) processes: f64,
    pub(crate) hypervisor: f64,
}

impl Taken {
    pub(crate) fn share(&self) -> f64 {
        self.processes + self.hypervisor
    }
}

/// Processor time since the machine was started, in seconds.
struct Used {
    busy: f64,
    /// By the hypervisor.
    stolen: f64,
    ours: BTreeMap<TreeRoot, f64>,
}

impl Used {
    fn now(roots: &[u32]) -> Option<Self> {
        // A sandbox may show a machine that never did anything.
        let (busy, stolen) = machine_seconds().filter(|(busy, _)| *busy > 0.0)?;
        Some(Self { busy, stolen, ours: Processes::now().seconds_of(roots) })
    }

    /// By processes, and by the hypervisor. `None` where one of ours has ended: what it used is not known.
    fn by_others_since(&self, before: &Self) -> Option<[f64; 2]> {
        let used = |(root, before): (&TreeRoot, &f64)| Some((self.ours.get(root)? - before).max(0.0));
        let ours: f64 = before.ours.iter().map(used).sum::<Option<f64>>()?;
        Some([self.busy - before.busy - ours, self.stolen - before.stolen])
    }
}

/// The processes that a URL leads to: none if they run elsewhere, `None` if they run on this machine and cannot be seen, as
/// those of another user or container.
pub(crate) fn processes_at(url: &str) -> Option<Vec<u32>> {
    let mut found = Vec::new();
    for (host, port) in addresses(url) {
        if is_here(host) {
            let here = port.map(listening_on).unwrap_or_default();
            if here.is_empty() {
                return None;
            }
            found.extend(here);
        }
    }
    Some(found)
}

/// The process that a URL leads to, if it runs on this machine and can be seen.
pub(crate) fn process_at(url: &str) -> Option<u32> {
    processes_at(url)?.first().copied()
}

/// The processes that a URL leads to, each once, as far as they run on this machine and can be seen.
pub(crate) fn each_at(url: &str) -> Vec<u32> {
    let mut pids = processes_at(url).unwrap_or_default();
    pids.sort_unstable();
    pids.dedup();
    pids
}

/// Hosts and ports of a URL, which may have several. A port that it leaves out is that of its scheme.
fn addresses(url: &str) -> impl Iterator<Item = (&str, Option<u16>)> {
    let (scheme, address) = url.split_once("://").unwrap_or(("http", url));
    let authority = address.split(['/', '?']).next().unwrap_or_default();
    let places = authority.rsplit_once('@').map_or(authority, |(_, places)| places);
    places.split(',').map(move |place| match place.rsplit_once(':') {
        // The colons of an address of version 6 stand in brackets.
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()),
        _ => (place, usual_port(scheme)),
    })
}

fn usual_port(scheme: &str) -> Option<u16> {
    match scheme {
        "http" | "ws" => Some(80),
        "https" | "wss" => Some(443),
        "postgres" | "postgresql" => Some(5432),
        "amqp" => Some(5672),
        "amqps" => Some(5671),
        "kafka" | "kafkas" => Some(9092),
        "scylla" | "scyllas" | "cassandra" => Some(9042),
        _ => None,
    }
}

/// Whether a host of a URL is this machine, by its name or one of its addresses. Nobody is asked what other names mean.
fn is_here(host: &str) -> bool {
    match host.trim_matches(['[', ']']).parse::<IpAddr>() {
        // Only its own addresses may be bound.
        Ok(address) => address.is_loopback() || UdpSocket::bind((address, 0)).is_ok(),
        // Without a host, or with a path in its place, a database is asked over a socket of this machine.
        Err(_) => {
            let is_socket = host.is_empty() || host.starts_with("%2");
            let own = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
            is_socket || [own.trim_end(), "localhost"].contains(&host)
        }
    }
}

/// What makes figures worth less than they seem, for the table that has them: a ledger that does not close, and others at work
/// on the same machine.
pub(crate) fn marks(is_closed: bool, others: Option<f64>) -> Vec<String> {
    let ledger = (!is_closed).then(|| "ledger does not balance".to_owned());
    let taken = others
        .filter(|share| *share > OTHERS_MAX)
        .map(|share| format!("{:.0} % of the machine taken by others", 100.0 * share));
    ledger.into_iter().chain(taken).collect()
}

/// The largest of several shares. One that is not known hides none that is marked, but no other share stands for all.
pub(crate) fn largest(shares: impl IntoIterator<Item = Option<f64>>) -> Option<f64> {
    let (mut largest, mut is_known) = (0.0_f64, true);
    for share in shares {
        largest = largest.max(share.unwrap_or(0.0));
        is_known &= share.is_some();
    }
    (is_known || largest > OTHERS_MAX).then_some(largest)
}

/// The median, where all are known.
pub(crate) fn median_share(shares: &[Option<f64>]) -> Option<f64> {
    let known: Vec<f64> = shares.iter().copied().collect::<Option<_>>()?;
    (!known.is_empty()).then(|| median(&known))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::net::TcpListener;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_is_found_by_its_url() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        let (port, own) = (address.port(), vec![std::process::id()]);
        for url in [
            format!("http://{address}"),
            format!("postgres://user:p@ss@localhost:{port}/name?x=y"),
            format!("kafka://{address},192.0.2.1:1"),
            format!("kafka://192.0.2.1:1,{address}"),
            address.to_string(),
        ] {
            assert_eq!(processes_at(&url), Some(own.clone()), "{url}");
            assert_eq!(process_at(&url), Some(std::process::id()), "{url}");
        }
        let elsewhere = format!("http://database.example:{port}");
        assert_eq!((processes_at(&elsewhere), process_at(&elsewhere)), (Some(Vec::new()), None));
        drop(server);
        assert_eq!(processes_at(&format!("http://{address}")), None, "here, but nobody is seen");
    }

    #[test]
    fn a_port_that_is_left_out_is_that_of_the_scheme() {
        for (url, expected) in [
            ("postgres://u:p@localhost/name", ("localhost", Some(5432))),
            ("postgresql:///name", ("", Some(5432))),
            ("amqp://localhost", ("localhost", Some(5672))),
            ("amqps://localhost/%2f", ("localhost", Some(5671))),
            ("kafkas://a", ("a", Some(9092))),
            ("scylla://[::1]/k", ("[::1]", Some(9042))),
            ("scylla://[::1]:19042/k", ("[::1]", Some(19042))),
            ("http://127.0.0.1/x:1", ("127.0.0.1", Some(80))),
            ("127.0.0.1", ("127.0.0.1", Some(80))),
            ("https://a", ("a", Some(443))),
            ("unknown://a", ("a", None)),
        ] {
            assert_eq!(addresses(url).collect::<Vec<_>>(), [expected], "{url}");
        }
        let several: Vec<_> = addresses("kafka://u:p@a,b:19092/").collect();
        assert_eq!(several, [("a", Some(9092)), ("b", Some(19092))]);
        assert!(
            ["localhost", "127.0.0.2", "[::1]", "", "%2Frun%2Fpostgresql", "0.0.0.0"]
                .into_iter()
                .all(is_here)
        );
        assert!(!["192.0.2.1", "database.example", "bare"].into_iter().any(is_here));
    }

    #[test]
    fn what_was_started_counts_although_its_parent_ended() {
        let meter = BackgroundLoadMeter::start([]);
        let mut starter = Command::new("sh");
        let starter = starter.args(["-c", "sleep 60 >&2 & echo $!"]).stdout(Stdio::piped());
        let mut starter = starter.stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(starter.stdout.take().unwrap()).read_line(&mut line).unwrap();
        starter.wait().unwrap();
        let left: u32 = line.trim().parse().unwrap();
        let parent = crate::host::machine::parent(left);
        let pid = rustix::process::Pid::from_raw(left.try_into().unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        assert_eq!(parent, Some(std::process::id()));
        assert!(meter.share().is_some());
    }

    #[test]
    fn what_ours_used_is_not_taken_by_others() {
        let tree = |id: u32| {
            let stat = format!("{id} (x) S 1 {}7 0 0 0 20 0 1 0 5 0", "0 ".repeat(9));
            Processes::parse([(id, stat.as_str())]).seconds_of(&[id]).into_keys().next().unwrap()
        };
        let used = |busy, stolen, ours: &[(u32, f64)]| Used {
            busy,
            stolen,
            ours: ours.iter().map(|(id, seconds)| (tree(*id), *seconds)).collect(),
        };
        let before = used(100.0, 5.0, &[(1, 10.0), (2, 50.0)]);
        let after = used(120.0, 8.0, &[(1, 14.0), (2, 65.0)]);
        assert_eq!(after.by_others_since(&before), Some([1.0, 3.0]));
        let after = used(120.0, 8.0, &[(1, 14.0)]);
        assert_eq!(after.by_others_since(&before), None, "one has ended");
    }

    #[test]
    fn what_cannot_be_seen_makes_the_share_unknown() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("postgres://{}/name", server.local_addr().unwrap());
        let meter = BackgroundLoadMeter::start([url.as_str()]);
        let (taken, share) = (meter.taken().unwrap(), meter.share().unwrap());
        assert!(taken.processes >= 0.0 && taken.hypervisor >= 0.0 && share >= 0.0);
        drop(server);
        assert_eq!(BackgroundLoadMeter::start([url.as_str()]).share(), None);
    }

    #[test]
    fn marks_name_what_is_wrong() {
        assert_eq!(marks(true, Some(0.05)), Vec::<String>::new());
        assert_eq!(marks(true, None), Vec::<String>::new());
        assert_eq!(marks(false, Some(0.0)), ["ledger does not balance"]);
        assert_eq!(
            marks(false, Some(0.094)),
            ["ledger does not balance", "9 % of the machine taken by others"]
        );
        assert_eq!(largest([Some(0.01), Some(0.03)]), Some(0.03));
        assert_eq!(largest([Some(0.01), None]), None);
        assert_eq!(largest([Some(0.2), None]), Some(0.2), "marked all the same");
        assert_eq!(median_share(&[Some(0.1), Some(0.3), Some(0.2)]), Some(0.2));
        assert_eq!((median_share(&[Some(0.1), None]), median_share(&[])), (None, None));
    }
}
