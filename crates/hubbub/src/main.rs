//! The `hubbub` command: parses arguments, runs the command, prints its error and chooses the exit code.

mod admin;
mod cli;
mod client;
mod config;
mod logging;
mod memory;
mod serve;
mod stores;
mod supervision;
mod system;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Exit codes, as documented in `--help`.
mod exit {
    /// Something failed.
    pub(crate) const FAILURE: u8 = 1;
    /// Invalid usage or configuration.
    pub(crate) const USAGE: u8 = 2;
    /// The data directory is locked or damaged.
    pub(crate) const DATA: u8 = 3;
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Serve(args) => serve::run(&args),
        Command::Config(args) => config::command::run(&args),
        Command::Backup(args) => client::run(admin::backup::backup(args)),
        Command::Restore(args) => admin::restore::restore(&args),
        #[cfg(any(feature = "postgres", feature = "scylla"))]
        Command::Migrate(args) => client::run(admin::migrate::migrate(args)),
        Command::Verify(args) => admin::verify::verify(&args),
        Command::Export(args) => client::run(client::export::export(args)),
        Command::Import(args) => client::run(client::import::import(args)),
        Command::Send(args) => client::run(client::send::send(args)),
        Command::Tail(args) => client::run(client::tail::tail(args)),
        Command::History(args) => client::run(client::lists::history(args)),
        Command::Rooms(args) => client::run(client::lists::rooms(args)),
        Command::Room(args) => client::run(client::room::run(args)),
        Command::Kv(args) => client::run(client::kv::run(args)),
        Command::Queue(args) => client::run(client::queue::run(args)),
        Command::Stats(args) => client::run(client::stats::stats(args)),
        #[cfg(feature = "bench")]
        Command::Bench(args) => return bench(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

#[cfg(feature = "bench")]
fn bench(args: hubbub_bench::cli::BenchArgs) -> ExitCode {
    hubbub_bench::cli::run(args).unwrap_or_else(|error| fail(&error))
}

/// Prints the error, and returns the exit code.
fn fail(error: &anyhow::Error) -> ExitCode {
    eprintln!("hubbub: {error:#}");
    let code = if error.is::<config::ConfigError>() {
        exit::USAGE
    } else if error.is::<stores::DataError>() || error.is::<admin::DamagedError>() {
        exit::DATA
    } else {
        exit::FAILURE
    };
    ExitCode::from(code)
}
