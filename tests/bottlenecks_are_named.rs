//! Faults that are planted on purpose, and the name that the verdict of a run must give them.
//!
//! `FAULT_ROUNDS=3` repeats each. On a machine that is busy with other work most of them must be found, too.

#[cfg(feature = "amqp")]
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

#[cfg(feature = "amqp")]
use crate::harness::Broker;
use crate::harness::program::command;
use crate::harness::{Postgres, Server, hubbub, hubbub_at_length, number};

/// Measurements of one fault at most, on a machine that is busy with other work.
const TRIES_MAX: usize = 3;

/// Share of the machine that others may take before a measurement tells nothing about what was planted.
const OTHERS_MAX: f64 = 0.25;

/// Whether other processes took much of the machine during a measurement, or were its bottleneck.
fn is_disturbed(summary: &Value) -> bool {
    let verdict = &summary["verdict"];
    let figure = |name: &str| verdict["figures"][name].as_f64().unwrap_or_default();
    verdict["bottleneck"] == "other processes" || figure("others") > OTHERS_MAX * figure("cores")
}

/// The summary of a measurement that nothing disturbed, whatever it found; `None` where each was disturbed: a name that is found
/// then says as little as one that is missed.
async fn undisturbed(measure: impl AsyncFn() -> Value) -> Option<Value> {
    for _ in 0..TRIES_MAX {
        let summary = measure().await;
        if !is_disturbed(&summary) {
            return Some(summary);
        }
    }
    None
}

/// Runs an experiment on a store of its own, with these options; its summary.
async fn measure(scenario: &str, own: &[&str]) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let file = path("planted.toml");
    std::fs::write(&file, format!("title = 'planted'\n{scenario}")).unwrap();
    let mut line = ["bench", "run", &file, "--json", "--dir", &path("")].map(str::to_owned).to_vec();
    line.extend(own.iter().map(|word| (*word).to_owned()));
    let ran = hubbub_at_length(line).await;
    let results: Value = serde_json::from_str(&ran.stdout).unwrap_or_default();
    let summary = results["runs"][0]["summary"].clone();
    assert!(summary.is_object(), "{scenario}: {ran:?}");
    summary
}

/// Those of a closed loop that lasts two seconds.
fn chat(connections: usize, in_flight: usize, rest: &str) -> String {
    format!(
        "workload = 'chat'\n{rest}\n[options]\nconnections = {connections}\nin-flight = {in_flight}\n\
         messages = 100_000_000\nduration = '2s'\nwarmup-connections = 1\nwarmup-messages = 1\n"
    )
}

/// Faults that settings and limits plant: what is planted, the name it must get, and a scenario with it.
fn planted() -> Vec<(&'static str, &'static str, String)> {
    let with = |settings: &str| format!("{}{settings}", chat(16, 1, ""));
    let fanout = "workload = 'fanout'\n[options]\nsubscribers = 10\nduration = '2s'\nslow-by = '200ms'\n";
    let open = "workload = 'http'\n[options]\nrate = 50\nduration = '2s'\nconnections = 8\n";
    vec![
        ("slow sync", "disk flush", with("[settings.store.embedded]\nsync_delay = '20ms'\n")),
        ("one message in a sync", "disk flush", {
            with("[settings.store.embedded]\nsync_delay = '5ms'\n[settings.pipeline]\nbatch_max = 1\n")
        }),
        ("a serial section", "commit wait", with("[settings.pipeline]\nlinger = '50ms'\n")),
        ("added delay", "network", chat(16, 1, "network_delay = '60ms'")),
        ("a saturated core", "server CPU", chat(32, 64, "cores = { server = '0' }")),
        ("a slow subscriber", "slow subscriber", fanout.to_owned()),
        ("a low rate", "the load itself", open.to_owned()),
    ]
}

/// The same of PostgreSQL: values that are not in memory, over one connection.
const TINY_POOL: &str = "workload = 'kv'\n[options]\nkind = 'mixed'\nkeys = 500\nconnections = 32\nduration = '2s'\n\
    [settings.kv]\ncache_bytes = '0'\n[settings.store.postgres.pool]\nmin = 1\nmax = 1\n";

/// How often each is planted.
fn rounds() -> u64 {
    number("FAULT_ROUNDS").unwrap_or(1)
}

/// What was named, and whether it was right.
#[derive(Default)]
struct Named {
    right: usize,
    wrong: Vec<String>,
    /// Faults that were only measured on a machine that was busy with other work.
    skipped: usize,
}

impl Named {
    /// Plants a fault, measures, and counts whether it gets this name. What the measurement found, unless it was disturbed.
    async fn plant(&mut self, fault: &str, name: &str, measure: impl AsyncFn() -> Value) -> Option<Value> {
        let summary = undisturbed(measure).await;
        match &summary {
            Some(summary) => self.count(fault, name, summary),
            None => self.skipped += 1,
        }
        summary
    }

