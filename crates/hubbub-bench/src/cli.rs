//! The command line of `hubbub bench`.

use std::io::{ErrorKind, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Subcommand};

use crate::agents::{self, AgentArgs, OwnArgs};
use crate::analysis::capacity::{self, ModelArgs};
use crate::experiments::bare::{self, Kind};
use crate::experiments::limits::{self, LimitsArgs};
use crate::experiments::scenario::{self, CompareArgs, FindMaxArgs, PublishArgs, ReportArgs, RunArgs};
use crate::experiments::suite::{self, SuiteArgs};
use crate::host::cleanup::Made;
use crate::host::lab::delay;
use crate::options::{Common, duration};
use crate::stop::{Stopped, unless_stopped};
use crate::workloads::chat::ChatArgs;
use crate::workloads::engine::{self, Findings, Loading, Workload};
use crate::workloads::fanout::FanoutArgs;
use crate::workloads::http::HttpArgs;
use crate::workloads::kv::KvArgs;
use crate::workloads::persist::PersistArgs;
use crate::workloads::query::{self, QueryArgs};
use crate::workloads::queue::QueueArgs;

/// Wrong usage that only the command itself can find: a scenario with a fault, or a directory that is in use.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub(crate) String);

/// Options of `hubbub bench`.
#[derive(Debug, Clone, Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Clone, Subcommand)]
enum Command {
    /// Chat over WebSockets: each connection sends and waits for its answers (closed loop)
    Chat(Loading<ChatArgs>),
    /// Sending over HTTP at a given rate (open loop), with listeners on WebSockets
    Http(Loading<HttpArgs>),
    /// Many subscribers of one room, and a few senders that never run ahead of them
    Fanout(Loading<FanoutArgs>),
    /// Clients that send to each other through queues, over HTTP or the line protocol
    Queue(Loading<QueueArgs>),
    /// Getting, putting and deleting keys
    Kv(Loading<KvArgs>),
    /// Messages through the log into the store, until all of them are stored
    Persist(Loading<PersistArgs>),
    /// The questions that matter, at a store that holds messages: each alone, then all beside messages
    Query(Loading<QueryArgs>),
    /// An experiment from a file: a workload with its options, points to sweep over, thresholds
    Run(RunArgs),
    /// The highest rate at which an experiment from a file keeps its thresholds
    FindMax(FindMaxArgs),
    /// The report of a directory that `run --out` wrote, made anew from its results
    Report(ReportArgs),
    /// Pages for readers, made of directories that `run --out` wrote
    Publish(PublishArgs),
    /// The scenarios that are provided for `run`
    List,
    /// The text of a scenario, to make another from
    Show {
        /// Its name, or a file
        #[arg(value_name = "NAME")]
        scenario: String,
    },
    /// Two results of `run --out` side by side, with confidence intervals
    Compare(CompareArgs),
    /// How many nodes and partitions a load needs, and what is full first, by measured costs
    Model(ModelArgs),
    /// What this machine can do at most: bare servers and the disk alone
    Limits(LimitsArgs),
    /// The whole table of speed and memory, each row against its bare limit
    Suite(SuiteArgs),
    /// Waits for a `hubbub bench WORKLOAD --agents`, and sends its part of the load
    Agent(AgentArgs),
    /// One run of an agent
    #[command(hide = true)]
    AgentRun(OwnArgs),
    /// A proxy that makes every round trip longer
    #[command(hide = true)]
    DelayProxy {
        /// Where it connects to
        #[arg(long)]
        to: SocketAddr,
        /// By how much
        #[arg(long, value_parser = duration)]
        round_trip: Duration,
    },
    /// A server that only speaks a protocol, to measure against
    #[command(hide = true)]
    BareServer {
        /// What it does
        #[arg(long, value_enum)]
        kind: Kind,
        /// Where it listens
        #[arg(long, default_value = "127.0.0.1:0")]
        listen: SocketAddr,
        /// Threads
        #[arg(long, default_value_t = 2)]
        threads: usize,
        /// Directory for what is made durable
        #[arg(long, default_value = ".")]
        dir: PathBuf,
    },
}

/// How long what measures on a thread of its own may take to end, once it is told to stop.
const STOP_MAX: Duration = Duration::from_secs(5);

/// Runs a measurement; fails (exit code 1) when messages were lost or the ledger does not balance.
pub fn run(args: BenchArgs) -> anyhow::Result<ExitCode> {
    let ran = command(args.command);
    let stopped = ran.as_ref().err().and_then(|error| error.downcast_ref::<Stopped>().copied());
    let Some(stopped) = stopped else { return ran };
    // Nobody can be told that the terminal is gone.
    let _ = writeln!(std::io::stderr(), "hubbub: {stopped}");
    Ok(ExitCode::from(stopped.code))
}

