//! Whether Kafka still has all that it confirmed.
//!
//! A broker that lost power or its disk, or an unclean election, may end a partition before what the store has. What is written
//! then gets offsets that the store has passed, and is never stored. So every server compares each partition's end with the
//! store: every two seconds, before it accepts anything after Kafka was away, and when a confirmation has an offset that was
//! given before. The topic's id it compares with that of its start, every two seconds. What belongs to a partition that is too
//! short is refused from then on, until the server is started anew: when the end has passed the store's position again, nothing
//! tells any more what is missing.
//!
//! A partition without a leader has no end to compare. It is compared once it has one, with the end of the new leader; after
//! Kafka was away, everything waits for that for a while.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hubbub_core::invariant::saturate;
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext};
use rdkafka::error::KafkaError as LibraryError;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tokio::sync::{Notify, watch};

use super::Core;
use super::faults::Cause;
use super::topics;

const INTERVAL: Duration = Duration::from_secs(2);
/// Shortest pause between two comparisons.
const PAUSE: Duration = Duration::from_millis(200);
/// A leader that was just elected may know less of its end for a moment: a partition that seems too short is asked about again.
/// Not much later, as what is written meanwhile hides it.
pub(super) const SETTLING: Duration = Duration::from_millis(100);
const END_TIMEOUT: Duration = Duration::from_secs(5);
const STORE_TIMEOUT: Duration = Duration::from_secs(3);
/// How long ends are asked for before anything is accepted after Kafka was away. Other partitions do not wait for one without a
/// leader for ever.
const OUTAGE_PATIENCE: Duration = Duration::from_secs(10);

/// What is known of each partition.
pub(super) struct LostRecordCheck {
    /// The next offset that the store wanted when it was last asked.
    stored: Box<[AtomicU64]>,
    /// Behind the last offset that a record of this server was given, or that the store had at the start.
    confirmed: Box<[AtomicU64]>,
    suspicion: Notify,
}

impl LostRecordCheck {
    pub(super) fn new(partitions: u32) -> Self {
        let zeros = || (0..partitions).map(|_| AtomicU64::new(0)).collect();
        Self { stored: zeros(), confirmed: zeros(), suspicion: Notify::new() }
    }

    /// The store had a partition up to here before this server wrote anything to it.
    pub(super) fn begin(&self, partition: u32, stored: u64) {
        for ends in [&self.stored, &self.confirmed] {
            ends.get(partition as usize).iter().for_each(|end| end.store(stored, Ordering::Release));
        }
    }

    /// Kafka confirmed a record of this server. Returns false if Kafka may have lost what it had confirmed: then the partition
    /// is compared at once. It may also be a record that was written again after another one.
    pub(super) fn confirm(&self, partition: i32, offset: i64) -> bool {
        let confirmed = usize::try_from(partition).ok().and_then(|partition| self.confirmed.get(partition));
        let (Some(confirmed), Ok(offset)) = (confirmed, u64::try_from(offset)) else { return true };
        let is_new = confirmed.fetch_max(offset.saturating_add(1), Ordering::AcqRel) <= offset;
        if !is_new {
            self.suspicion.notify_one();
        }
        is_new
    }

    /// The store was asked for the next offset of a partition.
    fn set_stored(&self, partition: u32, next: u64) {
        self.stored.get(partition as usize).iter().for_each(|stored| stored.store(next, Ordering::Release));
    }

    /// The partitions that end before what the store has, with both.
    fn short(&self, ends: &BTreeMap<u32, u64>) -> Vec<(u32, u64, u64)> {
        let stored =
            |partition: u32| self.stored.get(partition as usize).map(|end| end.load(Ordering::Acquire));
        let all = ends.iter().filter_map(|(partition, end)| Some((*partition, *end, stored(*partition)?)));
        all.filter(|(_, end, stored)| end < stored).collect()
    }
}