    fn count(&mut self, fault: &str, name: &str, summary: &Value) {
        let verdict = &summary["verdict"];
        let evidence = verdict["evidence"].as_str().unwrap_or_default();
        assert!(evidence.chars().any(|c| c.is_ascii_digit()), "evidence has figures: {verdict}");
        if verdict["bottleneck"] == name {
            self.right += 1;
        } else {
            self.wrong.push(format!("{fault} is {name}, not {verdict}"));
        }
    }

    /// 19 of 20 of those that nothing disturbed.
    fn finish(self) {
        let all = self.right + self.wrong.len();
        println!("{} of {all} were named rightly, {} skipped: others were at work", self.right, self.skipped);
        assert!(self.right * 20 >= all * 19, "{} of {all}: {:#?}", self.right, self.wrong);
    }
}

#[tokio::test]
async fn planted_faults_are_named() {
    let mut named = Named::default();
    for _ in 0..rounds() {
        for (fault, name, scenario) in planted() {
            named.plant(fault, name, async || measure(&scenario, &[]).await).await;
        }
    }
    named.finish();
}

#[tokio::test]
async fn planted_faults_of_a_database_are_named() {
    let postgres = Postgres::start("");
    let url = postgres.url("postgres");
    let on_postgres = ["--postgres", &*url];
    let mut named = Named::default();
    for _ in 0..rounds() {
        named.plant("a tiny pool", "pool", async || measure(TINY_POOL, &on_postgres).await).await;
        let load = chat(8, 1, "").replace("'2s'", "'4s'");
        let locked = async || tokio::join!(measure(&load, &on_postgres), repeat(&postgres, LOCK)).0;
        named.plant("a lock", "database", locked).await;
        // A part of one processor, wherever a group may be limited; at least one that it shares with nobody else.
        let few = chat(
            8,
            1,
            "cores = { database = '0' }\ncgroup = { required = false, database = { cpus = 0.3 } }",
        );
        let few = few.replace("'2s'", "'4s'");
        let busy = async || tokio::join!(measure(&few, &on_postgres), repeat(&postgres, BURN)).0;
        named.plant("a database without processors", "database", busy).await;
    }
    named.finish();
}

/// Takes a lock that every batch needs, for most of the time.
const LOCK: &str = "begin; lock table rooms in access exclusive mode; select pg_sleep(0.4); commit";
/// Takes as much of a processor as it gets.
const BURN: &str = "select count(*) from rooms, generate_series(1, 200000)";

/// Does this on the database of a measurement again and again, until that is gone.
async fn repeat(postgres: &Postgres, statements: &str) {
    let find = "select coalesce((select datname from pg_database where datname like 'hubbub_bench_%'), '')";
    let mut name = String::new();
    while name.is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
        name = postgres.query("postgres", find).await;
    }
    let client = postgres.connect(&name).await;
    loop {
        match client.batch_execute(statements).await {
            Ok(()) => tokio::time::sleep(Duration::from_millis(20)).await,
            // The server makes its tables first.
            Err(error) if error.as_db_error().is_some_and(|error| error.code().code() == "42P01") => {
                let _ = client.batch_execute("rollback").await;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(_) => return,
        }
    }
}

/// A proxy that makes each round trip longer; ended with this.
#[cfg(feature = "amqp")]
struct Distance {
    proxy: Child,
    port: String,
}

