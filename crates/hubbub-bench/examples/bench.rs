//! The bench command on its own.
use clap::Parser;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: hubbub_bench::cli::BenchArgs,
}

fn main() -> anyhow::Result<std::process::ExitCode> {
    hubbub_bench::cli::run(Cli::parse().args)
}
