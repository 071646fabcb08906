//! Limits of control groups that a scenario asks for: in force while it is measured, and gone afterwards, also where a run was
//! killed. Where this machine does not permit groups, that is said, and what needs them is passed over.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::harness::program::command;
use crate::harness::{Postgres, hubbub, hubbub_at_length, until};

const MOUNTED: &str = "/sys/fs/cgroup";

fn text(file: impl AsRef<Path>) -> String {
    std::fs::read_to_string(file).unwrap_or_default()
}

/// Whether groups may be made here, asked without the program. `test` tells this from others.
fn may_limit(test: &str) -> bool {
    let places = ["cpu", "cpu,cpuacct", ""].map(|name| Path::new(MOUNTED).join(name));
    let may = places.iter().find(|place| place.join("cgroup.procs").exists()).is_some_and(|place| {
        let probe = place.join(format!("hubbub-test-{}-{test}", std::process::id()));
        let is_made = std::fs::create_dir(&probe).is_ok();
        let _ = std::fs::remove_dir(&probe);
        // In version 2, a group with processes, such as that of a container, passes on no controllers.
        let enabled = place.join("cgroup.subtree_control");
        is_made && (!enabled.exists() || std::fs::write(enabled, "+cpu +memory").is_ok())
    });
    if !may {
        println!("this machine does not permit control groups: passed over");
    }
    may
}

/// Directories of the groups of a process that a run made.
fn groups(pid: u32) -> Vec<PathBuf> {
    let lines = text(format!("/proc/{pid}/cgroup"));
    let made = lines.lines().filter_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let group = Path::new(MOUNTED).join(controllers).join(path.trim_start_matches('/'));
        path.contains("/hubbub-bench-").then_some(group)
    });
    made.collect()
}

/// What a file of one of these groups says, by its name in version 1 and in version 2.
fn limit(groups: &[PathBuf], v1: &str, v2: &str) -> String {
    let files = groups.iter().flat_map(|group| [group.join(v1), group.join(v2)]);
    files.map(text).find(|text| !text.is_empty()).unwrap_or_default().trim().to_owned()
}

fn processes() -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The server that a run started, once it is one.
fn server_of(run: &Child) -> Option<u32> {
    let parent = format!("PPid:\t{}", run.id());
    let is_it = |pid: &u32| {
        let arguments = text(format!("/proc/{pid}/cmdline"));
        arguments.split('\0').nth(1) == Some("serve")
            && text(format!("/proc/{pid}/status")).lines().any(|line| line == parent)
    };
    processes().into_iter().find(is_it)
}

/// A closed loop of some seconds with these limits.
fn scenario(seconds: u32, limits: &str) -> String {
    format!(
        "title = 'limited'\nworkload = 'chat'\n[options]\nconnections = 16\nin-flight = 64\nmessages = 100_000_000\n\
         duration = '{seconds}s'\nwarmup-connections = 1\nwarmup-messages = 1\n[cgroup]\n{limits}\n"
    )
}

/// Writes a scenario into `dir`, and the arguments that run it there.
fn line(dir: &Path, scenario: &str, own: &[&str]) -> Vec<String> {
    let place = dir.to_str().unwrap();
    let file = dir.join("limited.toml");
    std::fs::write(&file, scenario).unwrap();
    let line = ["bench", "run", file.to_str().unwrap(), "--json", "--dir", place];
    line.iter().chain(own).map(ToString::to_string).collect()
}

