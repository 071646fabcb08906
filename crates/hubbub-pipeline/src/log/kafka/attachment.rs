//! The attachment to a store that may go back: its database was replaced by an older copy, or lost what it had confirmed.
//!
//! The store refuses positions then, until the log is attached again, and takes any from there on. So after each attaching
//! the next offset that the store wants is compared with what was stored of the partition, before more of it is stored. If
//! it is an earlier one, what is in hand is dropped, and the partition is read again from there.
//!
//! A batch holds the attachment while it is stored, and attaching waits for all that do. So no batch that was compared
//! before reaches the store after it, and none is stored between the attaching and the comparison.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{RwLock, RwLockReadGuard, watch};

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
}

impl Progress {
    /// Starts at an offset that the store said under this attachment, or a later one.
    pub(super) fn new(stored: u64, attachment: u64) -> Self {
        Self { stored: stored.into(), compared: attachment.into() }
    }
}

/// Why a batch was not stored.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// The store wants this record first, an earlier one. The progress is there already.
    WentBack(u64),
    /// It may be repeated after another attaching than this one.
    Failed { attachment: u64, reason: String },
}

#[derive(Debug)]
pub(super) struct Current {
    number: u64,
    /// The offsets that the store wanted when it was attached; `None` = they are not known, and nothing may be stored.
    next: Option<Vec<u64>>,
}

impl Current {
    pub(super) fn failed(&self, reason: impl ToString) -> Obstacle {
        Obstacle::Failed { attachment: self.number, reason: reason.to_string() }
    }
}

/// The current attachment.
#[derive(Debug)]
pub(super) struct Attachment(RwLock<Current>);

impl Default for Attachment {
    /// That of the start: everybody asks the store after it.
    fn default() -> Self {
        Self(RwLock::new(Current { number: 0, next: Some(Vec::new()) }))
    }
}

impl Attachment {
    pub(super) async fn number(&self) -> u64 {
        self.0.read().await.number
    }

    /// Holds it for a batch of this partition, which begins at the progress or behind it.
    pub(super) async fn hold(
        &self,
        partition: u32,
        progress: &Progress,
    ) -> Result<RwLockReadGuard<'_, Current>, Obstacle> {
        let current = self.0.read().await;
        let Some(next) = &current.next else { return Err(current.failed("the log is not attached")) };
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
        let mut current = self.0.write().await;
        if current.number != seen {
            return Ok(());
        }
        current.next = None;
        let next = attach().await?;
        (current.number, current.next) = (seen.wrapping_add(1), Some(next));
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
        let Obstacle::Failed { attachment: seen, .. } = held.failed("away") else { panic!() };
        let renewing = attachment.renew(seen, async || Err("away".to_owned()));
        let mut renewing = std::pin::pin!(renewing);
        assert!(renewing.as_mut().now_or_never().is_none(), "a batch is being stored");
        drop(held);
        assert!(renewing.await.is_err());
        // Attached, perhaps; but nobody knows where the store is.
        let Obstacle::Failed { attachment: seen, .. } = attachment.hold(0, &progress).await.unwrap_err()
        else {
            panic!()
        };
        attachment.renew(seen, async || Ok(vec![20])).await.unwrap();
        // Whoever failed at the same time does not attach again.
        attachment.renew(seen, async || panic!()).await.unwrap();
        assert!(attachment.hold(0, &progress).await.is_ok());
    }
}