#[cfg(feature = "amqp")]
impl Distance {
    fn to(port: u16, round_trip: &str) -> Self {
        let mut command = command();
        let to = format!("127.0.0.1:{port}");
        command.args(["bench", "delay-proxy", "--to", &to, "--round-trip", round_trip]);
        let mut proxy = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(proxy.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().rsplit(':').next().unwrap().to_owned();
        Self { proxy, port }
    }
}

#[cfg(feature = "amqp")]
impl Drop for Distance {
    fn drop(&mut self) {
        self.proxy.kill().unwrap();
        self.proxy.wait().unwrap();
    }
}

/// A broker whose confirmations take long, whatever else the machine does.
#[cfg(feature = "amqp")]
#[tokio::test]
async fn a_slow_broker_is_named() {
    let broker = Broker::shared();
    let distance = Distance::to(broker.plain_port(), "80ms");
    let near = format!(":{}/", broker.plain_port());
    let url = broker.url().replace(&near, &format!(":{}/", distance.port));
    let mut named = Named::default();
    for _ in 0..rounds() {
        let slow = async || measure(&chat(16, 1, &format!("log = '{url}'")), &[]).await;
        if let Some(summary) = named.plant("a slow broker", "broker", slow).await {
            let confirm_ms = &summary["verdict"]["figures"]["confirmMs"];
            assert!(confirm_ms.as_f64().is_some_and(|ms| ms >= 80.0), "the round trip is in it: {summary}");
        }
    }
    named.finish();
}

/// A broker that is as fast as it is, behind a server with a thread that does all it can: that the broker's answer is most of
/// the time of a message says nothing then.
#[cfg(feature = "amqp")]
#[tokio::test]
async fn a_broker_behind_a_busy_server_is_not_named() {
    let dir = tempfile::tempdir().unwrap();
    let (program, name) = (with_hot_thread(dir.path()), name_of_hot_thread());
    // Its virtual host is gone when this is.
    let broker = Broker::shared();
    // So few messages that nothing else of the machine is full.
    let load = chat(4, 1, &format!("log = '{}'", broker.url())) + "think = '20ms'\n";
    let mut named = Named::default();
    for _ in 0..rounds() {
        let busy = async || measure(&load, &["--program", &program]).await;
        named.plant("a hot thread before a broker", name, busy).await;
    }
    named.finish();
}

/// A library that gives a process one thread more, which does all it can.
const SPINNING: &str = "#define _GNU_SOURCE
#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
static void *spin(void *nothing) {
  setpriority(PRIO_PROCESS, syscall(SYS_gettid), -10); /* where that is permitted */
  for (;;) __asm__ volatile(\"\");
  return nothing;
}
__attribute__((constructor)) static void begin(void) {
  pthread_t thread;
  if (pthread_create(&thread, 0, spin, 0) == 0) pthread_setname_np(thread, \"planted\");
}
";

/// A program that is the server with such a thread, in `dir`.
fn with_hot_thread(dir: &std::path::Path) -> String {
    let path = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    std::fs::write(path("spin.c"), SPINNING).unwrap();
    let mut compiler = std::process::Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o", &path("spin.so"), &path("spin.c"), "-lpthread"]);
    let compiled = compiler.output().unwrap();
    assert!(compiled.status.success(), "{compiled:?}");
    let program = command().get_program().to_str().unwrap().to_owned();
    let script = format!("#!/bin/sh\nLD_PRELOAD='{}' exec '{program}' \"$@\"\n", path("spin.so"));
    std::fs::write(path("server"), script).unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(path("server"), executable).unwrap();
    path("server")
}

/// What a server with such a thread must be said to lack. With one processor, the thread takes all there is, and one thread
/// cannot be told from all of them.
fn name_of_hot_thread() -> &'static str {
    let is_alone = std::thread::available_parallelism().unwrap().get() == 1;
    if is_alone {
        println!(
            "with one processor, a hot thread must be named server CPU: nothing is tested of one hot thread"
        );
    }
    if is_alone { "server CPU" } else { "one hot thread" }
}

#[tokio::test]
async fn one_hot_thread_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let (program, name) = (with_hot_thread(dir.path()), name_of_hot_thread());
    let load = chat(1, 1, "[settings.pipeline]\nlinger = '50ms'");
    let mut named = Named::default();
    for _ in 0..rounds() {
        named.plant("a hot thread", name, async || measure(&load, &["--program", &program]).await).await;
    }
    named.finish();
}

/// Stops the generator for half of the time, until told that it ended.
fn stop_and_go(generator: &Child, is_over: &Arc<AtomicBool>) -> std::thread::JoinHandle<()> {
    let (id, is_over) = (Pid::from_child(generator), Arc::clone(is_over));
    std::thread::spawn(move || {
        while !is_over.load(Ordering::Relaxed) {
            for signal in [Signal::STOP, Signal::CONT] {
                // It is a child nobody has waited for: its id is its own.
                let _ = kill_process(id, signal);
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    })
}

/// A generator that is stopped half of the time; its summary.
async fn measure_stopped(server: &Server) -> Value {
    let mut command = command();
    command.args(["bench", "chat", "--json", "--quiet", "--server"]).arg(server.url());
    command.args(["-c", "8", "-n", "100000000", "--duration", "3s", "--warmup-connections", "0"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let is_over = Arc::<AtomicBool>::default();
    let stopping = stop_and_go(&child, &is_over);
    let ended = tokio::task::spawn_blocking(move || {
        let mut child = child;
        let mut said = String::new();
        std::io::Read::read_to_string(child.stdout.as_mut().unwrap(), &mut said).unwrap();
        (child, said)
    });
    let (mut child, said) = ended.await.unwrap();
    is_over.store(true, Ordering::Relaxed);
    stopping.join().unwrap();
    child.wait().unwrap();
    serde_json::from_str(&said).unwrap()
}

#[tokio::test]
async fn a_generator_that_stands_still_is_named() {
    let server = Server::start();
    let mut named = Named::default();
    for _ in 0..rounds() {
        let stopped = async || measure_stopped(&server).await;
        named.plant("a generator that stands still", "generator", stopped).await;
    }
    named.finish();
}

#[tokio::test]
async fn processors_that_are_not_there_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("far.toml").to_str().unwrap().to_owned();
    std::fs::write(&file, format!("title = 'x'\n{}", chat(1, 1, "cores = { server = '1000' }"))).unwrap();
    let said = hubbub(&["bench", "run", &file], "").refusal(1);
    assert!(said.contains("cores: server = \"1000\"") && said.contains("no processor 1000"), "{said}");
}
