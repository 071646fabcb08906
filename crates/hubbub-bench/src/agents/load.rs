//! A load from this process, or from agents: the steps of a run are the same.

use std::sync::Arc;

use super::pool::AgentPool;
use crate::host::sample::Source;
use crate::load::run::Run;
use crate::workloads::engine::{Account, Loading, Setup, Workload};

pub(crate) enum Load<'a, W: Workload> {
    Here { own: &'a W, stage: W::Stage },
    There(AgentPool),
}

impl<'a, W: Workload> Load<'a, W> {
    /// Makes ready what the measured phase needs, here or at each agent.
    pub(crate) async fn ready(args: &'a Loading<W>, setup: &Setup) -> anyhow::Result<Self> {
        let own = &args.own;
        if setup.common.agents.agents.is_empty() {
            return Ok(Self::Here { own, stage: own.prepare(setup).await? });
        }
        Ok(Self::There(AgentPool::gather(args, setup).await?))
    }

    /// What is looked at while it goes on.
    pub(crate) async fn source(&self, setup: &Setup) -> anyhow::Result<Source> {
        match self {
            Self::Here { own, stage } => own.source(setup, stage).await,
            Self::There(pool) => Source::open(setup, pool.generators()).await,
        }
    }

    /// Processes on this machine that generate load, besides this one.
    pub(crate) fn pids(&self) -> Vec<u32> {
        match self {
            Self::Here { .. } => Vec::new(),
            Self::There(pool) => pool.pids(),
        }
    }

    /// Returns when the load begins: at once, or when all agents do.
    pub(crate) async fn begin(&mut self, setup: &Setup) {
        match self {
            Self::Here { .. } => {}
            Self::There(pool) => pool.begin(setup).await,
        }
    }

    /// The load, in all of its phases.
    pub(crate) async fn drive(&mut self, setup: &Setup) -> anyhow::Result<Arc<Run>> {
        match self {
            Self::Here { own, stage } => own.drive(setup, stage).await,
            Self::There(pool) => pool.drive().await,
        }
    }

    /// Messages that were accepted before the load, in its preparation, and in all of its phases.
    pub(crate) fn accepted(&self, run: &Run) -> [u64; 2] {
        match self {
            Self::Here { stage, .. } => {
                let [_, accepted, ..] = run.counts.totals();
                [W::accepted_before(stage), accepted]
            }
            Self::There(pool) => pool.accepted(),
        }
    }

    /// What the ledger needs besides the record of the measured phase, which agents' parts are added to.
    pub(crate) async fn close(self, setup: &Setup, run: &Run) -> anyhow::Result<Account> {
        match self {
            Self::Here { own, stage } => own.close(setup, stage, run).await,
            Self::There(pool) => pool.close(),
        }
    }
}
