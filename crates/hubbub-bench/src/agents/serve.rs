//! The agent: waits for coordinators, lets in those that know the secret, and has one run at a time.

use std::convert::Infallible;
use std::ffi::OsString;
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::Args;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::sync::Semaphore;

use super::lines::{TASK_BYTES_MAX, lines};
use super::message::{FromAgent, FromCoordinator, Hello, Task};
use super::secret::Secret;
use crate::client::access::AccessArgs;

/// Connections that have not said yet what they want.
const STRANGERS_MAX: usize = 16;
/// How long they may take.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Between two attempts to take a connection, where that failed.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Args)]
pub(crate) struct AgentArgs {
    /// Where it waits for a coordinator (hubbub bench WORKLOAD --agents)
    #[arg(long, default_value = "127.0.0.1:7070", value_name = "ADDR:PORT")]
    listen: SocketAddr,
    /// A secret that coordinators must know is in this file; without it, only this machine is listened to
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    #[command(flatten)]
    own: OwnArgs,
}

/// What an agent has of its own, whoever coordinates it.
#[derive(Debug, Clone, Args)]
pub(crate) struct OwnArgs {
    /// Threads of the load generator
    #[arg(long, default_value_t = crate::host::machine::cores().min(2), value_name = "N")]
    pub(crate) threads: usize,
    /// Call servers with the token in this file; without it, with that of HUBBUB_TOKEN, if there is one
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// With https://, trust the authorities in this PEM file in place of the system's
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
}

impl OwnArgs {
    pub(super) fn access(&self) -> AccessArgs {
        let (token_file, ca) = (self.token_file.clone(), self.ca.clone());
        AccessArgs { token_file, ca, ..AccessArgs::default() }.or_environment()
    }

    /// As words of a command line.
    fn line(&self) -> Vec<OsString> {
        let mut line: Vec<OsString> = ["--threads".into(), self.threads.to_string().into()].into();
        for (name, file) in [("--token-file", &self.token_file), ("--ca", &self.ca)] {
            line.extend(file.iter().flat_map(|file| [name.into(), file.into()]));
        }
        line
    }
}

/// Serves until the process ends; prints `ready ADDR` when it listens.
///
/// # Errors
/// An address that other machines reach, without a secret; files that cannot be read; an address that is taken.
pub(crate) async fn serve(args: &AgentArgs) -> anyhow::Result<Infallible> {
    let agent = Agent::new(args)?;
    let listener = TcpListener::bind(args.listen).await;
    let listener = listener.with_context(|| format!("cannot listen on {}", args.listen))?;
    let mut out = std::io::stdout();
    writeln!(out, "ready {}", listener.local_addr()?)?;
    out.flush()?;
    let own = args.own.clone();
    agent.attend(listener, move |task, stream| start(task, stream, own.clone())).await
}

/// Has a process of its own do a run: one that is given up leaves nothing behind, however many threads it has.
async fn start(task: Task, stream: TcpStream, own: OwnArgs) -> anyhow::Result<()> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["bench", "agent-run"]).args(own.line()).kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(OwnedFd::from(stream.into_std()?));
    let mut child = command.spawn().context("cannot start the process of the run")?;
    // It has the connection now; with it alone the connection ends.
    drop(command);
    let mut input = child.stdin.take().context("the process of the run takes no input")?;
    let mut line = serde_json::to_vec(&task)?;
    line.push(b'\n');
    input.write_all(&line).await.context("the process of the run takes no task")?;
    // Its input stays open, so that it ends when this process does.
    let status = child.wait().await?;
    ensure!(status.success(), "the run ended with {status}");
    Ok(())
}

pub(super) struct Agent {
    secret: Option<Secret>,
    tokens: &'static str,
    connections: AtomicU64,
    /// Of the one run.
    turn: Semaphore,
    strangers: Arc<Semaphore>,
}

impl Agent {
    pub(super) fn new(args: &AgentArgs) -> anyhow::Result<Arc<Self>> {
        let read = |path: &PathBuf| Secret::read("--secret-file", path);
        let secret = args.secret_file.as_ref().map(read).transpose()?;
        ensure!(
            args.listen.ip().is_loopback() || secret.is_some(),
            "--listen {} can be reached from other machines, and whoever reaches it could have this one send load \
             anywhere; give --secret-file, or listen on 127.0.0.1",
            args.listen
        );
        Ok(Arc::new(Self {
            secret,
            tokens: args.own.access().credentials()?.kind(),
            connections: AtomicU64::new(0),
            turn: Semaphore::new(1),
            strangers: Arc::new(Semaphore::new(STRANGERS_MAX)),
        }))
    }

    /// Takes connections; `start` has their runs.
    pub(super) async fn attend<R>(
        self: Arc<Self>,
        listener: TcpListener,
        start: impl Fn(Task, TcpStream) -> R + Clone + Send + Sync + 'static,
    ) -> anyhow::Result<Infallible>
    where
        R: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        loop {
            let Ok((stream, peer)) = listener.accept().await else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            let Ok(stranger) = Arc::clone(&self.strangers).try_acquire_owned() else { continue };
            let (agent, start) = (Arc::clone(&self), start.clone());
            tokio::spawn(async move {
                let welcomed = tokio::time::timeout(HANDSHAKE, agent.welcome(stream)).await;
                drop(stranger);
                let ran = match welcomed {
                    Ok(Ok((task, stream))) => agent.run(task, stream, start).await,
                    Ok(Err(error)) => Err(error),
                    Err(_) => Err(anyhow::anyhow!("said for too long not what it wants")),
                };
                if let Err(error) = ran {
                    // Nobody may read it.
                    let _ = writeln!(std::io::stderr(), "{peer}: {error:#}");
                }
            });
        }
    }

    /// Hears what somebody wants, and whether it may be.
    async fn welcome(&self, stream: TcpStream) -> anyhow::Result<(Task, TcpStream)> {
        let (mut incoming, mut outgoing) = lines(stream, TASK_BYTES_MAX)?;
        let number = self.connections.fetch_add(1, Ordering::Relaxed);
        let nonce = format!("{:016x}-{number}", crate::host::machine::seed());
        let hello = Hello::here(nonce.clone(), self.secret.is_some(), self.tokens);
        outgoing.say(&FromAgent::Hello(hello)).await?;
        let FromCoordinator::Prepare(task) = incoming.next().await? else { bail!("it said no task") };
        let is_known = self
            .secret
            .as_ref()
            .is_none_or(|secret| task.proof.as_deref().is_some_and(|proof| secret.is_proved(&nonce, proof)));
        if !is_known {
            let error = "the secret is not that of --secret-file".to_owned();
            outgoing.say(&FromAgent::Failed { error }).await?;
            bail!("a coordinator that does not know the secret was refused");
        }
        Ok((task, incoming.reunite(outgoing)?))
    }

    async fn run<R>(
        &self,
        task: Task,
        stream: TcpStream,
        start: impl Fn(Task, TcpStream) -> R,
    ) -> anyhow::Result<()>
    where
        R: Future<Output = anyhow::Result<()>>,
    {
        let Ok(_turn) = self.turn.try_acquire() else {
            let (_, mut outgoing) = lines(stream, TASK_BYTES_MAX)?;
            let error = "it is busy with another run".to_owned();
            return outgoing.say(&FromAgent::Failed { error }).await;
        };
        start(task, stream).await
    }
}
