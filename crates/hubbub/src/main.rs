//! The `hubbub` command: parses arguments, runs the command, prints its error and chooses the exit code.

mod admin;
mod build;
mod cli;
mod client;
mod config;
mod listening;
mod logging;
mod memory;
#[cfg(feature = "otlp")]
mod otlp;
mod output;
mod ownership;
mod process;
mod progress;
mod serve;
mod shell;
mod stores;
mod supervision;
mod system;
mod tls;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{ArgMatches, CommandFactory, FromArgMatches};

use crate::cli::{Cli, Command};
use crate::config::Environment;

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
    /// Nobody reads standard output any more: the code of a program that SIGPIPE ended.
    pub(crate) const CLOSED_OUTPUT: u8 = 128 + 13;
}

fn main() -> ExitCode {
    let command = match parse() {
        Ok(cli) => cli.command,
        Err(code) => return code,
    };
    if !matches!(command, Command::Serve(_) | Command::Config(_))
        && let Err(error) = Environment::of_process().and_then(|environment| environment.check())
    {
        return fail(&error.into());
    }
    let result = match command {
        Command::Serve(args) => serve::run(&args),
        Command::Token(args) => admin::token::run(&args),
        Command::Key(args) => client::run(client::key::run(args)),
        Command::User(args) => client::run(client::user::run(args)),
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
        Command::Trace(args) => client::run(client::trace::trace(args)),
        Command::Rooms(args) => client::run(client::lists::rooms(args)),
        Command::Room(args) => client::run(client::room::run(args)),
        Command::Kv(args) => client::run(client::kv::run(args)),
        Command::Queue(args) => client::run(client::queue::run(args)),
        Command::Stats(args) => client::run(client::stats::stats(args)),
        Command::Ping(args) => client::run(client::status::ping(args)),
        Command::Status(args) => client::run(client::status::status(args)),
        Command::Completions { shell } => shell::completions(shell),
        Command::Man { out } => shell::man(out.as_deref()),
        #[cfg(feature = "bench")]
        Command::Bench(args) => return bench(*args),
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

/// The arguments, or the exit code after help, the version or a refusal was printed.
fn parse() -> Result<Cli, ExitCode> {
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    if let [_, help, option] = arguments.as_slice()
        && help == "help"
        && (option == "--help" || option == "-h")
    {
        arguments.pop();
    }
    let parsed = Cli::command().try_get_matches_from(&arguments).and_then(|matches| {
        if wants_json(&matches) {
            output::use_json();
        }
        Cli::from_arg_matches(&matches)
    });
    parsed.map_err(|mut refusal| {
        let options = || arguments.iter().skip(1).take_while(|argument| *argument != "--");
        name_variable(&mut refusal, options());
        if refusal.use_stderr() && options().any(|argument| argument == "--json") {
            output::use_json();
            // The first paragraph says what is wrong, the others repeat the help.
            let text = refusal.render().to_string();
            let text = text.split("\n\n").next().unwrap_or_default();
            output::error(&anyhow::anyhow!("{}", text.trim_start_matches("error: ").trim()));
        } else {
            // Nobody may be there to read it.
            let _ = refusal.print();
        }
        ExitCode::from(u8::try_from(refusal.exit_code()).unwrap_or(exit::USAGE))
    })
}

/// Options whose value may come from a variable of clients.
const OF_VARIABLES: [(&str, &str); 3] =
    [("--server", "HUBBUB_SERVER"), ("--user", "HUBBUB_USER"), ("--from", "HUBBUB_USER")];

/// Has the refusal name the variable that a wrong value is from, if the option is not on the command line.
fn name_variable<'a>(refusal: &mut clap::Error, mut options: impl Iterator<Item = &'a OsString>) {
    let Some(ContextValue::String(shown)) = refusal.get(ContextKind::InvalidArg) else { return };
    let option = shown.split(' ').next().unwrap_or_default();
    let variable = OF_VARIABLES.iter().find(|(known, _)| *known == option).map(|(_, variable)| *variable);
    let is_given = options.any(|given| given.to_string_lossy().split('=').next() == Some(option));
    if let Some(variable) = variable.filter(|name| !is_given && std::env::var_os(name).is_some()) {
        refusal.insert(ContextKind::InvalidArg, ContextValue::String(variable.to_owned()));
    }
}

/// Whether the command, or one below it, has the option `--json` set.
fn wants_json(matches: &ArgMatches) -> bool {
    let is_set = matches.try_get_one::<bool>("json").ok().flatten().is_some_and(|is_set| *is_set);
    is_set || matches.subcommand().is_some_and(|(_, matches)| wants_json(matches))
}

/// Prints the error, and returns the exit code.
fn fail(error: &anyhow::Error) -> ExitCode {
    if output::is_closed_output(error) {
        return ExitCode::from(exit::CLOSED_OUTPUT);
    }
    output::error(error);
    #[cfg(feature = "bench")]
    let is_usage = error.is::<hubbub_bench::cli::UsageError>();
    #[cfg(not(feature = "bench"))]
    let is_usage = false;
    let code = if is_usage || error.is::<config::ConfigError>() || error.is::<output::UsageError>() {
        exit::USAGE
    } else if error.is::<stores::DataError>() || error.is::<admin::DamagedError>() {
        exit::DATA
    } else {
        exit::FAILURE
    };
    ExitCode::from(code)
}
