//! The attachment to a store that may go back: its database was replaced by an older copy, or lost what it had confirmed.
//!
//! The store refuses positions then, until the log is attached again, and takes any from there on. So after each attaching
//! each partition asks the store for its next offset, and compares it with what was stored, before more of it is stored. If
//! it is an earlier one, what is in hand is dropped, and the partition is read again from there.
//!
//! Any other failure concerns one partition: it is repeated under the same attachment, and the others do not wait for it. But a
//! database that was away may have lost something without another sign, of any partition. So each partition asks once after
//! each failure, whoever had it, whether the store is where this server left it, before more of the partition is stored.
//!
//! A batch holds the attachment while it is compared and stored, and attaching waits for all that do. So no batch that was
//! compared before reaches the store after it, and none is stored between the attaching and the comparison.

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
    /// The attachment under which this was compared with the store.
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
pub(super) enum NotStored {
    /// The store wants this record first, an earlier one. The progress is there already.
    WentBack(u64),
    /// Nothing was stored. It may be repeated after another attaching than this one.
    Unattached { attachment: u64, reason: String },
    /// It may be stored. It may be repeated after the next comparison.
    Failed(String),
}

#[derive(Debug)]
pub(super) struct Current {
    number: u64,
    /// Whether attaching it succeeded. Nothing may be stored otherwise: the store may be attached, and be anywhere.
    is_attached: bool,
}

impl Current {
    /// What the store said to a batch.
    pub(super) fn not_stored(&self, error: &ApplyError) -> NotStored {
        match error {
            ApplyError::Unattached { reason } => self.unattached(reason),
            error => NotStored::Failed(error.to_string()),
        }
    }

    /// Compares a partition with the next offset that the store wants of it. Where the store went back under the same
    /// attachment, it must be attached again.
    fn compare(&self, next: u64, progress: &Progress) -> Result<(), NotStored> {
        let is_new = progress.compared.swap(self.number, Ordering::AcqRel) != self.number;
        if next >= progress.stored.load(Ordering::Acquire) {
            return Ok(());
        }
        if !is_new {
            return Err(self.unattached(format!("the store is at {next} again")));
        }
        progress.stored.store(next, Ordering::Release);
        Err(NotStored::WentBack(next))
    }

    fn unattached(&self, reason: impl ToString) -> NotStored {
        NotStored::Unattached { attachment: self.number, reason: reason.to_string() }
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
        let current = RwLock::new(Current { number: 0, is_attached: true });
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

    /// Holds it for a batch of a partition, which begins at the progress or behind it. `ask` returns the next offset that the
    /// store wants; it is called only if the partition was not compared since the last attaching and the last failure.
    pub(super) async fn hold(
        &self,
        progress: &Progress,
        ask: impl AsyncFnOnce() -> Result<u64, String>,
    ) -> Result<RwLockReadGuard<'_, Current>, NotStored> {
        let current = self.current.read().await;
        if !current.is_attached {
            return Err(current.unattached("attaching it failed"));
        }
        // Before the store is asked: what fails meanwhile counts for the next time.
        let failures = self.failures.load(Ordering::Acquire);
        let is_compared = progress.compared.load(Ordering::Acquire) == current.number;
        if !is_compared || progress.looked.load(Ordering::Acquire) != failures {
            let next = ask().await.map_err(NotStored::Failed)?;
            current.compare(next, progress)?;
            progress.looked.store(failures, Ordering::Release);
        }
        Ok(current)
    }

    /// Replaces the attachment `seen`, unless that was done meanwhile.
    pub(super) async fn renew(
        &self,
        seen: u64,
        attach: impl AsyncFnOnce() -> Result<(), String>,
    ) -> Result<(), String> {
        let mut current = self.current.write().await;
        if current.number != seen {
            return Ok(());
        }
        current.is_attached = false;
        attach().await?;
        *current = Current { number: seen.wrapping_add(1), is_attached: true };
        Ok(())
    }
}

impl Core {
    /// Holds the attachment for a batch of a partition, once the partition is known to be where the store is.
    pub(super) async fn hold(
        &self,
        partition: u32,
        progress: &Progress,
    ) -> Result<RwLockReadGuard<'_, Current>, NotStored> {
        self.attachment.hold(progress, async || self.next_offset(partition).await).await
    }
}

