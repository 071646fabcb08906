//! Several load generators at once: agents on this or other machines, and a coordinator that starts them together and makes
//! one report of what they measured.
//!
//! The coordinator divides the options of a workload ([`divide`]), connects to each agent ([`pool`]), waits until all are
//! prepared, says when to start, and merges what comes back ([`part`]). It asks the servers for their counters itself, so the
//! ledger is closed as that of any run. An agent ([`serve`]) waits for coordinators and hands each run to a process of its own
//! ([`perform`]), which ends with the coordinator's connection: whatever ran in it is gone then.
//!
//! The protocol, of the version [`PROTOCOL`]: one TCP connection for each run; each line is a JSON object of [`message`], at most [`lines`] long.
//!
//! ```text
//! agent                                    coordinator
//! hello: program, nonce, process      →
//!                                     ←    prepare: workload, options, proof of the shared secret
//! prepared                            →
//!                                     ←    ping, five times
//! pong                                →
//!                                     ←    start: in so many microseconds
//! done: counts, histograms, rates     →
//! ```
//!
//! Instead of what is expected, an agent may say `failed` and why. Both say `alive` each second; whoever hears nothing for ten
//! seconds, or sees the connection end, gives the run up.
//!
//! Invariants
//! - Coordinator and agents are the same version of the program.
//! - The parts of a rate, of connections, of messages and of keys add up to what was asked for.
//! - Agents share rooms, but no message: each draws the mark that its ids begin with. Each has keys of its own, so one
//!   connection writes each key.
//! - An agent that fails or is silent fails the run; there is no report of what is left.
//! - No token of the servers, and no secret, passes between them. What passes is not encrypted.

mod divide;
mod figures;
mod given;
mod lines;
mod load;
mod message;
mod part;
mod perform;
mod pool;
mod secret;
mod serve;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

pub(crate) use divide::{Divided, Share, divided, split};
pub(crate) use figures::Agents;
pub(crate) use given::Given;
pub(crate) use load::Load;
pub(crate) use perform::perform_one;
pub(crate) use serve::{AgentArgs, OwnArgs, serve};

/// Counts what coordinator and agents must both know.
const PROTOCOL: u32 = 3;
/// Between two signs of life.
const ALIVE: Duration = Duration::from_secs(1);
/// Nothing was heard for so long: the other one is gone.
const SILENCE: Duration = Duration::from_secs(10);

/// Where the load comes from, if not from this process.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct AgentsArgs {
    /// Have these agents (hubbub bench agent) send the load, each its part of it: chat, http and kv
    #[arg(long, value_delimiter = ',', value_name = "HOST:PORT")]
    pub agents: Vec<String>,
    /// The secret that the agents ask for is in this file
    #[arg(long, value_name = "FILE", requires = "agents")]
    pub agents_secret_file: Option<PathBuf>,
}
