//! The command line of `hubbub bench`.

use std::io::Write as _;
use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand};

use crate::bare::{self, Kind};
use crate::chat::{self, ChatArgs};
use crate::fanout::{self, FanoutArgs};
use crate::http::{self, HttpArgs};
use crate::kv::{self, KvArgs};
use crate::limits::{self, LimitsArgs};
use crate::options::Common;
use crate::persist::{self, PersistArgs};
use crate::query::{self, QueryArgs};
use crate::queue::{self, QueueArgs};
use crate::report::Report;
use crate::suite::{self, SuiteArgs};
#[cfg(feature = "postgres")]
use crate::sweep::{self, SweepArgs};

/// Options of `hubbub bench`.
#[derive(Debug, Clone, Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Clone, Subcommand)]
enum Command {
    /// Chat over WebSockets: each connection sends and waits for its answers (closed loop)
    Chat(ChatArgs),
    /// Sending over HTTP at a given rate (open loop), with listeners on WebSockets
    Http(HttpArgs),
    /// Many subscribers of one room, and a few senders that never run ahead of them
    Fanout(FanoutArgs),
    /// Clients that send to each other through queues, over HTTP or the line protocol
    Queue(QueueArgs),
    /// Getting, putting and deleting keys
    Kv(KvArgs),
    /// Messages through the log into the store, until all of them are stored
    Persist(PersistArgs),
    /// What the size of a batch is worth on PostgreSQL, with and without waiting for company
    #[cfg(feature = "postgres")]
    Sweep(SweepArgs),
    /// The questions that matter, at a store that holds messages: each alone, then all beside messages
    Query(QueryArgs),
    /// What this machine can do at most: bare servers and the disk alone
    Limits(LimitsArgs),
    /// The whole table of speed and memory, each row against its bare limit
    Suite(SuiteArgs),
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
    },
}

/// Runs a measurement; fails (exit code 1) when messages were lost or the ledger does not balance.
pub fn run(args: BenchArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        Command::Chat(args) => {
            let report = runtime(args.common.threads)?.block_on(chat::measure(&args))?;
            finish(&report, &args.common)
        }
        Command::Http(args) => {
            let report = runtime(args.common.threads)?.block_on(http::measure(&args))?;
            finish(&report, &args.common)
        }
        Command::Fanout(args) => {
            let report = runtime(args.common.threads)?.block_on(fanout::measure(&args))?;
            finish(&report, &args.common)
        }
        Command::Queue(args) => {
            let report = runtime(args.common.threads)?.block_on(queue::measure(&args))?;
            finish(&report, &args.common)
        }
        Command::Kv(args) => {
            let report = runtime(args.common.threads)?.block_on(kv::measure(&args))?;
            finish(&report, &args.common)
        }
        Command::Persist(args) => {
            let outcome = runtime(args.common.threads)?.block_on(persist::measure(&args))?;
            if let Some(dir) = &args.common.out {
                outcome.write_files(dir)?;
            }
            let mut out = std::io::stdout().lock();
            if args.common.json {
                writeln!(out, "{}", serde_json::to_string(&outcome)?)?;
            } else {
                write!(out, "{}", outcome.terminal())?;
            }
            Ok(if outcome.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        #[cfg(feature = "postgres")]
        Command::Sweep(args) => {
            let sweep = runtime(args.threads)?.block_on(sweep::measure(&args))?;
            let mut out = std::io::stdout().lock();
            if args.json {
                writeln!(out, "{}", serde_json::to_string(&sweep)?)?;
            } else {
                write!(out, "{}", sweep.terminal())?;
            }
            Ok(if sweep.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Command::Query(args) => {
            let answers = runtime(args.common.threads)?.block_on(query::measure(&args))?;
            let mut out = std::io::stdout().lock();
            if args.common.json {
                writeln!(out, "{}", serde_json::to_string(&answers)?)?;
            } else {
                write!(out, "{}", answers.terminal())?;
            }
            Ok(if answers.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Command::Limits(args) => {
            let limits = runtime(args.threads)?.block_on(limits::measure(&args))?;
            let mut out = std::io::stdout().lock();
            if args.json {
                writeln!(out, "{}", serde_json::to_string(&limits)?)?;
            } else {
                write!(out, "{}", limits.terminal())?;
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::Suite(args) => {
            let (table, ok) = runtime(args.threads)?.block_on(suite::measure(&args))?;
            if let Some(path) = &args.out {
                std::fs::write(path, &table).with_context(|| format!("cannot write {}", path.display()))?;
            }
            write!(std::io::stdout().lock(), "{table}")?;
            Ok(if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Command::BareServer { kind, listen, threads } => {
            runtime(threads)?.block_on(bare::serve(kind, listen))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn runtime(threads: usize) -> anyhow::Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(threads.max(1)).enable_all().build().context("cannot start threads")
}

fn finish(report: &Report, common: &Common) -> anyhow::Result<ExitCode> {
    if let Some(dir) = &common.out {
        report.write_files(dir)?;
    }
    let mut out = std::io::stdout().lock();
    if common.json {
        writeln!(out, "{}", serde_json::to_string(report)?)?;
    } else {
        write!(out, "{}", report.terminal())?;
    }
    Ok(if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
