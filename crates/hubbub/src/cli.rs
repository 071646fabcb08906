//! The command line and its help texts.

mod access;
mod files;
mod kv;
mod offline;
mod queue;
mod room;
mod values;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use hubbub_core::{MessageId, RoomId, UserId};

use crate::client::address::Server;

pub(crate) use access::{
    AccountAction, AccountArgs, GrantArgs, InspectArgs, KeyAction, KeyCreateArgs, MintArgs, RightsArgs,
    TokenAction,
};
pub(crate) use files::{ExportArgs, FileFormat, ImportArgs};
pub(crate) use kv::KvAction;
#[cfg(any(feature = "postgres", feature = "scylla"))]
pub(crate) use offline::MigrateArgs;
pub(crate) use offline::{BackupArgs, RestoreArgs, VerifyArgs};
pub(crate) use queue::{OnFull, QueueAction, QueueSendArgs, QueueSettingsArgs, TakeArgs};
pub(crate) use room::RoomAction;

/// Chat rooms, message queues and a cached key-value store: durable, in order, in one binary.
///
/// An acknowledged message is on disk, is delivered once and in order, and every client that reconnects continues
/// without a gap.
#[derive(Debug, Parser)]
#[command(
    name = "hubbub",
    version = crate::build::VERSION_AND_COMMIT,
    arg_required_else_help = true,
    after_help = "\
Exit codes: 0 success, 1 failure, 2 invalid usage or configuration, 3 data directory locked or damaged,
141 nobody reads the output any more, as behind head.

First steps:
  hubbub serve
  hubbub send lobby 'hello' --user ada
  hubbub tail lobby"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the server.
    Serve(ServeArgs),
    /// Send a message to a room, or each line of standard input.
    Send(SendArgs),
    /// Follow a room live; reconnects and continues without a gap.
    Tail(TailArgs),
    /// Show a room's messages.
    History(HistoryArgs),
    /// Show what became of a message on one or several servers, and when.
    Trace(TraceArgs),
    /// List rooms.
    Rooms(ClientArgs),
    /// Create, change or delete a room, and manage its members.
    Room(ActionArgs<RoomAction>),
    /// Read, set, delete, list and watch values by key.
    Kv(ActionArgs<KvAction>),
    /// Create queues, send to them, take from them, and inspect them.
    Queue(ActionArgs<QueueAction>),
    /// Show statistics, watch them, or audit them.
    Stats(StatsArgs),
    /// Check whether a server answers, and how fast.
    Ping(PingArgs),
    /// Show a server's version, health and sizes; fails if it takes no writes.
    Status(ClientArgs),
    /// Make tokens for users, and inspect them.
    #[command(subcommand)]
    Token(TokenAction),
    /// Create, list and revoke API keys for services.
    Key(ActionArgs<KeyAction>),
    /// Add, list and remove accounts with passwords, and end logins.
    User(ActionArgs<AccountAction>),
    /// Show or check the configuration.
    #[command(subcommand)]
    Config(ConfigAction),
    /// Back up a running server's data into a directory of backups.
    Backup(BackupArgs),
    /// Restore a backup into a data directory, or check that it can be restored.
    Restore(RestoreArgs),
    /// Create or migrate the schema of a store in a database, or show the plan.
    #[cfg(any(feature = "postgres", feature = "scylla"))]
    Migrate(MigrateArgs),
    /// Check all data in a data directory or a backup for damage.
    Verify(VerifyArgs),
    /// Export messages of a server to a file.
    Export(ExportArgs),
    /// Import the messages of a file into a server.
    Import(ImportArgs),
    /// Print the completions of a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write the pages of all commands.
    Man {
        /// Directory for the pages; created if missing.
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
    /// Benchmark a server, and measure the machine's own limits.
    #[cfg(feature = "bench")]
    Bench(Box<hubbub_bench::cli::BenchArgs>),
}