/// Looks whether the store went back, or cannot say of some partitions where it is, until the server stops.
pub(super) async fn watch(context: Context, mut stop: watch::Receiver<bool>) {
    let core = &context.core;
    let stopped = stop.wait_for(|is_stopping| *is_stopping);
    let watching = async {
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            // In this order: what is stored later is not missed in what was asked before.
            let (attachment, stored) = (core.attachment.number().await, context.stored());
            let Ok(next) = core.next_offsets().await else { continue };
            context.tell_unreadable(&next);
            let went_back = |(partition, stored): &(u32, u64)| match next.get(*partition as usize) {
                Some(Ok(next)) => next < stored,
                Some(Err(_)) => false,
                None => true,
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

    async fn hold<'a>(
        attachment: &'a Attachment,
        progress: &Progress,
        next: u64,
    ) -> Result<RwLockReadGuard<'a, Current>, NotStored> {
        attachment.hold(progress, async || Ok(next)).await
    }

    /// Fails if the store would be asked.
    async fn hold_at_once(attachment: &Attachment, progress: &Progress) {
        drop(attachment.hold(progress, async || panic!("it was compared")).await.unwrap());
    }

    #[tokio::test]
    async fn each_partition_is_compared_once_with_each_attachment() {
        let attachment = Attachment::default();
        let [behind, ahead] = [20, 5].map(|stored| Progress::new(stored, 0));
        hold_at_once(&attachment, &behind).await;
        attachment.renew(0, async || Ok(())).await.unwrap();
        // Where the store is cannot be read: then it is not compared.
        let unread = attachment.hold(&behind, async || Err("damaged".to_owned())).await;
        assert_eq!(unread.unwrap_err(), NotStored::Failed("damaged".to_owned()));
        assert_eq!(hold(&attachment, &behind, 10).await.unwrap_err(), NotStored::WentBack(10));
        assert_eq!(stored(&behind), 10);
        assert!(hold(&attachment, &behind, 10).await.is_ok(), "it goes on from there");
        hold_at_once(&attachment, &behind).await;
        // Others stored more of this one.
        assert!(hold(&attachment, &ahead, 7).await.is_ok());
        assert_eq!(stored(&ahead), 5);
        hold_at_once(&attachment, &ahead).await;
    }

    #[tokio::test]
    async fn nothing_is_stored_between_attaching_and_comparing() {
        let attachment = Attachment::default();
        let progress = Progress::new(20, 0);
        let held = hold(&attachment, &progress, 20).await.unwrap();
        let unattached = ApplyError::Unattached { reason: "opened again".to_owned() };
        let NotStored::Unattached { attachment: seen, .. } = held.not_stored(&unattached) else { panic!() };
        assert!(matches!(held.not_stored(&ApplyError::Overloaded), NotStored::Failed(_)));
        let renewing = attachment.renew(seen, async || Err("away".to_owned()));
        let mut renewing = std::pin::pin!(renewing);
        assert!(renewing.as_mut().now_or_never().is_none(), "a batch is being stored");
        drop(held);
        assert!(renewing.await.is_err());
        // Attached, perhaps; but nobody knows.
        let NotStored::Unattached { attachment: seen, .. } =
            hold(&attachment, &progress, 20).await.unwrap_err()
        else {
            panic!()
        };
        attachment.renew(seen, async || Ok(())).await.unwrap();
        // Whoever failed at the same time does not attach again.
        attachment.renew(seen, async || panic!()).await.unwrap();
        assert!(hold(&attachment, &progress, 20).await.is_ok());
    }

    #[tokio::test]
    async fn a_failure_of_one_partition_makes_all_look_once() {
        let attachment = Attachment::default();
        let [failed, silent] = [20, 5].map(|stored| Progress::new(stored, 0));
        attachment.count_failure();
        assert!(hold(&attachment, &failed, 20).await.is_ok());
        hold_at_once(&attachment, &failed).await;
        // The one that did not fail looks, too.
        let behind = hold(&attachment, &silent, 4).await;
        assert!(matches!(behind, Err(NotStored::Unattached { .. })), "{behind:?}");
        assert!(hold(&attachment, &silent, 5).await.is_ok());
        hold_at_once(&attachment, &silent).await;
        attachment.count_failure();
        let unread = attachment.hold(&silent, async || Err("damaged".to_owned())).await;
        assert!(matches!(unread, Err(NotStored::Failed(_))), "{unread:?}");
    }

    #[tokio::test]
    async fn a_store_that_failed_is_where_it_was_or_is_attached_again() {
        let attachment = Attachment::default();
        let progress = Progress::new(20, 0);
        attachment.count_failure();
        // What was not confirmed was stored, or another server has the partition.
        assert!(hold(&attachment, &progress, 25).await.is_ok());
        attachment.count_failure();
        let behind = hold(&attachment, &progress, 19).await.unwrap_err();
        let NotStored::Unattached { attachment: seen, .. } = behind else { panic!("{behind:?}") };
        attachment.renew(seen, async || Ok(())).await.unwrap();
        assert_eq!(hold(&attachment, &progress, 19).await.unwrap_err(), NotStored::WentBack(19));
        assert!(hold(&attachment, &progress, 19).await.is_ok());
    }
}
