//! Whether the cluster takes what it is given: `/health` says so.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use hubbub_core::store::StoreHealth;
use parking_lot::Mutex;

#[derive(Debug, Default)]
pub(crate) struct Status {
    /// What failed last time: the work on partitions of the log, by their numbers, and that in the background (`None`).
    failed: Mutex<BTreeMap<Option<i32>, Failed>>,
    /// Why this server changes nothing any more.
    outdated: OnceLock<String>,
}

#[derive(Debug)]
struct Failed {
    reason: String,
    /// Whether it failed since the last round of background work.
    is_recent: bool,
}

impl Status {
    /// Reports how the work on a partition went, or that in the background.
    pub(crate) fn report(&self, part: Option<i32>, result: Result<(), String>) {
        let mut failed = self.failed.lock();
        match result {
            Ok(()) => failed.remove(&part),
            Err(reason) => failed.insert(part, Failed { reason, is_recent: true }),
        };
    }

    /// Forgets partitions that were not tried again for a whole round of background work: others have them now.
    pub(crate) fn end_round(&self) {
        self.failed.lock().retain(|_, failed| std::mem::take(&mut failed.is_recent));
    }

    /// A newer program goes on with the store, or another log. This server changes nothing any more.
    pub(crate) fn set_outdated(&self, reason: &str) {
        if self.outdated.set(reason.to_owned()).is_ok() {
            tracing::error!("{reason}");
        }
    }

    /// Why this server changes nothing any more, if it does not.
    pub(crate) fn outdated(&self) -> Option<String> {
        self.outdated.get().cloned()
    }

    /// Up only if nothing failed.
    pub(crate) fn health(&self) -> StoreHealth {
        if let Some(reason) = self.outdated() {
            return StoreHealth::Failed(reason);
        }
        match self.failed.lock().first_key_value() {
            None => StoreHealth::Up,
            Some((None, failed)) => StoreHealth::Unreachable(failed.reason.clone()),
            Some((Some(part), failed)) => {
                StoreHealth::Unreachable(format!("partition {part} of the log: {}", failed.reason))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_that_is_stuck_is_not_hidden_by_others() {
        let status = Status::default();
        let failed = || Err("away".to_owned());
        let is_up = || status.health() == StoreHealth::Up;
        status.report(Some(3), failed());
        status.report(Some(4), Ok(()));
        status.report(None, Ok(()));
        status.end_round();
        let told = "partition 3 of the log: away".to_owned();
        assert_eq!(status.health(), StoreHealth::Unreachable(told));
        status.report(Some(3), failed());
        status.end_round();
        assert!(!is_up(), "it was tried again");
        status.end_round();
        assert!(is_up(), "somebody else has it");
        status.report(None, failed());
        assert!(!is_up());
        status.report(None, Ok(()));
        assert!(is_up());
    }
}
