//! `hubbub queue`: options of its commands.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use super::ClientArgs;

#[derive(Debug, Clone, Args)]
pub(crate) struct QueueArgs {
    #[command(subcommand)]
    pub(crate) action: QueueAction,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum QueueAction {
    /// Make a queue, or change what is given.
    #[command(alias = "set")]
    Create {
        /// The queue.
        queue: String,
        #[command(flatten)]
        settings: QueueSettingsArgs,
    },
    /// Delete a queue.
    Delete {
        /// The queue.
        queue: String,
        /// Delete its messages with it.
        #[arg(long)]
        force: bool,
    },
    /// List queues and how they stand.
    Ls {
        /// Only the names of those that hold something for this client.
        #[arg(long = "for", value_name = "CLIENT")]
        receiver: Option<String>,
    },
    /// Send a message, or each line of standard input.
    Send(QueueSendArgs),
    /// Take messages away: delivered once at most.
    Get(TakeArgs),
    /// Look at messages without taking them.
    Read(TakeArgs),
    /// Take messages on lease; end it with ack or nack.
    Lease {
        #[command(flatten)]
        take: TakeArgs,
        /// How long the lease is, as 30s or 5min [default: as the queue has it set].
        #[arg(long, value_name = "TIME", value_parser = time)]
        lease: Option<Duration>,
    },
    /// Show everything in a queue, whomever it waits for.
    Peek {
        /// The queue.
        queue: String,
        /// Most messages to show.
        #[arg(long, value_name = "COUNT", default_value_t = 100)]
        limit: usize,
    },
    /// Messages on lease are done.
    Ack {
        /// The queue.
        queue: String,
        /// What came with the messages.
        #[arg(required = true)]
        receipts: Vec<String>,
    },
    /// Give a message on lease back.
    Nack {
        /// The queue.
        queue: String,
        /// What came with the message.
        receipt: String,
        /// How long until it may be taken again [default: the queue's backoff].
        #[arg(long, value_name = "TIME", value_parser = time)]
        delay: Option<Duration>,
    },
    /// Keep a message on lease longer.
    Extend {
        /// The queue.
        queue: String,
        /// What came with the message.
        receipt: String,
        /// How long from now [default: as the queue has it set].
        #[arg(long, value_name = "TIME", value_parser = time)]
        lease: Option<Duration>,
    },
    /// Delete one message, whoever it waits for.
    Remove {
        /// The queue.
        queue: String,
        /// The message's id.
        id: String,
    },
    /// Put dead letters back into the queues they came from.
    Redrive {
        /// The dead-letter queue.
        queue: String,
        /// Only this message.
        #[arg(long)]
        id: Option<String>,
    },
    /// List who is registered; or register and unregister.
    Clients {
        /// Register this client.
        #[arg(long, value_name = "CLIENT")]
        add: Option<String>,
        /// Take the registration of this client back.
        #[arg(long, value_name = "CLIENT", conflicts_with = "add")]
        remove: Option<String>,
    },
}

/// Settings of a queue.
#[derive(Debug, Clone, Args)]
pub(crate) struct QueueSettingsArgs {
    /// Lease of takers that ask for none, as 30s or 5min.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) lease: Option<Duration>,
    /// Deliveries without an ack after which a message is a dead letter; 0 = never.
    #[arg(long, value_name = "COUNT")]
    pub(crate) max_deliveries: Option<u32>,
    /// Where dead letters go; '' = the queue's name with .dead.
    #[arg(long, value_name = "QUEUE")]
    pub(crate) dead_letter: Option<String>,
    /// How long messages wait at most, as 12h or 7d; 0s = for ever.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) ttl: Option<Duration>,
    /// Messages it may hold; 0 = any number.
    #[arg(long, value_name = "COUNT")]
    pub(crate) max_messages: Option<u64>,
    /// Bytes of texts it may hold; 0 = any number.
    #[arg(long, value_name = "BYTES")]
    pub(crate) max_bytes: Option<u64>,
    /// What becomes of a message too many.
    #[arg(long, value_enum)]
    pub(crate) on_full: Option<OnFull>,
    /// How long a message given back waits the first time, doubled each time.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) backoff: Option<Duration>,
    /// The longest such wait.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) backoff_max: Option<Duration>,
}

/// What becomes of a message too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnFull {
    /// It is refused.
    Refuse,
    /// The oldest go that are not on lease.
    DropOldest,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct QueueSendArgs {
    /// The queue.
    pub(crate) queue: String,
    /// What to say; without it, or with '-', each line of standard input is a message.
    pub(crate) text: Option<String>,
    /// Who sends.
    #[arg(long, value_name = "CLIENT", env = "HUBBUB_USER", default_value = "cli")]
    pub(crate) from: String,
    /// The client it is for; without it, whoever takes it first.
    #[arg(long, value_name = "CLIENT", conflicts_with = "all")]
    pub(crate) to: Option<String>,
    /// For every registered client but the sender.
    #[arg(long)]
    pub(crate) all: bool,
    /// How long until it may be taken.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) delay: Option<Duration>,
    /// How long it waits at most.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) ttl: Option<Duration>,
    /// Messages of one group are delivered one after another.
    #[arg(long, value_name = "GROUP")]
    pub(crate) group: Option<String>,
    /// The message's id, for a send that may be repeated safely; made if not given.
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct TakeArgs {
    /// The queue.
    pub(crate) queue: String,
    /// Who takes; without it, only what is for anybody.
    #[arg(long = "as", value_name = "CLIENT")]
    pub(crate) receiver: Option<String>,
    /// Only messages of this client.
    #[arg(long, value_name = "CLIENT")]
    pub(crate) from: Option<String>,
    /// Most messages.
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    pub(crate) max: u64,
    /// How long to wait when there is nothing, at most 20s.
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "0s")]
    pub(crate) wait: Duration,
    /// Newest first instead of oldest first.
    #[arg(long)]
    pub(crate) newest: bool,
}

fn time(text: &str) -> Result<Duration, &'static str> {
    hubbub_core::duration::parse(text).ok_or("must be a time such as 500ms, 30s, 5min or 7d")
}
