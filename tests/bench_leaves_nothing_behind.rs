//! `hubbub bench` that is told to stop, is killed, or fails: what it started ends, and what it made is removed.

use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::program::command;
use crate::harness::{Postgres, until};

/// Longer than any test waits.
const LONG: &str =
    "title = 'Long'\nworkload = 'http'\n[options]\nduration = '10m'\nconnections = 2\nrate = 20\n";

fn status(pid: u32) -> Option<String> {
    std::fs::read_to_string(format!("/proc/{pid}/status")).ok()
}

/// The processes that another started.
fn children(parent: u32) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let line = format!("\nPPid:\t{parent}\n");
    pids.filter(|pid: &u32| status(*pid).is_some_and(|status| status.contains(&line))).collect()
}

/// Whether a process has a connection.
fn is_connected(pid: u32) -> bool {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let files = entries.filter_map(|entry| Some(std::fs::read_link(entry.path()).ok()?.to_str()?.to_owned()));
    let sockets: Vec<String> = files.filter(|file| file.starts_with("socket:")).collect();
    let all = std::fs::read_to_string("/proc/net/tcp").unwrap();
    all.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // 01 = established.
        fields[3] == "01" && sockets.contains(&format!("socket:[{}]", fields[9]))
    })
}

/// A measurement under way.
struct Bench {
    dir: tempfile::TempDir,
    child: Child,
    servers: Vec<u32>,
}

impl Bench {
    /// Runs the command with its data in a directory of its own, and waits until somebody has connected to a server that it
    /// started: one that just starts would end by itself, as nobody hears that it is ready.
    async fn start(line: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("long.toml");
        std::fs::write(&file, LONG).unwrap();
        let file = file.to_str().unwrap();
        let mut command = command();
        command.arg("bench").args(line.iter().map(|word| if *word == "FILE" { file } else { word }));
        command.arg("--dir").arg(dir.path()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut bench = Self { dir, child: command.spawn().unwrap(), servers: Vec::new() };
        until("it has a server", async || {
            bench.servers = children(bench.child.id());
            bench.servers.iter().any(|pid| is_connected(*pid))
        })
        .await;
        bench
    }

    /// Of the servers, those that run still.
    fn left(&self) -> Vec<u32> {
        // One that ended may wait for somebody who takes note of it.
        let runs = |pid: &u32| status(*pid).is_some_and(|status| !status.contains("\nState:\tZ"));
        self.servers.iter().copied().filter(runs).collect()
    }

    fn made(&self) -> Vec<String> {
        let names = std::fs::read_dir(self.dir.path()).unwrap().flatten();
        let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name != "long.toml").collect()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Ends it by a signal that it can hear, after which it has the code that shells show, and nothing is left.
    async fn stop(mut self, signal: Signal, name: &str, code: i32) {
        assert!(!self.made().is_empty(), "it has a directory");
        self.signal(signal);
        let mut ended = None;
        until("it ends", async || {
            ended = self.child.try_wait().unwrap();
            ended.is_some()
        })
        .await;
        let mut said = String::new();
        std::io::Read::read_to_string(&mut self.child.stderr.take().unwrap(), &mut said).unwrap();
        assert_eq!(ended.unwrap().code(), Some(code), "{said}");
        assert_eq!(
            said.lines().filter(|line| line.starts_with(&format!("hubbub: stopped by {name}"))).count(),
            1,
            "{said}"
        );
        assert_eq!((self.left(), self.made()), (vec![], vec![]), "{said}");
    }
}

impl Drop for Bench {
    /// Where a test fails, nothing stays, either.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let left = self.left().into_iter().filter_map(|pid| Pid::from_raw(pid as i32));
        left.for_each(|pid| kill_process(pid, Signal::KILL).unwrap_or_default());
    }
}

const SUITE: [&str; 6] = ["suite", "--only", "chat", "--rounds=1", "--time", "10m"];

#[tokio::test]
async fn what_is_told_to_stop_ends_its_servers_and_removes_its_directories() {
    let run = ["run", "FILE", "--quiet"];
    Bench::start(&run).await.stop(Signal::INT, "SIGINT", 130).await;
    Bench::start(&run).await.stop(Signal::TERM, "SIGTERM", 143).await;
    Bench::start(&SUITE).await.stop(Signal::INT, "SIGINT", 130).await;
}

#[tokio::test]
async fn servers_end_with_what_started_them_even_if_that_is_killed() {
    for line in [&["run", "FILE", "--quiet"][..], &SUITE] {
        let mut bench = Bench::start(line).await;
        bench.signal(Signal::KILL);
        bench.child.wait().unwrap();
        until("its servers end", async || bench.left().is_empty()).await;
    }
}

async fn has_databases(postgres: &Postgres) -> bool {
    let count = "select count(*) from pg_database where datname like 'hubbub_bench_%'";
    postgres.query("postgres", count).await != "0"
}

#[tokio::test]
async fn a_database_goes_with_a_measurement_that_is_told_to_stop() {
    let postgres = Postgres::start("");
    let url = postgres.url("postgres");
    let bench = Bench::start(&["run", "FILE", "--quiet", "--postgres", &url]).await;
    assert!(has_databases(&postgres).await);
    bench.stop(Signal::TERM, "SIGTERM", 143).await;
    assert!(!has_databases(&postgres).await);
}

#[cfg(feature = "amqp")]
#[tokio::test]
async fn a_row_that_fails_leaves_no_database() {
    let (postgres, dir) = (Postgres::start(""), tempfile::tempdir().unwrap());
    let line = ["bench", "suite", "--only", "pg-kv-miss", "--program", "/bin/false", "--postgres"]
        .map(str::to_owned);
    let place = dir.path().to_str().unwrap().to_owned();
    let line = line.into_iter().chain([postgres.url("postgres"), "--dir".to_owned(), place]);
    let ran = crate::harness::hubbub_at_length(line.collect()).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stdout.contains("**not measured**: the server did not get ready"), "{ran:?}");
    assert!(!has_databases(&postgres).await);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}
