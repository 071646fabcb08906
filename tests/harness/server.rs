//! A server process: started on a free port, killed at the latest when dropped.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use hyper::Method;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use super::{Http, Line, PATIENCE, program, until};

/// Where the line protocol is spoken, on the server's own loopback address.
pub(super) const LINE_PORT: u16 = 3456;

/// How to start a server.
#[derive(Clone)]
pub(crate) struct Setup {
    settings: Vec<String>,
    environment: Vec<(String, String)>,
    has_line: bool,
    /// Whether its data is in the directory.
    has_data: bool,
    data: PathBuf,
    /// Removes the directory with the last one that refers to it.
    dir: Arc<TempDir>,
}

impl Setup {
    /// A new data directory.
    pub(crate) fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("hubbub-test-").tempdir().unwrap();
        // Small slots: they need not be filled with zeros for long, and small histories have segments too.
        let settings = ["store.embedded.journal_slot=1MiB", "limits.value_bytes=256KiB"];
        let settings = settings.map(Into::into).into();
        Self {
            settings,
            environment: Vec::new(),
            has_line: false,
            has_data: true,
            data: dir.path().join("data"),
            dir: Arc::new(dir),
        }
    }

    /// The same on another data directory, beside the new one unless the path is absolute.
    pub(crate) fn on(mut self, data: impl AsRef<Path>) -> Self {
        self.data = self.beside(data);
        self
    }

    /// A path beside the data directory; removed with it.
    pub(crate) fn beside(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(name)
    }

    /// With the line protocol.
    pub(crate) fn line(mut self) -> Self {
        self.has_line = true;
        self
    }

    /// With a store that is named by its environment or file: a directory on the command line is refused beside that.
    pub(crate) fn elsewhere(mut self) -> Self {
        self.has_data = false;
        self
    }

    /// With another store.
    pub(crate) fn store(self, url: &str) -> Self {
        self.set(&format!("store.url={url}"))
    }

    pub(crate) fn set(mut self, setting: &str) -> Self {
        self.settings.push(setting.to_owned());
        self
    }

    /// With a variable in its environment.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The data directory; there only once a server was.
    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    /// The file by which [`Server::set_clock`] says how wrong the server's wall clock is.
    fn clock(&self) -> PathBuf {
        self.beside("clock")
    }

    /// The server's wall clock is wrong by so many seconds from now on, and so are those of others with this setup.
    pub(crate) fn set_clock(&self, ahead_s: i64) {
        // Replaced at once, so that nobody reads half a number.
        let next = self.beside("clock.next");
        std::fs::write(&next, (ahead_s * 1_000).to_string()).unwrap();
        std::fs::rename(next, self.clock()).unwrap();
    }

    /// The arguments of `hubbub serve` on `listen`.
    pub(crate) fn arguments(&self, listen: &str) -> Vec<String> {
        let mut arguments: Vec<String> = ["serve", "--listen", listen].map(Into::into).into();
        if self.has_data {
            arguments.extend(["--data".to_owned(), self.data.display().to_string()]);
        }
        if self.has_line {
            let (host, _) = listen.rsplit_once(':').unwrap();
            arguments.extend(["--line".to_owned(), format!("{host}:{LINE_PORT}")]);
        }
        // On a busy machine, whoever does not read for a while answers no ping in time.
        if !self.settings.iter().any(|setting| setting.starts_with("server.ping_interval=")) {
            arguments.extend(["--set".to_owned(), "server.ping_interval=1h".to_owned()]);
        }
        for setting in &self.settings {
            arguments.extend(["--set".to_owned(), setting.clone()]);
        }
        arguments
    }

    pub(crate) fn start(self) -> Server {
        // Each server has a loopback address of its own, so that nobody takes its port while it is down.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed) + 1;
        let [.., a, b] = (std::process::id() * 64 + number).to_be_bytes();
        let host = if cfg!(target_os = "linux") { format!("127.1.{a}.{b}") } else { "127.0.0.1".into() };
        let (running, address) = Running::start(&self, &format!("{host}:0"));
        Server { running, setup: self, address }
    }
}

/// A server that runs.
pub(crate) struct Server {
    // Ends before its directory is removed with the setup.
    running: Running,
    setup: Setup,
    address: SocketAddr,
}

