//! What is wrong: each cause has its own fault, so that one that is over hides no other. Some also refuse what clients send.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// What a fault comes from. The first one is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cause {
    /// The topic was deleted and created again while the server runs. Only a restart ends it.
    OtherTopic,
    /// The partition ends before what the store has, or did: new records may be taken for old ones. Only a restart ends it.
    LostEnd(u32),
    /// The store takes its rooms from another log.
    OtherLog,
    /// Servers of another store are among the committers.
    OtherStore,
    /// The topic has more partitions than the store knows. Only a restart ends it.
    MorePartitions,
    /// The group cannot be joined.
    Joining,
    /// Records of the partition are gone that the store has not got.
    Removed(u32),
    /// The partition could not be taken over.
    TakingOver(u32),
}

impl Cause {
    /// Whether what belongs to a partition is refused.
    fn refuses(self, partition: u32) -> bool {
        match self {
            Self::OtherTopic | Self::OtherStore => true,
            Self::LostEnd(lost) => lost == partition,
            _ => false,
        }
    }

    /// Whether the partition may not be read.
    fn stops(self, partition: u32) -> bool {
        self != Self::OtherStore && self.refuses(partition)
    }
}

#[derive(Debug, Default)]
pub(super) struct Faults {
    reasons: Mutex<BTreeMap<Cause, String>>,
    /// Whether anything is refused.
    refuses: AtomicBool,
}

impl Faults {
    pub(super) fn set(&self, cause: Cause, reason: String) {
        let mut reasons = self.reasons.lock();
        if !reasons.contains_key(&cause) {
            tracing::error!("{reason}");
        }
        reasons.insert(cause, reason);
        self.update(&reasons);
    }

    pub(super) fn clear(&self, cause: Cause) {
        let mut reasons = self.reasons.lock();
        if reasons.remove(&cause).is_some() {
            tracing::info!(?cause, "a fault of the log is over");
        }
        self.update(&reasons);
    }

    fn update(&self, reasons: &BTreeMap<Cause, String>) {
        let refuses = |cause: &Cause| matches!(cause, Cause::LostEnd(_)) || cause.refuses(0);
        self.refuses.store(reasons.keys().any(refuses), Ordering::Release);
    }

    /// Why something does not work.
    pub(super) fn fault(&self) -> Option<String> {
        self.first(|_| true)
    }

    /// Why what belongs to one of these partitions is refused. Cheap while nothing is.
    pub(super) fn refusal(&self, mut partitions: impl Iterator<Item = u32>) -> Option<String> {
        if !self.refuses.load(Ordering::Acquire) {
            return None;
        }
        partitions.find_map(|partition| self.first(|cause| cause.refuses(partition)))
    }

    /// Why a partition may not be read: what is there is not what the store needs. Cheap while nothing is refused.
    pub(super) fn stop_of(&self, partition: u32) -> Option<String> {
        let refuses = self.refuses.load(Ordering::Acquire);
        refuses.then(|| self.first(|cause| cause.stops(partition))).flatten()
    }

    fn first(&self, is_wanted: impl Fn(Cause) -> bool) -> Option<String> {
        let reasons = self.reasons.lock();
        reasons.iter().find(|(cause, _)| is_wanted(**cause)).map(|(_, reason)| reason.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_over_hides_nothing_else() {
        let faults = Faults::default();
        assert_eq!(faults.fault(), None);
        for (cause, reason) in [(Cause::Removed(2), "two"), (Cause::Removed(1), "one")] {
            faults.set(cause, reason.to_owned());
        }
        assert_eq!(faults.fault().as_deref(), Some("one"));
        faults.clear(Cause::Removed(1));
        faults.clear(Cause::Joining);
        assert_eq!(faults.fault().as_deref(), Some("two"));
        faults.clear(Cause::Removed(2));
        assert_eq!(faults.fault(), None);
    }

    #[test]
    fn only_what_would_be_lost_is_refused() {
        let faults = Faults::default();
        faults.set(Cause::Removed(1), "removed".to_owned());
        assert_eq!(faults.refusal(0..9), None, "it waits in Kafka");
        faults.set(Cause::LostEnd(1), "lost".to_owned());
        let refusal = |partition| faults.refusal(std::iter::once(partition));
        assert_eq!((refusal(0), refusal(1).as_deref()), (None, Some("lost")));
        assert_eq!(faults.refusal(0..9).as_deref(), Some("lost"));
        assert_eq!((faults.stop_of(0), faults.stop_of(1).as_deref()), (None, Some("lost")));
        faults.set(Cause::OtherStore, "store".to_owned());
        assert_eq!((refusal(0).as_deref(), faults.stop_of(0)), (Some("store"), None), "it is stored");
        faults.clear(Cause::OtherStore);
        faults.set(Cause::OtherTopic, "topic".to_owned());
        assert_eq!((refusal(0).as_deref(), faults.stop_of(0).as_deref()), (Some("topic"), Some("topic")));
        faults.clear(Cause::OtherTopic);
        faults.clear(Cause::LostEnd(1));
        assert_eq!(faults.refusal(0..9), None);
    }
}
