//! Options of `hubbub queue`.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use hubbub_core::{ClientId, QueueId};

use super::values::{count, number, time, wait};

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum QueueAction {
    /// Create a queue, or change the given settings.
    #[command(alias = "set")]
    Create {
        /// The queue.
        #[arg(value_parser = QueueId::new)]
        queue: QueueId,
        #[command(flatten)]
        settings: QueueSettingsArgs,
    },
    /// Delete a queue; the queue of its dead letters stays.
    Delete {
        /// The queue.
        #[arg(value_parser = QueueId::new)]
        queue: QueueId,
        /// Delete its messages with it.
        #[arg(long)]
        force: bool,
    },
    /// List queues with their counts.
    Ls {
        /// Only the names of queues with messages for this client.
        #[arg(long = "for", value_name = "CLIENT", value_parser = ClientId::new)]
        receiver: Option<ClientId>,
    },
    /// Send a message, or each line of standard input.
    Send(QueueSendArgs),
    /// Take messages finally: at-most-once delivery.
    Get(TakeArgs),
    /// Show the next messages without taking them.
    Read(TakeArgs),
    /// Take messages on lease; end it with ack or nack.
    Lease {
        #[command(flatten)]
        take: TakeArgs,
        /// Duration of the lease, such as 30s or 5min [default: the queue's].
        #[arg(long, value_name = "TIME", value_parser = time)]
        lease: Option<Duration>,
    },
    /// Show all messages of a queue, whatever their receiver and state.
    Peek {
        /// The queue.
        #[arg(value_parser = QueueId::new)]
        queue: QueueId,
        /// Maximum number of messages to show.
        #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = count::<usize>)]
        limit: usize,
    },
    /// Acknowledge messages on lease: they are processed.
    Ack {
        /// The queue.
        #[arg(value_parser = QueueId::new)]
        queue: QueueId,
        /// The receipts of the messages.
        #[arg(required = true)]
        receipts: Vec<String>,
    },
    /// Give back a message on lease.
    Nack {
        /// The queue.
        #[arg(value_parser = QueueId::new)]
        queue: QueueId,
        /// The receipt of the message.
        receipt: String,
        /// Delay until its next delivery [default: the queue's backoff].
        #[arg(long, value_name = "TIME", value_parser = time)]
        delay: Option<Duration>,
    },
    /// Extend the lease of a message.
    Extend {
        /// The queue.
        #[arg(value_parser = QueueId::new)]
        queue: QueueId,
        /// The receipt of the message.
        receipt: String,
        /// Duration from now [default: the queue's lease].
        #[arg(long, value_name = "TIME", value_parser = time)]
        lease: Option<Duration>,
    },
    /// Delete one message, whatever its receiver.
    Remove {
        /// The queue.
        #[arg(value_parser = QueueId::new)]
        queue: QueueId,
        /// The message's id.
        #[arg(value_parser = number::<u64>)]
        id: u64,
    },
    /// Move dead letters back to their queues.
    Redrive {
        /// The dead-letter queue.
        #[arg(value_parser = QueueId::new)]
        queue: QueueId,
        /// Only this message.
        #[arg(long)]
        id: Option<String>,
    },
    /// List, register or unregister clients.
    Clients {
        /// Register this client.
        #[arg(long, value_name = "CLIENT", value_parser = ClientId::new)]
        add: Option<ClientId>,
        /// Unregister this client.
        #[arg(long, value_name = "CLIENT", conflicts_with = "add", value_parser = ClientId::new)]
        remove: Option<ClientId>,
    },
}

/// Settings of a queue.
#[derive(Debug, Clone, Args)]
pub(crate) struct QueueSettingsArgs {
    /// Default lease, such as 30s or 5min.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) lease: Option<Duration>,
    /// Deliveries without an ack until a message becomes a dead letter; 0 = unlimited.
    #[arg(long, value_name = "COUNT", value_parser = number::<u32>)]
    pub(crate) max_deliveries: Option<u32>,
    /// Queue of dead letters; '' = the queue's name with the suffix .dead.
    #[arg(long, value_name = "QUEUE")]
    pub(crate) dead_letter: Option<String>,
    /// Time to live of messages, such as 12h or 7d; 0s = unlimited.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) ttl: Option<Duration>,
    /// Maximum number of messages; 0 = unlimited.
    #[arg(long, value_name = "COUNT", value_parser = number::<u64>)]
    pub(crate) max_messages: Option<u64>,
    /// Maximum bytes of texts; 0 = unlimited.
    #[arg(long, value_name = "BYTES", value_parser = number::<u64>)]
    pub(crate) max_bytes: Option<u64>,
    /// What happens when the queue is full.
    #[arg(long, value_enum)]
    pub(crate) on_full: Option<OnFull>,
    /// First delay of a message that is given back, doubled each time.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) backoff: Option<Duration>,
    /// Longest such delay.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) backoff_max: Option<Duration>,
}

/// What happens when a queue is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnFull {
    /// New messages are refused.
    Refuse,
    /// The oldest messages that are not on lease are dropped.
    DropOldest,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct QueueSendArgs {
    /// The queue.
    #[arg(value_parser = QueueId::new)]
    pub(crate) queue: QueueId,
    /// The text; without it, or with '-', each line of standard input that is not empty is a message.
    pub(crate) text: Option<String>,
    /// The sender.
    #[arg(long, value_name = "CLIENT", env = "HUBBUB_USER", default_value = "cli", value_parser = ClientId::new)]
    pub(crate) from: ClientId,
    /// The receiver [default: any client].
    #[arg(long, value_name = "CLIENT", conflicts_with = "all", value_parser = ClientId::new)]
    pub(crate) to: Option<ClientId>,
    /// Send a copy to every registered client but the sender.
    #[arg(long)]
    pub(crate) all: bool,
    /// Delay until it can be taken.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) delay: Option<Duration>,
    /// Time to live.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) ttl: Option<Duration>,
    /// Group: its messages are delivered one by one.
    #[arg(long, value_name = "GROUP")]
    pub(crate) group: Option<String>,
    /// The message's id, for sends that can be repeated safely; only with TEXT [default: generated].
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct TakeArgs {
    /// The queue.
    #[arg(value_parser = QueueId::new)]
    pub(crate) queue: QueueId,
    /// The receiver; without it, only messages for anybody.
    #[arg(long = "as", value_name = "CLIENT", value_parser = ClientId::new)]
    pub(crate) receiver: Option<ClientId>,
    /// Only messages of this sender.
    #[arg(long, value_name = "CLIENT", value_parser = ClientId::new)]
    pub(crate) from: Option<ClientId>,
    /// Maximum number of messages.
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = count::<u64>)]
    pub(crate) max: u64,
    /// How long to wait for a message, at most 20s.
    #[arg(long, value_name = "TIME", value_parser = wait, default_value = "0s")]
    pub(crate) wait: Duration,
    /// Newest first instead of oldest first.
    #[arg(long)]
    pub(crate) newest: bool,
}
