//! Options of `hubbub export` and `hubbub import`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::ClientArgs;

/// How messages stand in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FileFormat {
    /// A JSON object on each line.
    Jsonl,
    /// Comma-separated (RFC 4180), the names of the columns first.
    Csv,
    /// Apache Parquet, compressed with zstd.
    Parquet,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ExportArgs {
    /// Only this room; may be repeated.
    #[arg(long = "room", value_name = "ROOM")]
    pub(crate) rooms: Vec<String>,
    /// Messages received at or after this time (RFC 3339, or seconds since 1970).
    #[arg(long, value_name = "TIME")]
    pub(crate) from: Option<String>,
    /// Messages received before this time.
    #[arg(long, value_name = "TIME")]
    pub(crate) to: Option<String>,
    /// How to write them.
    #[arg(long, value_enum, default_value = "jsonl")]
    pub(crate) format: FileFormat,
    /// The file to write [default: standard output].
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// The server.
    #[arg(long, env = "HUBBUB_SERVER", default_value = "http://127.0.0.1:8080", value_name = "URL")]
    pub(crate) server: String,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ImportArgs {
    /// The file to read; '-' = standard input, but not for Parquet.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// How messages stand in it [default: csv or parquet if its name ends so, else jsonl].
    #[arg(long, value_enum)]
    pub(crate) format: Option<FileFormat>,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}
