//! Divides a load among agents, so that the parts add up to what was asked for.

use anyhow::ensure;

use crate::load::pace::Rate;
use crate::load::run::Run;

/// Options of one agent that differ from those of the whole: long names and values.
pub(crate) type Share = Vec<(&'static str, String)>;

/// A load among agents.
pub(crate) struct Divided {
    /// One for each agent.
    pub(crate) shares: Vec<Share>,
    /// The run that their parts are added to: of these kinds of messages and rooms, without any yet.
    pub(crate) whole: Run,
}

/// `whole` in as many parts as there are agents, none of which differs by more than one from the others.
///
/// # Errors
/// Less than one for each.
pub(crate) fn split(option: &str, whole: u64, agents: usize) -> anyhow::Result<Vec<u64>> {
    ensure!(whole >= agents as u64, "--agents: --{option} {whole} cannot be divided among {agents} agents");
    Ok(divided(whole, &vec![1; agents]))
}

/// `whole` in parts that are in proportion to `weights`, as nearly as whole numbers can be.
pub(crate) fn divided(whole: u64, weights: &[u64]) -> Vec<u64> {
    let all: u128 = weights.iter().map(|weight| u128::from(*weight)).sum::<u128>().max(1);
    let mut before = 0_u128;
    let until = |sum: u128| u128::from(whole) * sum / all;
    let part = |weight: &u64| {
        let from = until(before);
        before += u128::from(*weight);
        // No part is more than the whole.
        (until(before) - from) as u64
    };
    weights.iter().map(part).collect()
}

impl Rate {
    /// This rate in parts that are in proportion to `weights`.
    pub(crate) fn divided(self, weights: &[u64]) -> Vec<Self> {
        let all = weights.iter().sum::<u64>().max(1) as f64;
        weights.iter().map(|weight| self.times(*weight as f64 / all)).collect()
    }
}
