//! Options of `hubbub token`, `hubbub key` and `hubbub user`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand};
use hubbub_core::UserId;

use super::values::positive_time;

/// What a token or an API key allows.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct GrantArgs {
    /// Everything, in anybody's name.
    #[arg(long)]
    pub(crate) admin: bool,
    /// Rights in rooms, such as 'team-*=rw': r = read, w = send, m = manage; may be repeated.
    #[arg(long, value_name = "ROOMS=RIGHTS", value_parser = pair)]
    pub(crate) rooms: Vec<(String, String)>,
    /// Rights in queues, such as 'jobs-*=r': r = take, w = send; may be repeated.
    #[arg(long, value_name = "QUEUES=RIGHTS", value_parser = pair)]
    pub(crate) queues: Vec<(String, String)>,
    /// Rights on keys by their beginning, such as 'config/=r' ('=rw' = all keys): r = read, w = change; may be repeated.
    #[arg(long, value_name = "PREFIX=RIGHTS", value_parser = pair)]
    pub(crate) kv: Vec<(String, String)>,
    /// Parts of the service: stats, metrics, health, backup, clients; may be repeated.
    #[arg(long = "scope", value_name = "SCOPE", value_parser = ["stats", "metrics", "health", "backup", "clients"])]
    pub(crate) scopes: Vec<String>,
}

fn pair(text: &str) -> Result<(String, String), &'static str> {
    let (name, rights) = text.rsplit_once('=').ok_or("must be a name, = and rights, such as 'team-*=rw'")?;
    Ok((name.to_owned(), rights.to_owned()))
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum TokenAction {
    /// Make a token, signed with auth.secret of the environment or the configuration file.
    Mint(MintArgs),
    /// Show what a token says, and whether this configuration accepts it.
    Inspect(InspectArgs),
}

#[derive(Debug, Clone, Args)]
pub(crate) struct MintArgs {
    /// The user.
    #[arg(long, value_parser = UserId::new)]
    pub(crate) user: UserId,
    /// How long it is valid, such as 15min, 12h or 7d.
    #[arg(long = "for", value_name = "TIME", default_value = "12h", value_parser = positive_time)]
    pub(crate) lifetime: Duration,
    /// Its id, by which it can be revoked [default: generated].
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,
    #[command(flatten)]
    pub(crate) grants: GrantArgs,
    /// Configuration file [env: HUBBUB_CONFIG] [default: hubbub.toml if it exists].
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct InspectArgs {
    /// File with the token; without it, or with '-', it is read from standard input.
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Configuration file [env: HUBBUB_CONFIG] [default: hubbub.toml if it exists].
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum KeyAction {
    /// Create an API key, and print it; it is not shown again.
    Create(Box<KeyCreateArgs>),
    /// List API keys.
    List,
    /// Revoke an API key; no server of the store accepts it any more.
    Revoke {
        /// Its id.
        id: String,
    },
}

#[derive(Debug, Clone, Args)]
pub(crate) struct KeyCreateArgs {
    /// What it is for.
    pub(crate) name: String,
    /// The user that it stands for: the sender of its messages.
    #[arg(long, value_parser = UserId::new)]
    pub(crate) user: UserId,
    /// How long it is valid, such as 30d [default: until it is revoked].
    #[arg(long = "for", value_name = "TIME", value_parser = positive_time)]
    pub(crate) lifetime: Option<Duration>,
    #[command(flatten)]
    pub(crate) grants: GrantArgs,
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum AccountAction {
    /// Add an account; its password is asked for, or read from standard input. Without options it may read and send in all
    /// rooms that are not for members only.
    Add(AccountArgs),
    /// List accounts.
    List,
    /// Change what an account may do, and log it out everywhere. It may do what the options name, and nothing else.
    Rights(RightsArgs),
    /// Set an account's password, and log it out everywhere; it is asked for, or read from standard input.
    Password {
        /// Its name.
        name: String,
    },
    /// Remove an account, and log it out everywhere.
    Remove {
        /// Its name.
        name: String,
    },
    /// List where people are logged in.
    Logins {
        /// Only this account.
        name: Option<String>,
    },
    /// End a login.
    Logout {
        /// Its id.
        login: String,
    },
}

#[derive(Debug, Clone, Args)]
pub(crate) struct AccountArgs {
    /// Its name, and the sender of its messages.
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) grants: GrantArgs,
}

#[derive(Debug, Clone, Args)]
#[command(group = ArgGroup::new("rights").required(true).multiple(true).args(RIGHTS).arg("none"))]
pub(crate) struct RightsArgs {
    /// Its name.
    pub(crate) name: String,
    /// Nothing any more.
    #[arg(long, conflicts_with_all = RIGHTS)]
    pub(crate) none: bool,
    #[command(flatten)]
    pub(crate) grants: GrantArgs,
}

/// The arguments of [`GrantArgs`].
const RIGHTS: [&str; 5] = ["admin", "rooms", "queues", "kv", "scopes"];
