//! Options of commands for backups, data directories and databases.

use std::path::PathBuf;

use clap::Args;

use super::ClientArgs;
use super::values::{count, number};

#[derive(Debug, Clone, Args)]
pub(crate) struct BackupArgs {
    /// Directory of backups, with a subdirectory for each; created if missing.
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Number of backups to keep; older ones are removed once this one is complete.
    #[arg(long, value_name = "COUNT", value_parser = count::<u32>)]
    pub(crate) keep: Option<u32>,
    /// Maximum megabytes written per second, so that senders do not wait for the disk; 0 = unlimited.
    #[arg(long, value_name = "MB", default_value_t = 32, value_parser = number::<u32>)]
    pub(crate) rate: u32,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct RestoreArgs {
    /// A backup, or a directory of backups: then the newest one.
    #[arg(value_name = "DIR")]
    pub(crate) backup: PathBuf,
    /// The data directory to create; must be empty or missing.
    #[arg(long, value_name = "DATA", required_unless_present = "check")]
    pub(crate) to: Option<PathBuf>,
    /// Restore into a scratch directory, verify the data, and remove it.
    #[arg(long, conflicts_with = "to")]
    pub(crate) check: bool,
    /// Parent of the scratch directory [default: beside the backup].
    #[arg(long, value_name = "PATH", requires = "check")]
    pub(crate) scratch: Option<PathBuf>,
    /// Print JSON lines, for scripts.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct VerifyArgs {
    /// A data directory that no server uses, a backup, or a directory of backups: then the newest one. Nothing is changed.
    #[arg(value_name = "DATA")]
    pub(crate) data: PathBuf,
    /// Print JSON lines, for scripts.
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(any(feature = "postgres", feature = "scylla"))]
#[derive(Debug, Clone, Args)]
pub(crate) struct MigrateArgs {
    /// Only print the pending migrations with their statements and, on PostgreSQL, the tables they change.
    #[arg(long)]
    pub(crate) plan: bool,
    /// The store: postgres://USER:PASSWORD@HOST:PORT/DATABASE, or scylla://USER:PASSWORD@HOST:PORT/KEYSPACE
    /// [env: HUBBUB_STORE].
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<String>,
    /// Configuration file [env: HUBBUB_CONFIG] [default: hubbub.toml if it exists].
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Any setting of the configuration file; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
}