/// Options of `serve`. Each can also be set in the environment or in the configuration file. A flag overrides the
/// environment, which overrides the file.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ServeArgs {
    /// Address to listen on: ADDR:PORT, or PORT on 127.0.0.1; port 0 picks a free one [env: HUBBUB_LISTEN]
    /// [default: 127.0.0.1:8080].
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<String>,
    /// Also serve the line protocol (queues over plain TCP); the default address is 127.0.0.1:3456 [env: HUBBUB_LINE]
    /// [default: off].
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "127.0.0.1:3456")]
    pub(crate) line: Option<String>,
    /// Directory of the embedded store, created if missing [env: HUBBUB_DATA] [default: ./data].
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<String>,
    /// The store: embedded, embedded:DIR, postgres://USER:PASSWORD@HOST:PORT/DATABASE, or, with --log kafka://,
    /// scylla://USER:PASSWORD@HOST:PORT/KEYSPACE [env: HUBBUB_STORE] [default: embedded].
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<String>,
    /// Refuse an outdated schema of a database instead of migrating it
    /// [env: HUBBUB_STORE_POSTGRES_MIGRATE=false, HUBBUB_STORE_SCYLLA_MIGRATE=false].
    #[arg(long)]
    pub(crate) no_migrate: bool,
    /// The message log: direct, amqp://USER:PASSWORD@HOST:PORT/VHOST for RabbitMQ, or kafka://HOST:PORT for Kafka
    /// [env: HUBBUB_LOG] [default: direct].
    #[arg(long, value_name = "URL")]
    pub(crate) log: Option<String>,
    /// With Kafka: gateway for a server that serves clients, and leaves the storing to others, or committer for one that
    /// only stores [env: HUBBUB_ROLE] [default: gateway,committer].
    #[arg(long, value_name = "ROLES")]
    pub(crate) role: Option<String>,
    /// Allow non-loopback listeners without authentication [env: HUBBUB_INSECURE].
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Also serve another interface: chats (forms and a cookie that proves nothing) [env: HUBBUB_COMPAT] [default: off].
    #[arg(long, value_name = "NAME")]
    pub(crate) compat: Option<String>,
    /// Configuration file [env: HUBBUB_CONFIG] [default: hubbub.toml if it exists].
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Any setting of the configuration file, such as limits.message_bytes=256KiB; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
}

/// Who sends unless somebody is named.
pub(crate) const USER_DEFAULT: &str = "cli";

/// Where the help lists options that many commands have: behind those of the command.
const COMMON: usize = 900;

/// Options of client commands.
#[derive(Debug, Clone, Args)]
pub(crate) struct ClientArgs {
    /// URL of the server, HOST:PORT, or PORT alone for this machine.
    #[arg(
        long,
        env = "HUBBUB_SERVER",
        default_value = "http://127.0.0.1:8080",
        value_name = "URL",
        global = true,
        display_order = COMMON
    )]
    pub(crate) server: Server,
    /// File with a token or an API key [env: HUBBUB_TOKEN = the token itself].
    #[arg(long, value_name = "FILE", global = true, display_order = COMMON)]
    pub(crate) token_file: Option<PathBuf>,
    /// Print JSON lines, for scripts.
    #[arg(long, global = true, display_order = COMMON)]
    pub(crate) json: bool,
}

impl ClientArgs {
    /// The server to call, with the caller's token if there is one.
    pub(crate) fn server(&self) -> anyhow::Result<Server> {
        self.server.clone().with_token(self.token_file.as_deref())
    }
}