/// Compares the ends until the server stops.
pub(super) async fn watch(core: Arc<Core>, mut stop: watch::Receiver<bool>) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            () = core.ends.suspicion.notified() => {}
            _ = stop.wait_for(|is_stopping| *is_stopping) => return,
        }
        // That Kafka is away is noticed elsewhere.
        if let Err(reason) = core.compare_ends().await {
            tracing::debug!(reason, "comparing Kafka with the store failed; retrying");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Compares the topic's id until the server stops. Apart from the ends, which do not wait for its answers.
pub(super) async fn watch_topic(core: Arc<Core>, mut stop: watch::Receiver<bool>) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            _ = stop.wait_for(|is_stopping| *is_stopping) => return,
        }
        if let Err(reason) = core.compare_topic().await {
            tracing::debug!(reason, "asking Kafka for the id of the topic failed; retrying");
        }
    }
}

impl Core {
    /// Compares the ends of all partitions with the store. Those that are too short are at fault from then on.
    async fn compare_ends(&self) -> Result<(), String> {
        // First, as the store only has what Kafka has. If it does not answer, what it said before holds.
        match tokio::time::timeout(STORE_TIMEOUT, self.next_offsets()).await {
            Ok(Ok(next)) => (0..).zip(next).for_each(|(partition, next)| {
                next.iter().for_each(|next| self.ends.set_stored(partition, *next));
            }),
            Ok(Err(reason)) => tracing::debug!(reason, "the store does not say how far it has Kafka"),
            Err(_) => tracing::debug!("the store does not say in time how far it has Kafka"),
        }
        let is_of_interest = |partition: &u32| self.faults.stop_of(*partition).is_none();
        let all: Vec<u32> = (0..self.topics.partitions).filter(is_of_interest).collect();
        let ends = self.ends_in_kafka(&all, END_TIMEOUT).await?;
        let mut missing = without_end(&all, &ends);
        let again: Vec<u32> = self.ends.short(&ends).into_iter().map(|(partition, ..)| partition).collect();
        if !again.is_empty() {
            tokio::time::sleep(SETTLING).await;
            let ends = self.ends_in_kafka(&again, END_TIMEOUT).await?;
            for (partition, end, stored) in self.ends.short(&ends) {
                self.faults.set(Cause::LostEnd(partition), self.lost_end(partition, end, stored));
            }
            missing.extend(without_end(&again, &ends));
        }
        if missing.is_empty() { Ok(()) } else { Err(format!("partitions {missing:?} have no leader")) }
    }

    /// The same, once Kafka is back: nothing is accepted before.
    pub(super) async fn compare_after_outage(self: Arc<Self>) {
        let began = self.clock.monotonic();
        while let Err(reason) = self.compare_ends().await {
            if self.clock.monotonic().saturating_sub(began) >= OUTAGE_PATIENCE {
                tracing::warn!(reason, "accepting messages before all of Kafka was compared with the store");
                return;
            }
            tracing::debug!(reason, "comparing Kafka with the store failed; retrying");
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Whether the topic is the one of the start.
    async fn compare_topic(&self) -> Result<(), String> {
        let topics = &self.topics;
        let identity = topics::identify(&self.options, &topics.admin, &topics.messages).await;
        if identity.map_err(|error| error.to_string())?.differs_from(&topics.identity) {
            let reason = format!(
                "the topic {} was deleted and created again, so it is another log: stop all servers, and see docs/kafka.md \
                 for how to move to a new topic",
                topics.messages
            );
            self.faults.set(Cause::OtherTopic, reason);
        }
        Ok(())
    }

    /// What is wrong with a partition that ends before what the store has.
    pub(super) fn lost_end(&self, partition: u32, end: u64, stored: u64) -> String {
        let topic = &self.topics.messages;
        format!(
            "partition {partition} of the topic {topic} ends at {end}, but the store has its records up to {stored}: Kafka \
             lost records that it had confirmed (an unclean leader election, or a restored disk), and new ones would be \
             taken for old ones; stop all servers, and see docs/kafka.md"
        )
    }

    /// Where these partitions end. Those without a leader are missing.
    pub(super) async fn ends_in_kafka(
        &self,
        partitions: &[u32],
        timeout: Duration,
    ) -> Result<BTreeMap<u32, u64>, String> {
        let (consumer, topic, partitions) =
            (self.bus.client(), self.topics.messages.clone(), partitions.to_vec());
        let asking = tokio::task::spawn_blocking(move || fetch_ends(&consumer, &topic, &partitions, timeout));
        let ends = asking.await.map_err(|error| error.to_string())?;
        ends.map_err(|error| error.to_string())
    }
}

/// Where these partitions end, as their present leaders say. Those without one are missing. Blocks.
fn fetch_ends<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    topic: &str,
    partitions: &[u32],
    timeout: Duration,
) -> Result<BTreeMap<u32, u64>, LibraryError> {
    if partitions.is_empty() {
        return Ok(BTreeMap::new());
    }
    let mut list = TopicPartitionList::new();
    for partition in partitions {
        // The library asks for the end where a time is expected.
        list.add_partition_offset(topic, saturate(*partition), Offset::End)?;
    }
    // Else the library asks the leaders that it has heard of up to 15 minutes ago, and none where there was none.
    consumer.fetch_metadata(Some(topic), timeout / 2)?;
    let list = consumer.offsets_for_times(list, timeout / 2)?;
    let known = list.elements().into_iter().filter(|element| element.error().is_ok());
    let ends = known.filter_map(|element| match element.offset() {
        Offset::Offset(end) => Some((saturate(element.partition()), saturate(end))),
        _ => None,
    });
    Ok(ends.collect())
}

/// Those that were asked for and have no end.
fn without_end(asked: &[u32], ends: &BTreeMap<u32, u64>) -> Vec<u32> {
    asked.iter().filter(|partition| !ends.contains_key(*partition)).copied().collect()
}

#[cfg(test)]
mod tests {
    use rdkafka::ClientConfig;
    use rdkafka::mocking::MockCluster;

