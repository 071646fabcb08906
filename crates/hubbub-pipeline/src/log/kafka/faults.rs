//! What is wrong: each cause has its own fault, so that one that is over hides no other. Some also refuse what clients send.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hubbub_core::invariant::saturate;
use parking_lot::Mutex;

use crate::metrics::Metrics;

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
    /// Kafka does not let the server read the topic, or be one of the group.
    Reading,
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

    /// Whether it concerns all rooms, and not those of some partitions.
    fn is_of_all(self) -> bool {
        matches!(self, Self::OtherTopic | Self::OtherLog | Self::OtherStore | Self::Joining)
    }

    /// Whether the partition may not be read.
    fn stops(self, partition: u32) -> bool {
        self != Self::OtherStore && self.refuses(partition)
    }
}

pub(super) struct Faults {
    reasons: Mutex<BTreeMap<Cause, String>>,
    /// Whether anything is refused.
    refuses: AtomicBool,
    /// Of the topic.
    partitions: u32,
    metrics: Arc<Metrics>,
}

impl Faults {
    pub(super) fn new(partitions: u32, metrics: Arc<Metrics>) -> Self {
        Self { reasons: Mutex::default(), refuses: AtomicBool::new(false), partitions, metrics }
    }

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
        let of_some = reasons.keys().filter(|cause| !cause.is_of_all()).count();
        self.metrics.log_partition_faults.set(saturate(of_some));
    }

    /// Why nothing works: then no client is to be sent here.
    pub(super) fn fault(&self) -> Option<String> {
        let is_refused = |partition| self.refusal(std::iter::once(partition)).is_some();
        self.first(Cause::is_of_all)
            .or_else(|| (0..self.partitions).all(is_refused).then(|| self.alarm()).flatten())
    }

    /// Why something of some partitions does not work. The others go on.
    pub(super) fn alarm(&self) -> Option<String> {
        self.first(|cause| !cause.is_of_all())
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
        let faults = Faults::new(4, Arc::default());
        let count = || faults.metrics.log_partition_faults.get();
        assert_eq!((faults.alarm(), count()), (None, 0));
        for (cause, reason) in [(Cause::Removed(2), "two"), (Cause::Removed(1), "one")] {
            faults.set(cause, reason.to_owned());
        }
        assert_eq!((faults.alarm().as_deref(), count()), (Some("one"), 2));
        faults.clear(Cause::Removed(1));
        faults.clear(Cause::Joining);
        assert_eq!((faults.alarm().as_deref(), count()), (Some("two"), 1));
        faults.clear(Cause::Removed(2));
        assert_eq!((faults.alarm(), count()), (None, 0));
    }

    #[test]
    fn a_server_is_down_only_if_no_partition_goes_on() {
        let faults = Faults::new(2, Arc::default());
        let told = || (faults.fault(), faults.alarm());
        let of_some = [
            Cause::LostEnd(0),
            Cause::Removed(1),
            Cause::MorePartitions,
            Cause::TakingOver(1),
            Cause::Reading,
        ];
        for cause in of_some {
            faults.set(cause, "some".to_owned());
            assert_eq!(told(), (None, Some("some".to_owned())), "{cause:?}");
        }
        faults.set(Cause::LostEnd(1), "some".to_owned());
        assert_eq!(told().0.as_deref(), Some("some"), "nothing is taken any more");
        for cause in of_some.into_iter().chain([Cause::LostEnd(1)]) {
            faults.clear(cause);
        }
        for cause in [Cause::OtherTopic, Cause::OtherLog, Cause::OtherStore, Cause::Joining] {
            faults.set(cause, "all".to_owned());
            assert_eq!(told(), (Some("all".to_owned()), None), "{cause:?}");
            faults.clear(cause);
        }
    }

    #[test]
    fn only_what_would_be_lost_is_refused() {
        let faults = Faults::new(9, Arc::default());
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