fn command(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Chat(args) => load(args),
        Command::Http(args) => load(args),
        Command::Fanout(args) => load(args),
        Command::Queue(args) => load(args),
        Command::Kv(args) => load(args),
        Command::Persist(args) => load(args),
        Command::Query(args) => {
            let args = of_the_user(args);
            show(&args.common, query::measure(&args))
        }
        Command::Run(args) => {
            check_out(args.out.as_deref(), args.overwrite)?;
            print(&wait_for(args.threads, scenario::measure(&args))?, args.json)
        }
        Command::FindMax(args) => {
            check_out(args.run.out.as_deref(), args.run.overwrite)?;
            print(&wait_for(args.run.threads, scenario::find_max(&args))?, args.run.json)
        }
        Command::Report(args) => print(&scenario::report(&args)?, args.json),
        Command::Publish(args) => print(&scenario::publish(&args)?, args.json),
        Command::List => text(&scenario::list()?),
        Command::Show { scenario } => text(&scenario::show(&scenario)?),
        Command::Compare(args) => {
            let comparison = scenario::compare(&args)?;
            if let Some(dir) = &args.out {
                comparison.write_files(dir)?;
            }
            print(&comparison, args.json)
        }
        Command::Model(args) => print(&capacity::predict(&args)?, args.json),
        Command::Limits(args) => print(&wait_for(args.threads, limits::measure(&args))?, args.json),
        Command::Suite(args) => {
            check_out(args.out.as_deref(), args.overwrite)?;
            let table = wait_for(args.threads, suite::measure(&args))?;
            if let Some(dir) = &args.out {
                table.write_files(dir)?;
            }
            print(&table, false)
        }
        Command::Agent(args) => match runtime(1)?.block_on(agents::serve(&args))? {},
        Command::AgentRun(args) => {
            let runtime = runtime(args.threads)?;
            let performed = runtime.block_on(agents::perform_one(&args));
            // What a run that was given up still does ends with the process.
            runtime.shutdown_background();
            performed.map(|()| ExitCode::SUCCESS)
        }
        Command::DelayProxy { to, round_trip } => {
            runtime(2)?.block_on(delay::serve(to, round_trip))?;
            Ok(ExitCode::SUCCESS)
        }
        Command::BareServer { kind, listen, threads, dir } => {
            runtime(threads)?.block_on(bare::serve(kind, listen, &dir))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn runtime(threads: usize) -> anyhow::Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(threads.max(1)).enable_all().build().context("cannot start threads")
}

/// Does `work` on threads of its own, unless the process is told to stop.
fn wait_for<T>(threads: usize, work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    // The future of a whole experiment is large: it is not to be on the stack more than once.
    let (work, runtime) = (Box::pin(work), runtime(threads)?);
    let done = runtime.block_on(unless_stopped(work));
    if done.as_ref().is_err_and(|error| error.is::<Stopped>()) {
        runtime.shutdown_timeout(STOP_MAX);
    }
    done
}

/// A run that the user asks for: what the environment says concerns no run within others, which leave to this one what is to be
/// removed.
fn of_the_user<W: clap::Args>(mut args: Loading<W>) -> Loading<W> {
    args.common.access = args.common.access.or_environment();
    args.common.made = Made::in_servers_of(&args.common);
    args
}

fn load<W: Workload>(args: Loading<W>) -> anyhow::Result<ExitCode> {
    let args = of_the_user(args);
    show(&args.common, engine::measure(&args))
}

fn show<F: Findings>(
    common: &Common,
    measuring: impl Future<Output = anyhow::Result<F>>,
) -> anyhow::Result<ExitCode> {
    check_out(common.out.as_deref(), common.overwrite)?;
    let found = wait_for(common.threads, measuring);
    let is_measured = found.is_ok();
    let shown = found.and_then(|found| {
        if let Some(dir) = &common.out {
            found.write_files(dir)?;
        }
        print(&found, common.json)
    });
    // However it ended; whoever does not want to wait for this, either, stops it again.
    let removed = wait_for(common.threads, async {
        common.made.remove(is_measured).await;
        Ok(())
    });
    shown.and_then(|code| removed.map(|()| code))
}

/// Refuses a directory for results that has something in it: results of hours may be among it.
fn check_out(out: Option<&Path>, overwrites: bool) -> anyhow::Result<()> {
    let Some(dir) = out else { return Ok(()) };
    let fault = match std::fs::read_dir(dir).map(|mut names| names.next().is_some()) {
        Ok(true) if !overwrites => {
            "this directory is not empty; name another, or write over what is there with --overwrite"
                .to_owned()
        }
        Err(error) if error.kind() != ErrorKind::NotFound => error.to_string(),
        _ => return Ok(()),
    };
    Err(UsageError(format!("--out {}: {fault}", dir.display())).into())
}

fn text(text: &str) -> anyhow::Result<ExitCode> {
    write!(std::io::stdout().lock(), "{text}")?;
    Ok(ExitCode::SUCCESS)
}

fn print(found: &impl Findings, is_json: bool) -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    if is_json {
        writeln!(out, "{}", serde_json::to_string(found)?)?;
    } else {
        write!(out, "{}", found.terminal())?;
    }
    Ok(if found.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
