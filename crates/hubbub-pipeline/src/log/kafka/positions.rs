//! Where the store is in each partition.
//!
//! A partition whose position cannot be read waits, and the others go on: a row may be damaged, or the replicas of one row
//! away. Such a partition is not read from Kafka; its task asks again and again, and then has it read from where the store is.
//! What was not compared with Kafka yet, or gave cause to doubt, is compared then.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use hubbub_core::invariant::saturate;
use tokio::sync::watch;

use super::Core;
use super::batch::pause;
use super::buffer::Buffer;
use super::consumer::Context;
use super::lost_records::SETTLING;
use crate::log::backoff::Backoff;

/// The next offset that the store wants of each partition, or why it cannot be read.
pub(super) type NextOffsets = Vec<Result<u64, String>>;

impl Core {
    /// Fails if none of them can be read.
    pub(super) async fn next_offsets(&self) -> Result<NextOffsets, String> {
        let next = self.log_store()?.next_offsets().await.map_err(|error| error.to_string())?;
        let next: NextOffsets =
            next.into_iter().map(|next| next.map_err(|error| error.to_string())).collect();
        match next.first() {
            Some(Err(reason)) if next.iter().all(Result::is_err) => Err(reason.clone()),
            _ => Ok(next),
        }
    }

    pub(super) async fn next_offset(&self, partition: u32) -> Result<u64, String> {
        self.log_store()?.next_offset(partition).await.map_err(|error| error.to_string())
    }

    /// Where a partition is to be read from. Fails, too, if Kafka does not have that.
    async fn start_of(&self, partition: u32) -> Result<u64, String> {
        // Also when the end has passed the store's position meanwhile.
        if let Some(reason) = self.faults.stop_of(partition) {
            return Err(reason);
        }
        let mut next = self.next_offset(partition).await?;
        if self.uncompared.lock().contains(&partition) {
            let of_this = partition..partition.saturating_add(1);
            let mut in_kafka = self.offsets_in_kafka(of_this.clone()).await.map_err(|error| error.0)?;
            if in_kafka.iter().any(|range| range.end < next) {
                tokio::time::sleep(SETTLING).await;
                in_kafka = self.offsets_in_kafka(of_this).await.map_err(|error| error.0)?;
            }
            for range in in_kafka {
                next = self.compare(partition, next, range, false).await.map_err(|error| error.0)?;
            }
            self.uncompared.lock().remove(&partition);
        }
        Ok(next)
    }

    /// These partitions are compared with Kafka before more of them is read.
    pub(super) fn must_compare(&self, partition: u32) {
        self.uncompared.lock().insert(partition);
    }

    /// Has a partition read from where the store is, once that can be read. `None` when the server stops before, or the
    /// partition was taken away.
    pub(super) async fn locate(
        &self,
        partition: u32,
        buffer: &Buffer,
        stop: &watch::Receiver<bool>,
    ) -> Option<()> {
        let mut backoff = Backoff::new(self.random.clone());
        let next = loop {
            match self.start_of(partition).await {
                Ok(next) => break next,
                // It was told.
                Err(_) if self.faults.stop_of(partition).is_some() => {}
                Err(reason) => tracing::warn!(
                    partition, %reason, "finding out from where to read a partition of Kafka failed; retrying"
                ),
            }
            pause(&mut backoff, buffer, stop).await?;
        };
        self.take_over(&[partition]);
        buffer.progress.stored.store(next, Ordering::Release);
        buffer.go_back(next);
        Some(())
    }
}

impl Context {
    /// Tells `/health` and the metrics which partitions of this server wait because their positions cannot be read.
    pub(super) fn tell_unreadable(&self, next: &[Result<u64, String>]) {
        let assigned = self.stored();
        let unreadable: BTreeMap<u32, &String> = assigned
            .iter()
            .filter_map(|(partition, _)| Some((*partition, next.get(*partition as usize)?.as_ref().err()?)))
            .collect();
        let alarm = unreadable.first_key_value().map(|(partition, reason)| {
            format!(
                "how far the store has partition {partition} of Kafka cannot be read ({reason}): messages of its rooms are \
                 accepted, and wait in Kafka"
            )
        });
        let metrics = &self.core.metrics;
        metrics.log_unreadable.set(saturate(unreadable.len()));
        metrics.log_committing.set(saturate(assigned.len().saturating_sub(unreadable.len())));
        self.core.set_alarm(alarm);
    }
}
