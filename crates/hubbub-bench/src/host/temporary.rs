//! What a measurement makes in a database or a broker: it is removed again, whatever becomes of the measurement.

use std::io::Write as _;
use std::ops::Deref;
use std::time::Duration;

use anyhow::Context;

/// How long it may take to remove what was given up.
const PATIENCE: Duration = Duration::from_secs(15);

/// Something that can be removed, even where it is not there any more, or not yet.
pub(crate) trait Remove: Sync {
    /// Removes it, as often as it is asked to.
    async fn remove(&self) -> anyhow::Result<()>;
}

/// Is removed with [`Temporary::remove`]; where that does not come to an end, because something failed or the process is told to
/// stop, when it is dropped.
pub(crate) struct Temporary<R: Remove> {
    what: R,
    is_removed: bool,
}

impl<R: Remove> Temporary<R> {
    pub(crate) fn new(what: R) -> Self {
        Self { what, is_removed: false }
    }

    pub(crate) async fn remove(mut self) -> anyhow::Result<()> {
        let removed = self.what.remove().await;
        self.is_removed = true;
        removed
    }
}

impl<R: Remove> Deref for Temporary<R> {
    type Target = R;

    fn deref(&self) -> &R {
        &self.what
    }
}

impl<R: Remove> Drop for Temporary<R> {
    fn drop(&mut self) {
        if self.is_removed {
            return;
        }
        let what = &self.what;
        // Nothing can be waited for on a thread of a runtime.
        let removed = std::thread::scope(|scope| scope.spawn(|| remove_now(what)).join());
        if let Ok(Err(error)) = removed {
            // Nobody can be told that the terminal is gone.
            let _ = writeln!(std::io::stderr(), "something of the measurement is left: {error:#}");
        }
    }
}

fn remove_now(what: &impl Remove) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        tokio::time::timeout(PATIENCE, what.remove()).await.context("it could not be removed in time")?
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::task::{Context, Waker};

    use super::*;

    /// Counts how often it was removed.
    struct Counted(Arc<AtomicU64>);

    impl Remove for Counted {
        async fn remove(&self) -> anyhow::Result<()> {
            tokio::task::yield_now().await;
            self.0.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }
    }

    #[tokio::test]
    async fn it_is_removed_once_however_it_ends() {
        let removed = Arc::new(AtomicU64::new(0));
        let make = || Temporary::new(Counted(Arc::clone(&removed)));
        make().remove().await.unwrap();
        assert_eq!(removed.load(Ordering::SeqCst), 1);
        let failing = async {
            let _made = make();
            anyhow::bail!("it fails")
        };
        let failed: anyhow::Result<()> = failing.await;
        failed.unwrap_err();
        assert_eq!(removed.load(Ordering::SeqCst), 2, "what failed");
        // A removal that is itself given up begins anew.
        let mut removing = Box::pin(make().remove());
        assert!(removing.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(removing);
        assert_eq!(removed.load(Ordering::SeqCst), 3, "what was given up");
    }
}
