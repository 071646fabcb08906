//! Servers as child processes: a bare one, or the real one with a data directory.

use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::ValueEnum;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::client::Target;
use crate::experiments::bare::Kind;
use crate::host::children::tied;
use crate::host::lab::cgroup::Group;
use crate::options::arguments;
use crate::report::Report;
use crate::workloads::engine::{self, Loading, Workload};

const READY: Duration = Duration::from_secs(120);
/// How long one that was killed may take to end, and between two looks.
const END_MAX: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(1);

/// Lines of a server's log that are shown when it does not start.
const LOG_LINES: usize = 5;

#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    pub(crate) url: String,
    pub(crate) pid: u32,
    /// From the start of the process to its `ready` line.
    pub(crate) ready_after: Duration,
    /// The directory that goes when the server does.
    pub(crate) data: Option<TempDir>,
}

/// What a server stores in, and behind what; by default itself and nothing.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Engines<'u> {
    pub(crate) store: Option<&'u str>,
    pub(crate) log: Option<&'u str>,
}

impl Server {
    /// Starts a bare server: this program again. What it makes durable goes below `dir`.
    pub(crate) async fn bare(kind: Kind, dir: &Path, env: &[(&str, &str)]) -> anyhow::Result<Self> {
        let name = kind.to_possible_value().context("the kind has no name")?;
        let mut command = Command::new(std::env::current_exe()?);
        command.envs(env.iter().copied());
        command.args(["bench", "bare-server", "--kind", name.get_name(), "--dir"]).arg(dir);
        Self::start(command, Stdio::inherit()).await
    }

    /// Starts a proxy to the server at `url` that makes each round trip longer.
    pub(crate) async fn delaying(url: &str, round_trip: Duration) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let target = Target::parse(url)?;
        let (to, micros) = (target.address().to_string(), format!("{}us", round_trip.as_micros()));
        command.args(["bench", "delay-proxy", "--to", &to, "--round-trip", &micros]);
        let mut proxy = Self::start(command, Stdio::inherit()).await?;
        proxy.url.push_str(&target.prefix);
        Ok(proxy)
    }

    /// Starts the real server on `data`; its log goes beside it.
    pub(crate) async fn real(program: &Path, data: &Path, env: &[(&str, &str)]) -> anyhow::Result<Self> {
        let mut command = Command::new(program);
        command.arg("serve").envs(env.iter().copied());
        Self::serve(command, data).await
    }

    /// The same with these settings, whatever the environment says, in a group, and on these engines, whose URLs may hold
    /// passwords: the settings show in the list of processes.
    pub(crate) async fn configured<'s>(
        program: &Path,
        data: &Path,
        settings: impl Iterator<Item = (&'s str, &'s str)>,
        engines: Engines<'_>,
        group: &Group,
    ) -> anyhow::Result<Self> {
        let mut command = group.command(program);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("HUBBUB_"))
        {
            command.env_remove(name);
        }
        command.envs(engines.store.map(|url| ("HUBBUB_STORE", url)));
        command.envs(engines.log.map(|url| ("HUBBUB_LOG", url)));
        // Nor the file that happens to be here.
        command
            .args(["serve", "--config", "/dev/null"])
            .args(settings.flat_map(|(key, value)| ["--set".to_owned(), format!("{key}={value}")]));
        Self::serve(command, data).await
    }

    async fn serve(mut command: Command, data: &Path) -> anyhow::Result<Self> {
        // No flag: where the store is a database, that would be refused as passed over.
        command.args(["--listen", "127.0.0.1:0"]).env("HUBBUB_DATA", data);
        let log = data.with_extension("log");
        let file =
            File::options().create(true).append(true).open(&log).context("cannot write the server's log")?;
        // The log goes with the data.
        Self::start(command, Stdio::from(file)).await.map_err(|error| {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            let end = text.lines().rev().take(LOG_LINES).collect::<Vec<_>>();
            if end.is_empty() {
                return error;
            }
            error.context(format!(
                "the end of its log: {}",
                end.into_iter().rev().collect::<Vec<_>>().join(" | ")
            ))
        })
    }

    async fn start(mut command: Command, log: Stdio) -> anyhow::Result<Self> {
        let begun = Instant::now();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let mut child = tied(&mut command).spawn().context("cannot start a server")?;
        let out = child.stdout.take().context("no output")?;
        let pid = child.id().context("the server ended")?;
        // It is ended with this from now on, whatever becomes of it.
        let mut server = Self { child, url: String::new(), pid, ready_after: Duration::ZERO, data: None };
        let mut lines = BufReader::new(out).lines();
        let line = tokio::time::timeout(READY, lines.next_line())
            .await
            .context("the server was not ready in time")??;
        let Some(url) = line.as_deref().and_then(|line| line.strip_prefix("ready ")) else {
            bail!("the server did not get ready");
        };
        url.clone_into(&mut server.url);
        server.ready_after = begun.elapsed();
        Ok(server)
    }

    /// Loads it with a workload, for `time` where the workload's own options do not say when it ends.
    pub(crate) async fn load<W: Workload>(
        &self,
        time: Option<Duration>,
        own: &[&str],
    ) -> anyhow::Result<Report> {
        let (pid, seconds) = (self.pid.to_string(), time.map(|time| format!("{}s", time.as_secs_f64())));
        let mut line = vec!["--quiet", "--server", &self.url, "--server-pid", &pid];
        line.extend(seconds.iter().flat_map(|seconds| ["--duration", seconds]));
        if !own.contains(&"--database") {
            line.extend(["--database", "none"]);
        }
        line.extend(own);
        engine::measure(&arguments::<Loading<W>>(W::NAME, &line)?).await
    }

    /// Has `work` done with it, then ends it; what fails leaves no process behind, either.
    pub(crate) async fn during<R>(
        self,
        work: impl AsyncFnOnce(&Self) -> anyhow::Result<R>,
    ) -> anyhow::Result<R> {
        let result = work(&self).await?;
        self.kill().await?;
        Ok(result)
    }

    pub(crate) async fn kill(mut self) -> anyhow::Result<()> {
        Ok(self.child.kill().await?)
    }
}

impl Drop for Server {
    /// Waits for its end: until then it may write into a directory that is to go.
    fn drop(&mut self) {
        // One that has ended cannot be killed.
        let _ = self.child.start_kill();
        let begun = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && begun.elapsed() < END_MAX {
            std::thread::sleep(PAUSE);
        }
    }
}