impl Server {
    /// With a new data directory and default settings.
    pub(crate) fn start() -> Self {
        Setup::new().start()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn process_id(&self) -> u32 {
        self.running.child.id()
    }

    /// A connection of the line protocol, which the setup must have.
    pub(crate) async fn line(&self) -> Line {
        Line::connect(SocketAddr::new(self.address.ip(), LINE_PORT)).await
    }

    /// What it has written to standard error since it was last started.
    pub(crate) fn log(&self) -> String {
        self.running.log.lock().unwrap().clone()
    }

    /// How it was started.
    pub(crate) fn setup(&self) -> Setup {
        self.setup.clone()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn data(&self) -> &Path {
        self.setup.data()
    }

    /// Its wall clock is wrong by so many seconds from now on.
    pub(crate) fn set_clock(&self, ahead_s: i64) {
        self.setup.set_clock(ahead_s);
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        self.running.end();
    }

    /// Sends SIGTERM; returns at once.
    pub(crate) fn terminate(&self) {
        self.running.signal(Signal::TERM);
    }

    /// Stops it where it is, until [`Server::resume`]. Returns once all of its threads stand still.
    pub(crate) fn pause(&self) {
        self.running.signal(Signal::STOP);
        let tasks = format!("/proc/{}/task", self.running.child.id());
        let is_stopped = |task: std::fs::DirEntry| {
            // A thread that is gone runs no more. Its state stands behind the name, which may hold anything.
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with(['T', 't']))
        };
        let until = std::time::Instant::now() + super::PATIENCE;
        while !std::fs::read_dir(&tasks).unwrap().all(|task| is_stopped(task.unwrap())) {
            assert!(std::time::Instant::now() < until, "it does not stand still");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    /// Has it go on.
    pub(crate) fn resume(&self) {
        self.running.signal(Signal::CONT);
    }

    /// Sends SIGHUP.
    pub(crate) fn hang_up(&self) {
        self.running.signal(Signal::HUP);
    }

    /// Sends SIGINT, as Ctrl-C does.
    pub(crate) fn interrupt(&self) {
        self.running.signal(Signal::INT);
    }

    /// Waits for the end of the process.
    pub(crate) async fn exit(&mut self) -> ExitStatus {
        let child = &mut self.running.child;
        let mut status = None;
        until("the end of the server", async || {
            status = child.try_wait().unwrap();
            status.is_some()
        })
        .await;
        status.unwrap()
    }

    /// Starts, and is killed after `delay` whether it is ready or not.
    pub(crate) fn kill_while_starting(&mut self, delay: std::time::Duration) {
        self.kill();
        let mut command = program::command();
        command.args(self.setup.arguments(&self.address.to_string()));
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(delay);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Starts again on the same data and the same address, after a `kill -9` if it still runs.
    pub(crate) fn restart(&mut self) {
        self.restart_with(&[]);
    }

    /// The same with other settings.
    pub(crate) fn restart_with(&mut self, settings: &[&str]) {
        self.kill();
        for setting in settings {
            self.setup.settings.push((*setting).to_owned());
        }
        (self.running, _) = Running::start(&self.setup, &self.address.to_string());
    }

    /// Runs a client command against it without blocking the test's other tasks.
    pub(crate) async fn run(&self, arguments: &[&str], input: &str) -> super::Ran {
        let mut arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        arguments.extend(["--server".to_owned(), self.url()]);
        super::hubbub_aside(arguments, input.to_owned()).await
    }

    /// SIGTERM, and the end of the process, which must be an orderly one.
    pub(crate) async fn stop(&mut self) {
        self.terminate();
        let status = self.exit().await;
        assert!(status.success(), "{status}");
    }

    /// A connection that is kept.
    pub(crate) async fn http(&self) -> Http {
        Http::connect(self.address).await
    }

    pub(crate) async fn get(&self, path: &str) -> super::Answer {
        self.http().await.get(path).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> super::Answer {
        self.http().await.post(path, body.to_string()).await
    }

    /// On behalf of `user`; empty = an administrator. `null` = without a body.
    pub(crate) async fn call(&self, user: &str, method: Method, path: &str, body: Value) -> super::Answer {
        let headers = [("hubbub-user", user)];
        let headers = if user.is_empty() { &[][..] } else { &headers[..] };
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.http().await.request(method, path, headers, body).await
    }

    /// One value of `/metrics`, without the prefix `hubbub_`.
    pub(crate) async fn metric(&self, name: &str) -> u64 {
        self.metric_text(&format!("hubbub_{name}")).await.parse().unwrap()
    }

    /// One value of `/metrics` as it is written there, by its whole name.
    pub(crate) async fn metric_text(&self, name: &str) -> String {
        let text = self.get("/metrics").await.text();
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("no {name} in\n{text}")).to_owned()
    }
}

struct Running {
    child: Child,
    log: Arc<Mutex<String>>,
}

impl Running {
    /// Starts a process and waits until it says that it is ready, and where.
    fn start(setup: &Setup, listen: &str) -> (Self, SocketAddr) {
        let mut command = program::command();
        command.envs(setup.environment.iter().cloned());
        command.env("HUBBUB_TEST_CLOCK", setup.clock());
        command.args(setup.arguments(listen)).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let stderr = child.stderr.take().unwrap();
        let kept = log.clone();
        std::thread::spawn(move || keep(stderr, &kept));
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, ready) = mpsc::channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            let _ = stdout.read_line(&mut line);
            let _ = sender.send(line);
            // What else it prints is nothing, but a closed pipe would change how it behaves.
            let _ = std::io::copy(&mut stdout, &mut std::io::sink());
        });
        let running = Self { child, log };
        let line = ready.recv_timeout(PATIENCE).expect("the server neither got ready nor ended");
        let url = line.trim_end().strip_prefix("ready http");
        let address = url.map(|url| url.trim_start_matches('s').trim_start_matches("://"));
        let address = address.and_then(|at| at.parse().ok());
        let address = address.unwrap_or_else(|| panic!("not ready but {line:?}"));
        (running, address)
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn end(&mut self) {
        // Fails when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
        if std::thread::panicking() {
            eprintln!("--- the server's log\n{}---", self.log.lock().unwrap_or_else(|e| e.into_inner()));
        }
    }
}

fn keep(mut from: impl Read, log: &Mutex<String>) {
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        log.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..count]));
    }
}
