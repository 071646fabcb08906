//! Loads that go to one server at the same time: none of them can hold its own ledger against what that counts, all together can.

use anyhow::Context;

use crate::client::{Target, Targets};
use crate::report::Report;
use crate::results::ledger::ServerCounts;

/// A server, and what it had counted before all of them.
pub(super) struct Together {
    targets: Targets,
    before: ServerCounts,
}

impl Together {
    /// # Errors
    /// It does not tell what it counts.
    pub(super) async fn begin(target: Target) -> anyhow::Result<Self> {
        let targets = Targets::from(target);
        let before = ask(&targets).await?;
        Ok(Self { targets, before })
    }

    /// What is wrong with what it stored, when these were all that sent to it, and all have ended.
    ///
    /// # Errors
    /// It does not tell what it counts.
    pub(super) async fn end<'r>(
        self,
        reports: impl IntoIterator<Item = &'r Report>,
    ) -> anyhow::Result<Option<String>> {
        let stored = ask(&self.targets).await?.stored.saturating_sub(self.before.stored);
        let ledgers = reports.into_iter().filter_map(|report| report.ledger.as_ref());
        let (accepted, unconfirmed) = ledgers.fold((0, 0), |(accepted, unconfirmed), ledger| {
            (accepted + ledger.accepted, unconfirmed + ledger.unconfirmed)
        });
        Ok(fault(accepted, unconfirmed, stored))
    }
}

async fn ask(targets: &Targets) -> anyhow::Result<ServerCounts> {
    ServerCounts::ask(targets).await.context("the server does not tell what it stored")
}

/// What was not answered may be stored.
fn fault(accepted: u64, unconfirmed: u64, stored: u64) -> Option<String> {
    let is_right = (accepted..=accepted + unconfirmed).contains(&stored);
    let said = || {
        format!(
            "of all loads together {accepted} accepted and {unconfirmed} unconfirmed, but {stored} stored"
        )
    };
    (!is_right).then(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_between_several_loads_is_told() {
        for (stored, is_wrong) in [(99, true), (100, false), (103, false), (104, true)] {
            let said = fault(100, 3, stored);
            assert_eq!(said.is_some(), is_wrong, "{said:?}");
        }
    }
}
