//! Options of `hubbub kv`.

use std::time::Duration;

use clap::Subcommand;

use super::values::{count, number, positive_time};

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum KvAction {
    /// Write a value to standard output, byte by byte.
    Get {
        /// The key; %XX stands for any byte, %25 for a percent sign.
        key: String,
    },
    /// Set a key to a value.
    Put {
        /// The key; %XX stands for any byte, %25 for a percent sign.
        key: String,
        /// The value; without it, or with '-', it is read from standard input.
        value: Option<String>,
        /// Time to live, such as 500ms, 10s or 12h [default: unlimited].
        #[arg(long, value_name = "TIME", value_parser = positive_time)]
        ttl: Option<Duration>,
        /// Only if the key has this revision.
        #[arg(long, value_name = "N", conflicts_with = "if_absent", value_parser = number::<u64>)]
        if_revision: Option<u64>,
        /// Only if the key does not exist.
        #[arg(long)]
        if_absent: bool,
    },
    /// Delete a key; fails if it does not exist.
    Del {
        /// The key; %XX stands for any byte, %25 for a percent sign.
        key: String,
        /// Only if the key has this revision.
        #[arg(long, value_name = "N", value_parser = number::<u64>)]
        if_revision: Option<u64>,
    },
    /// List keys in the order of their bytes.
    Ls {
        /// Only keys with this prefix.
        #[arg(default_value = "")]
        prefix: String,
    },
    /// Show changes live; reconnects and continues without a gap.
    Watch {
        /// Only keys with this prefix.
        #[arg(default_value = "")]
        prefix: String,
        /// Start behind this revision; 0 = with the oldest change [default: with the next one].
        #[arg(long, value_name = "N", value_parser = number::<u64>)]
        after: Option<u64>,
        /// Stop after this number of changes.
        #[arg(long, value_name = "COUNT", value_parser = count::<u64>)]
        count: Option<u64>,
    },
}