    use super::*;

    /// Its broker dies, and another one leads then. The library keeps what it knows of leaders for minutes.
    #[test]
    fn a_partition_has_its_end_as_soon_as_somebody_leads_it() {
        let cluster = MockCluster::new(2).unwrap();
        cluster.create_topic("messages", 2, 2).unwrap();
        let lead = |broker| cluster.partition_leader("messages", 1, broker).unwrap();
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", cluster.bootstrap_servers()).set("group.id", "test");
        let consumer: BaseConsumer = config.create().unwrap();
        let fetch = || fetch_ends(&consumer, "messages", &[0, 1], END_TIMEOUT).unwrap();
        for broker in [1, 2] {
            lead(None);
            assert_eq!(fetch(), BTreeMap::from([(0, 0)]), "the other one has its own");
            assert_eq!(without_end(&[0, 1], &fetch()), [1]);
            lead(Some(broker));
            assert_eq!(fetch(), BTreeMap::from([(0, 0), (1, 0)]), "{broker}");
        }
        assert!(fetch_ends(&consumer, "messages", &[], END_TIMEOUT).unwrap().is_empty());
    }

    #[tokio::test]
    async fn an_offset_that_was_given_before_is_suspicious() {
        let ends = LostRecordCheck::new(2);
        ends.begin(1, 10);
        assert!(ends.confirm(0, 0) && ends.confirm(0, 1) && ends.confirm(1, 10), "each has its own");
        assert!(ends.confirm(1, 12), "a gap");
        assert!(ends.confirm(1, -1) && ends.confirm(7, 0), "it is not known");
        assert!(!ends.confirm(1, 12) && !ends.confirm(1, 5));
        ends.suspicion.notified().await;
        ends.begin(0, 5);
        assert!(!ends.confirm(0, 4), "the store had it at the start");
    }

    #[test]
    fn a_partition_is_short_if_it_ends_before_what_is_stored() {
        let ends = LostRecordCheck::new(3);
        (0..3).zip([10, 10, 0]).for_each(|(partition, next)| ends.set_stored(partition, next));
        assert_eq!(ends.short(&BTreeMap::from([(0, 10), (1, 9), (2, 0), (9, 0)])), [(1, 9, 10)]);
        // The store went back to an older copy.
        ends.set_stored(1, 9);
        assert!(ends.short(&BTreeMap::from([(1, 9)])).is_empty());
    }
}
