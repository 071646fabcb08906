//! A load from this process, or from agents: the steps of a run are the same.

use std::sync::Arc;

use super::crew::Crew;
use crate::engine::{Account, Loading, Setup, Workload};
use crate::run::Run;

pub(crate) enum Load<'a, W: Workload> {
    Here { own: &'a W, stage: W::Stage },
    There(Crew),
}

impl<'a, W: Workload> Load<'a, W> {
    /// Makes ready what the measured phase needs, here or at each agent.
    pub(crate) async fn ready(args: &'a Loading<W>, setup: &Setup) -> anyhow::Result<Self> {
        let own = &args.own;
        if setup.common.agents.agents.is_empty() {
            return Ok(Self::Here { own, stage: own.prepare(setup).await? });
        }
        Ok(Self::There(Crew::gather(args, setup).await?))
    }

    /// Processes on this machine that generate load, besides this one.
    pub(crate) fn pids(&self) -> Vec<u32> {
        match self {
            Self::Here { .. } => Vec::new(),
            Self::There(crew) => crew.pids(),
        }
    }

    /// Processes on this machine that generate load, where all of them are here.
    pub(crate) fn generators(&self) -> Vec<u32> {
        match self {
            Self::Here { .. } => vec![std::process::id()],
            Self::There(crew) => crew.generators(),
        }
    }

    /// Returns when the measured phase begins: at once, or when all agents do.
    pub(crate) async fn begin(&mut self) {
        match self {
            Self::Here { .. } => {}
            Self::There(crew) => crew.begin().await,
        }
    }

    /// The measured phase.
    pub(crate) async fn drive(&mut self, setup: &Setup) -> anyhow::Result<Arc<Run>> {
        match self {
            Self::Here { own, stage } => own.drive(setup, stage).await,
            Self::There(crew) => crew.drive().await,
        }
    }

    /// What the ledger needs besides the record of the measured phase, which agents' parts are added to.
    pub(crate) async fn close(self, setup: &Setup, run: &Run) -> anyhow::Result<Account> {
        match self {
            Self::Here { own, stage } => own.close(setup, stage, run).await,
            Self::There(crew) => crew.close(),
        }
    }
}
