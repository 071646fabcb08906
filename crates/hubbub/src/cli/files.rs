//! Options of `hubbub export` and `hubbub import`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use hubbub_core::RoomId;

use super::ClientArgs;
use super::values::{id_prefix, moment};
use crate::client::address::Server;

/// Format of a file of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FileFormat {
    /// One JSON object per line.
    Jsonl,
    /// Comma-separated values (RFC 4180) with a header.
    Csv,
    /// Apache Parquet, compressed with zstd.
    Parquet,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ExportArgs {
    /// Only this room; may be repeated.
    #[arg(long = "room", value_name = "ROOM", value_parser = RoomId::new)]
    pub(crate) rooms: Vec<RoomId>,
    /// Messages received at or after this time (RFC 3339, or seconds since 1970).
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub(crate) from: Option<String>,
    /// Messages received before this time.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub(crate) to: Option<String>,
    /// Format of the file.
    #[arg(long, value_enum, default_value = "jsonl")]
    pub(crate) format: FileFormat,
    /// Output file [default: standard output].
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// URL of the server, HOST:PORT, or PORT alone for this machine.
    #[arg(long, env = "HUBBUB_SERVER", default_value = "http://127.0.0.1:8080", value_name = "URL")]
    pub(crate) server: Server,
    /// File with a token or an API key [env: HUBBUB_TOKEN = the token itself].
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ImportArgs {
    /// Input file; '-' = standard input, but not for Parquet.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Format of the file [default: by its name: csv, parquet, else jsonl].
    #[arg(long, value_enum)]
    pub(crate) format: Option<FileFormat>,
    /// The beginning of the ids that messages without one get. Give each of several files its own.
    #[arg(long, value_name = "PREFIX", default_value = "import", value_parser = id_prefix)]
    pub(crate) id_prefix: String,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}