#[derive(Debug, Clone, Args)]
pub(crate) struct SendArgs {
    /// The room; its first message creates it.
    #[arg(value_parser = RoomId::new)]
    pub(crate) room: RoomId,
    /// The text; without it, or with '-', each line of standard input that is not empty is a message.
    pub(crate) text: Option<String>,
    /// The sender.
    #[arg(long, env = "HUBBUB_USER", default_value = USER_DEFAULT, value_parser = UserId::new)]
    pub(crate) user: UserId,
    /// The message's id, for sends that can be repeated safely; only with TEXT [default: generated].
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,
    /// TEXT, JOIN or LEAVE.
    #[arg(long = "type", value_name = "TYPE", default_value = "TEXT", ignore_case = true,
          value_parser = ["TEXT", "JOIN", "LEAVE"])]
    pub(crate) kind: String,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct TailArgs {
    /// The room.
    #[arg(value_parser = RoomId::new)]
    pub(crate) room: RoomId,
    /// Start behind this seq; 0 = from the oldest.
    #[arg(long, value_name = "SEQ", conflicts_with = "last", value_parser = values::number::<u64>)]
    pub(crate) after: Option<u64>,
    /// Start with this number of recent messages.
    #[arg(long, value_name = "COUNT", default_value_t = 10, value_parser = values::number::<u64>)]
    pub(crate) last: u64,
    /// Stop after this number of messages.
    #[arg(long, value_name = "COUNT", value_parser = values::count::<u64>)]
    pub(crate) count: Option<u64>,
    /// The user that follows, and is shown as present [default: that of the token; an administrator follows unseen].
    #[arg(long, env = "HUBBUB_USER", value_parser = UserId::new)]
    pub(crate) user: Option<UserId>,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct PingArgs {
    /// Wait until the server answers, at most this long, such as 30s.
    #[arg(long, value_name = "TIME", value_parser = values::positive_time)]
    pub(crate) wait: Option<Duration>,
    /// Number of requests.
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = values::count::<u32>)]
    pub(crate) count: u32,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct HistoryArgs {
    /// The room.
    #[arg(value_parser = RoomId::new)]
    pub(crate) room: RoomId,
    /// Messages behind this seq, oldest first.
    #[arg(long, value_name = "SEQ", conflicts_with = "before", value_parser = values::number::<u64>)]
    pub(crate) after: Option<u64>,
    /// Messages before this seq.
    #[arg(long, value_name = "SEQ", value_parser = values::number::<u64>)]
    pub(crate) before: Option<u64>,
    /// Messages received at or after this time (RFC 3339, or seconds since 1970).
    #[arg(long, value_name = "TIME", value_parser = values::moment)]
    pub(crate) from: Option<String>,
    /// Messages received before this time.
    #[arg(long, value_name = "TIME", value_parser = values::moment)]
    pub(crate) to: Option<String>,
    /// Maximum number of messages to show.
    #[arg(long, value_name = "COUNT", default_value_t = 50, value_parser = values::count::<usize>)]
    pub(crate) limit: usize,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct TraceArgs {
    /// The message's id.
    #[arg(value_name = "MESSAGE_ID", value_parser = MessageId::new)]
    pub(crate) message: MessageId,
    /// Its room [default: looked for, where there are no more than 1,000].
    #[arg(value_parser = RoomId::new)]
    pub(crate) room: Option<RoomId>,
    /// URL of the server, HOST:PORT, or PORT alone for this machine; may be repeated: each server knows what it did itself.
    #[arg(
        long = "server",
        env = "HUBBUB_SERVER",
        default_value = "http://127.0.0.1:8080",
        value_name = "URL"
    )]
    pub(crate) servers: Vec<Server>,
    /// File with a token or an API key [env: HUBBUB_TOKEN = the token itself].
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Print JSON lines, for scripts.
    #[arg(long)]
    pub(crate) json: bool,
}

impl TraceArgs {
    /// What is the same for each of the servers.
    pub(crate) fn clients(&self) -> impl Iterator<Item = ClientArgs> {
        let client = |server: &Server| ClientArgs {
            server: server.clone(),
            token_file: self.token_file.clone(),
            json: self.json,
        };
        self.servers.iter().map(client)
    }
}

/// An action and the options of client commands.
#[derive(Debug, Clone, Args)]
pub(crate) struct ActionArgs<A: Subcommand> {
    #[command(subcommand)]
    pub(crate) action: A,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct StatsArgs {
    #[command(subcommand)]
    pub(crate) action: Option<StatsAction>,
    /// Maximum number of rooms and users to show.
    #[arg(long, value_name = "COUNT", default_value_t = 10, conflicts_with = "every",
          value_parser = values::rows)]
    pub(crate) top: u16,
    /// Instead print clients, rooms, messages and store size in this interval, such as 5s or 1min, until interrupted.
    #[arg(long, value_name = "TIME", value_parser = values::positive_time)]
    pub(crate) every: Option<Duration>,
    /// Also append each line to this file, as CSV.
    #[arg(long, value_name = "FILE", requires = "every")]
    pub(crate) csv: Option<PathBuf>,
    /// Stop after this number of lines.
    #[arg(long, value_name = "COUNT", requires = "every", value_parser = values::count::<u64>)]
    pub(crate) count: Option<u64>,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum StatsAction {
    /// Recount all messages and compare with the statistics; fails when they differ.
    Audit(ClientArgs),
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum ConfigAction {
    /// Print all settings with their values and sources.
    Print(ServeArgs),
    /// Validate the file, the environment and the flags.
    Check(ServeArgs),
    /// Print a configuration file with every setting at its default.
    Example,
}