fn start(line: &[String]) -> Child {
    command().args(line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

async fn results_of(run: Child) -> Value {
    let output = tokio::task::spawn_blocking(|| run.wait_with_output().unwrap()).await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test]
async fn limits_hold_while_it_is_measured_and_no_longer() {
    if !may_limit("hold") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    // Not every machine has temporary files on a disk.
    let has_disk = std::fs::metadata(dir.path()).unwrap().dev() >> 8 != 0;
    let iops = if has_disk { "server.iops = 70000" } else { "" };
    let limits = format!("server.cpus = 0.2\nserver.memory = '256MiB'\n{iops}");
    let run = start(&line(dir.path(), &scenario(8, &limits), &[]));
    let mut made = Vec::new();
    until("a server is limited", async || {
        made = server_of(&run).map(groups).unwrap_or_default();
        !made.is_empty()
    })
    .await;
    let quota = limit(&made, "cpu.cfs_quota_us", "cpu.max");
    assert!(["20000", "20000 100000"].contains(&quota.as_str()), "{quota}: {made:?}");
    assert_eq!(limit(&made, "memory.limit_in_bytes", "memory.max"), "268435456", "{made:?}");
    if has_disk {
        let writes = limit(&made, "blkio.throttle.write_iops_device", "io.max");
        assert!(writes.ends_with(" 70000") || writes.contains("wiops=70000"), "{writes}: {made:?}");
    }
    let results = results_of(run).await;
    let said = results["limits"].as_str().unwrap();
    assert!(said.contains("cgroup.server.cpus = 0.2") && said.contains("cgroup.server.memory"), "{said}");
    let verdict = &results["runs"][0]["summary"]["verdict"];
    // Where others keep the machine busy, something else may come first.
    let also = verdict["also"].as_array().into_iter().flatten();
    let named: Vec<&Value> = also.chain([verdict]).map(|finding| &finding["bottleneck"]).collect();
    assert!(named.contains(&&Value::from("server CPU")), "{verdict}");
    assert_eq!(verdict["figures"]["server"]["mayUse"], 0.2, "{verdict}");
    for group in made {
        assert!(!group.exists(), "{group:?} is left");
    }
}

/// Ends a process that nobody waits for.
struct Orphan(u32);

impl Drop for Orphan {
    fn drop(&mut self) {
        let id = Pid::from_raw(self.0.try_into().unwrap()).unwrap();
        let _ = kill_process(id, Signal::KILL);
    }
}

#[tokio::test]
async fn what_a_killed_run_left_goes_with_the_next() {
    if !may_limit("killed") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let limits = "server.cpus = 1\nserver.memory = '256MiB'";
    let mut killed = start(&line(dir.path(), &scenario(60, limits), &[]));
    let mut server = None;
    until("a server is limited", async || {
        server = server_of(&killed).filter(|server| !groups(*server).is_empty());
        server.is_some()
    })
    .await;
    let orphan = Orphan(server.unwrap());
    let left = groups(orphan.0);
    assert!(!left.is_empty());
    killed.kill().unwrap();
    killed.wait().unwrap();
    results_of(start(&line(dir.path(), &scenario(1, limits), &[]))).await;
    for group in left {
        assert!(!group.exists(), "{group:?} is left");
    }
    assert_eq!(groups(orphan.0), Vec::<PathBuf>::new(), "nobody is limited any more");
}

#[tokio::test]
async fn a_database_is_limited_and_let_go() {
    if !may_limit("database") {
        return;
    }
    let postgres = Postgres::start("");
    let dir = tempfile::tempdir().unwrap();
    let url = postgres.url("postgres");
    let run = start(&line(dir.path(), &scenario(6, "database.cpus = 1.5"), &["--postgres", &url]));
    let own = format!("hubbub-bench-{}-database", run.id());
    let groups_of =
        |pid: u32| groups(pid).into_iter().filter(|group| group.ends_with(&own)).collect::<Vec<_>>();
    // Processes of a database come and go: what one of them is in is read once, and one that ended counts no longer.
    let (mut limited, mut made) = (Vec::new(), Vec::new());
    until("the database is limited", async || {
        let of_all = processes().into_iter().map(|pid| (pid, groups_of(pid)));
        let found: Vec<(u32, Vec<PathBuf>)> = of_all.filter(|(_, groups)| !groups.is_empty()).collect();
        limited = found.iter().map(|(pid, _)| *pid).collect();
        made = found.into_iter().next().map(|(_, groups)| groups).unwrap_or_default();
        limited.len() > 1
    })
    .await;
    let quota = limit(&made, "cpu.cfs_quota_us", "cpu.max");
    assert!(["150000", "150000 100000"].contains(&quota.as_str()), "{quota}: {made:?}");
    results_of(run).await;
    assert!(!made.iter().any(|group| group.exists()), "{made:?}");
    let is_there = async || postgres.query("postgres", "select 'there'").await;
    assert_eq!(is_there().await, "there", "it was moved, not ended");
    for pid in limited {
        assert_eq!(groups_of(pid), Vec::<PathBuf>::new(), "{pid}");
    }
}

#[tokio::test]
async fn what_cannot_be_limited_is_named_before_anything_runs() {
    // In memory, where no machine counts what a disk does.
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path();
    let refused = |scenario: &str, own: &[&str]| {
        let line = line(path, scenario, own);
        hubbub(&line.iter().map(String::as_str).collect::<Vec<_>>(), "").refusal(1)
    };
    let iops = "server.iops = 500";
    let said = refused(&scenario(1, iops), &[]);
    assert!(said.contains("cgroup.server.iops = 500: "), "{said}");
    let given = refused(&scenario(1, iops), &["--server", "http://127.0.0.1:9"]);
    assert!(given.contains("leave out --server"), "{given}");
    let database = refused(&scenario(1, "database.memory = '1GiB'"), &[]);
    assert!(database.contains("cgroup: database") && database.contains("--postgres"), "{database}");
    assert_eq!(std::fs::read_dir(path).unwrap().count(), 1, "nothing was started");

    let ran = hubbub_at_length(line(path, &scenario(1, &format!("required = false\n{iops}")), &[])).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let results: Value = serde_json::from_str(&ran.stdout).unwrap();
    let said = results["limits"].as_str().unwrap();
    assert!(said.starts_with("without its limits by cgroups: cgroup.server.iops = 500: "), "{said}");
}

#[tokio::test]
async fn a_server_that_needs_more_memory_is_told_of() {
    if !may_limit("memory") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let wide = "title = 'wide'\nworkload = 'kv'\n[options]\nkind = 'get-all'\nkeys = 1_000_000\n\
         duration = '1s'\n[cgroup]\nserver.memory = '32MiB'\n";
    let ran = hubbub_at_length(line(dir.path(), wide, &[])).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains("cgroup.server.memory: a server needed more"), "{ran:?}");
}
