//! Agents that a scenario has send the load (the option `agents`), where they run on this machine.

use anyhow::Context;

use super::file::Measurement;
use crate::host::background_load::process_at;
use crate::host::lab::cores::Pinned;

/// The option that names them.
const AGENTS: &str = "agents";

impl Measurement {
    /// Addresses of those that send; none where this process does.
    pub(super) fn agents(&self) -> impl Iterator<Item = &str> {
        self.all.get(AGENTS).into_iter().flat_map(|agents| agents.split(','))
    }

    /// Pins what sends the load to the processors that the scenario gives it, until what is returned is dropped: this process,
    /// and agents, whose runs are processes below them.
    ///
    /// # Errors
    /// An agent that runs on another machine, or cannot be seen.
    pub(super) fn pin_load(&self) -> anyhow::Result<Option<Pinned>> {
        let Some(cores) = self.placement()?.load else { return Ok(None) };
        let mut pids = vec![std::process::id()];
        for agent in self.agents() {
            let pid = process_at(agent);
            pids.push(pid.with_context(|| {
                format!("cores: load: the agent {agent} is not seen on this machine, and cannot be pinned")
            })?);
        }
        Pinned::processes(&pids, &cores).map(Some)
    }
}
