//! The bench command on its own.
use clap::Parser;

#[derive(Parser)]
enum Cli {
    Bench(hubbub_bench::cli::BenchArgs),
}

fn main() -> anyhow::Result<std::process::ExitCode> {
    let Cli::Bench(args) = Cli::parse();
    hubbub_bench::cli::run(args)
}
