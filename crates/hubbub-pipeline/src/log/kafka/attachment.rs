//! The attachment to a store that may go back: its database was replaced by an older copy, or lost what it had confirmed.
//!
//! The store refuses positions then, until the log is attached again, and takes any from there on. So after each attaching
//! the next offset that the store wants is compared with what was stored of the partition, before more of it is stored. If
//! it is an earlier one, what is in hand is dropped, and the partition is read again from there.
//!
//! Any other failure concerns one partition: it is repeated under the same attachment, and the others do not wait for it. But a
//! database that was away may have lost something without another sign, of any partition. So each partition asks once after
//! each failure, whoever had it, whether the store is where this server left it, before more of the partition is stored.
//!
//! A batch holds the attachment while it is stored, and attaching waits for all that do. So no batch that was compared
//! before reaches the store after it, and none is stored between the attaching and the comparison.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hubbub_core::store::ApplyError;
use tokio::sync::{RwLock, RwLockReadGuard, watch};

use super::Core;
use super::consumer::Context;

/// How often the store is asked whether it went back: nothing else tells of a partition that nobody writes to.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// How far a reader of a partition has come.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// The offset behind what is stored.
    pub(super) stored: AtomicU64,
    /// The attachment with whose offsets this was compared.
    compared: AtomicU64,
    /// How many failures there had been when this was last compared with the store.
    looked: AtomicU64,
}

impl Progress {
    /// Starts at an offset that the store said under this attachment, or a later one.
    pub(super) fn new(stored: u64, attachment: u64) -> Self {
        Self { stored: stored.into(), compared: attachment.into(), looked: AtomicU64::new(0) }
    }
}

/// Why a batch was not stored.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// The store wants this record first, an earlier one. The progress is there already.
    WentBack(u64),
    /// Nothing was stored. It may be repeated after another attaching than this one.
    Unattached { attachment: u64, reason: String },
    /// It may be stored. It may be repeated after [`Core::look_again`].
    Failed(String),
}

#[derive(Debug)]
pub(super) struct Current {
    number: u64,
    /// The offsets that the store wanted when it was attached; `None` = they are not known, and nothing may be stored.
    next: Option<Vec<u64>>,
}

impl Current {
    /// What the store said to a batch.
    pub(super) fn obstacle(&self, error: &ApplyError) -> Obstacle {
        match error {
            ApplyError::Unattached { reason } => self.unattached(reason),
            error => Obstacle::Failed(error.to_string()),
        }
    }

    /// Whether the store has all that was stored, by the next offset that it wants. The next attaching goes back there.
    fn check(&self, next: u64, progress: &Progress) -> Result<(), Obstacle> {
        let has_all = next >= progress.stored.load(Ordering::Acquire);
        if has_all { Ok(()) } else { Err(self.unattached(format!("the store is at {next} again"))) }
    }

    fn unattached(&self, reason: impl ToString) -> Obstacle {
        Obstacle::Unattached { attachment: self.number, reason: reason.to_string() }
    }
}

/// The current attachment.
#[derive(Debug)]
pub(super) struct Attachment {
    current: RwLock<Current>,
    /// Batches of any partition that were not stored, for other reasons than that the log was not attached.
    failures: AtomicU64,
}

impl Default for Attachment {
    /// That of the start: everybody asks the store after it.
    fn default() -> Self {
        let current = RwLock::new(Current { number: 0, next: Some(Vec::new()) });
        Self { current, failures: AtomicU64::new(0) }
    }
}

impl Attachment {
    pub(super) async fn number(&self) -> u64 {
        self.current.read().await.number
    }

    /// A batch was not stored, or it is not known whether it was.
    pub(super) fn count_failure(&self) {
        self.failures.fetch_add(1, Ordering::AcqRel);
    }

    /// How many failures there were, if a partition was last compared with the store when there were fewer.
    fn unlooked(&self, progress: &Progress) -> Option<u64> {
        let failures = self.failures.load(Ordering::Acquire);
        (progress.looked.load(Ordering::Acquire) != failures).then_some(failures)
    }

    /// Holds it for a batch of this partition, which begins at the progress or behind it.
    pub(super) async fn hold(
        &self,
        partition: u32,
        progress: &Progress,
    ) -> Result<RwLockReadGuard<'_, Current>, Obstacle> {
        let current = self.current.read().await;
        let Some(next) = &current.next else {
            return Err(current.unattached("where the store is is not known"));
        };
        if progress.compared.swap(current.number, Ordering::AcqRel) != current.number {
            let wanted = next.get(partition as usize).copied().unwrap_or(0);
            if progress.stored.fetch_min(wanted, Ordering::AcqRel) > wanted {
                return Err(Obstacle::WentBack(wanted));
            }
        }
        Ok(current)
    }

    /// Replaces the attachment `seen`, unless that was done meanwhile. `attach` returns the offsets that the store wants.
    pub(super) async fn renew(
        &self,
        seen: u64,
        attach: impl AsyncFnOnce() -> Result<Vec<u64>, String>,
    ) -> Result<(), String> {
        let mut current = self.current.write().await;
        if current.number != seen {
            return Ok(());
        }
        current.next = None;
        let next = attach().await?;
        (current.number, current.next) = (seen.wrapping_add(1), Some(next));
        Ok(())
    }
}

