//! What agents and coordinators say to each other.

use serde::{Deserialize, Serialize};

use super::PROTOCOL;
use super::part::Part;

/// What an agent says of itself before anything else. Of another program at least protocol and version can be read.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Hello {
    pub(super) protocol: u32,
    pub(super) version: String,
    /// Another one for each connection: the proof of the secret is of it.
    pub(super) nonce: String,
    pub(super) asks_for_secret: bool,
    /// How it shows itself to servers, as reports name it.
    pub(super) tokens: String,
    /// Of the agent, whose runs are processes below it; and of the start of its machine.
    pub(super) pid: u32,
    pub(super) boot: String,
}

impl Hello {
    /// Of this program and machine.
    pub(super) fn here(nonce: String, asks_for_secret: bool, tokens: &str) -> Self {
        Self {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            nonce,
            asks_for_secret,
            tokens: tokens.to_owned(),
            pid: std::process::id(),
            boot: boot(),
        }
    }
}

/// Differs from machine to machine, and after each start; empty where it is not known.
pub(super) fn boot() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

/// One agent's part of a load.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Task {
    pub(super) workload: String,
    /// The words of a command line.
    pub(super) line: Vec<String>,
    /// See [`super::secret`].
    pub(super) proof: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "camelCase")]
pub(super) enum FromAgent {
    Hello(Hello),
    Prepared,
    Pong,
    Alive,
    Done(Box<Part>),
    Failed { error: String },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "camelCase")]
pub(super) enum FromCoordinator {
    Prepare(Task),
    Ping,
    #[serde(rename_all = "camelCase")]
    Start {
        after_us: u64,
    },
    Alive,
}