impl Core {
    /// Compares a partition with the store before more of it is stored, if anything failed since it last was. No other
    /// attaching comes in between.
    pub(super) async fn look_again(
        &self,
        held: &Current,
        partition: u32,
        progress: &Progress,
    ) -> Result<(), Obstacle> {
        // Before the store is asked: what fails meanwhile counts for the next time.
        let Some(failures) = self.attachment.unlooked(progress) else { return Ok(()) };
        let store = self.log_store().map_err(Obstacle::Failed)?;
        let next = store.next_offset(partition).await.map_err(|error| Obstacle::Failed(error.to_string()))?;
        held.check(next, progress)?;
        progress.looked.store(failures, Ordering::Release);
        Ok(())
    }
}

/// Looks whether the store went back, until the server stops.
pub(super) async fn watch(context: Arc<Context>, mut stop: watch::Receiver<bool>) {
    let core = &context.core;
    let stopped = stop.wait_for(|is_stopping| *is_stopping);
    let watching = async {
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            // In this order: what is stored later is not missed in what was asked before.
            let (attachment, stored) = (core.attachment.number().await, context.stored());
            let Ok(next) = core.next_offsets().await else { continue };
            let went_back = |(partition, stored): &(u32, u64)| {
                next.get(*partition as usize).is_none_or(|next| next < stored)
            };
            if stored.iter().any(went_back) {
                core.reattach(attachment).await;
                context.compare();
            }
        }
    };
    tokio::select! {
        () = watching => {}
        _ = stopped => {}
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn stored(progress: &Progress) -> u64 {
        progress.stored.load(Ordering::Acquire)
    }

    #[tokio::test]
    async fn each_partition_is_compared_once_with_each_attachment() {
        let attachment = Attachment::default();
        let [behind, ahead, unknown] = [20, 5, 1].map(|stored| Progress::new(stored, 0));
        assert!(attachment.hold(0, &behind).await.is_ok(), "nothing was attached since");
        attachment.renew(0, async || Ok(vec![10, 7])).await.unwrap();
        assert_eq!(attachment.hold(0, &behind).await.unwrap_err(), Obstacle::WentBack(10));
        assert_eq!(stored(&behind), 10);
        assert!(attachment.hold(0, &behind).await.is_ok(), "it goes on from there");
        // Others stored more of this one.
        assert!(attachment.hold(1, &ahead).await.is_ok());
        assert_eq!(stored(&ahead), 5);
        assert_eq!(attachment.hold(2, &unknown).await.unwrap_err(), Obstacle::WentBack(0));
    }

    #[tokio::test]
    async fn nothing_is_stored_between_attaching_and_comparing() {
        let attachment = Attachment::default();
        let progress = Progress::new(20, 0);
        let held = attachment.hold(0, &progress).await.unwrap();
        let unattached = ApplyError::Unattached { reason: "opened again".to_owned() };
        let Obstacle::Unattached { attachment: seen, .. } = held.obstacle(&unattached) else { panic!() };
        assert!(matches!(held.obstacle(&ApplyError::Overloaded), Obstacle::Failed(_)));
        let renewing = attachment.renew(seen, async || Err("away".to_owned()));
        let mut renewing = std::pin::pin!(renewing);
        assert!(renewing.as_mut().now_or_never().is_none(), "a batch is being stored");
        drop(held);
        assert!(renewing.await.is_err());
        // Attached, perhaps; but nobody knows where the store is.
        let Obstacle::Unattached { attachment: seen, .. } = attachment.hold(0, &progress).await.unwrap_err()
        else {
            panic!()
        };
        attachment.renew(seen, async || Ok(vec![20])).await.unwrap();
        // Whoever failed at the same time does not attach again.
        attachment.renew(seen, async || panic!()).await.unwrap();
        assert!(attachment.hold(0, &progress).await.is_ok());
    }

    #[test]
    fn a_failure_of_one_partition_makes_all_look_once() {
        let attachment = Attachment::default();
        let progresses = [20, 5].map(|stored| Progress::new(stored, 0));
        let unlooked = || progresses.each_ref().map(|progress| attachment.unlooked(progress));
        assert_eq!(unlooked(), [None; 2]);
        attachment.count_failure();
        assert_eq!(unlooked(), [Some(1); 2], "the one that did not fail looks, too");
        progresses[0].looked.store(1, Ordering::Release);
        assert_eq!(unlooked(), [None, Some(1)]);
        attachment.count_failure();
        assert_eq!(unlooked(), [Some(2); 2]);
    }

    #[tokio::test]
    async fn a_store_that_failed_is_where_it_was_or_is_attached_again() {
        let attachment = Attachment::default();
        let progress = Progress::new(20, 0);
        let held = attachment.hold(0, &progress).await.unwrap();
        assert_eq!(held.check(20, &progress), Ok(()));
        // What was not confirmed was stored, or another server has the partition.
        assert_eq!(held.check(25, &progress), Ok(()));
        let behind = held.check(19, &progress);
        let Err(Obstacle::Unattached { attachment: seen, .. }) = behind else { panic!("{behind:?}") };
        drop(held);
        attachment.renew(seen, async || Ok(vec![19])).await.unwrap();
        assert_eq!(attachment.hold(0, &progress).await.unwrap_err(), Obstacle::WentBack(19));
        assert_eq!(attachment.hold(0, &progress).await.unwrap().check(19, &progress), Ok(()));
    }
}
