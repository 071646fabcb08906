//! Lets those who need the newest changes at the same time share one read of them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use hubbub_core::store::ReadError;
use parking_lot::Mutex;

pub(super) struct CoalescedRead<E = ReadError> {
    /// Held while changes are read.
    reading: tokio::sync::Mutex<()>,
    /// The number of the last read that began. It may have failed since, or been given up.
    begun: AtomicU64,
    /// The number of the last read that succeeded.
    done: AtomicU64,
    /// When that read began.
    up_to: Mutex<Instant>,
    /// The number of the last read that failed, and how.
    failed: Mutex<Option<(u64, E)>>,
}

impl<E: Clone> CoalescedRead<E> {
    /// To be made before everything is read for the first time.
    pub(super) fn new() -> Self {
        let (begun, done) = (AtomicU64::new(0), AtomicU64::new(0));
        let (up_to, failed) = (Mutex::new(Instant::now()), Mutex::new(None));
        Self { reading: tokio::sync::Mutex::default(), begun, done, up_to, failed }
    }

    /// All changes before this were read.
    pub(super) fn up_to(&self) -> Instant {
        *self.up_to.lock()
    }

    /// Returns what became of a read that began after this was called: that of somebody else, or `read`. While the store is
    /// silent, nobody waits for more than two reads.
    pub(super) async fn run(&self, read: impl Future<Output = Result<(), E>>) -> Result<(), E> {
        let begun_before = self.begun.load(Ordering::SeqCst);
        let _reading = self.reading.lock().await;
        if self.done.load(Ordering::SeqCst) > begun_before {
            return Ok(());
        }
        if let Some(error) = self.failed_since(begun_before) {
            return Err(error);
        }
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let began = Instant::now();
        read.await.inspect_err(|error| *self.failed.lock() = Some((number, error.clone())))?;
        self.done.store(number, Ordering::SeqCst);
        *self.up_to.lock() = began;
        Ok(())
    }

    fn failed_since(&self, number: u64) -> Option<E> {
        self.failed.lock().as_ref().filter(|(failed, _)| *failed > number).map(|(_, error)| error.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, poll_fn, ready};
    use std::pin::Pin;
    use std::task::Poll;

    use super::*;

    type Read<'a> = Pin<Box<dyn Future<Output = Result<(), &'static str>> + Send + 'a>>;

    /// Polls it once, which must not end it.
    async fn begin(read: &mut Read<'_>) {
        assert!(poll_fn(|context| Poll::Ready(read.as_mut().poll(context))).await.is_pending());
    }

    /// What others read is good enough only if they began later. Then it counts as well if it failed.
    #[tokio::test]
    async fn a_read_of_somebody_else_counts_only_if_it_began_later() {
        let catching_up = CoalescedRead::new();
        let with = |result: Result<(), &'static str>| -> Read<'_> {
            Box::pin(catching_up.run(async move {
                tokio::task::yield_now().await;
                result
            }))
        };
        let not_needed = || -> Read<'_> { Box::pin(catching_up.run(ready(Err("it was read again")))) };
        // Those that wait while another one reads.
        for outcome in [Ok(()), Err("the store is away")] {
            let mut reader = with(Ok(()));
            begin(&mut reader).await;
            let (mut second, mut third) = (with(outcome), not_needed());
            begin(&mut second).await;
            begin(&mut third).await;
            assert_eq!(reader.await, Ok(()));
            assert_eq!(second.await, outcome);
            assert_eq!(third.await, outcome);
        }
        // The first began before the others came.
        let mut first = with(Err("the store is away"));
        begin(&mut first).await;
        let (mut second, mut third) = (with(Err("still away")), not_needed());
        begin(&mut second).await;
        begin(&mut third).await;
        assert_eq!(first.await, Err("the store is away"));
        assert_eq!((second.await, third.await), (Err("still away"), Err("still away")));
        // A failure from before is nobody's.
        assert_eq!(with(Ok(())).await, Ok(()));
    }

    #[tokio::test]
    async fn a_read_that_was_given_up_counts_for_nobody() {
        let catching_up = CoalescedRead::new();
        let mut reader: Read<'_> = Box::pin(catching_up.run(pending()));
        begin(&mut reader).await;
        let mut given_up: Read<'_> = Box::pin(catching_up.run(pending()));
        let mut waiting: Read<'_> = Box::pin(catching_up.run(ready(Err("read"))));
        begin(&mut given_up).await;
        begin(&mut waiting).await;
        drop(reader);
        begin(&mut given_up).await;
        drop(given_up);
        assert_eq!(waiting.await, Err("read"));
    }

    #[tokio::test]
    async fn it_is_up_to_the_beginning_of_the_last_read_that_succeeded() {
        let catching_up = CoalescedRead::new();
        let made = catching_up.up_to();
        assert!(catching_up.run(ready(Err("the store is away"))).await.is_err());
        assert_eq!(catching_up.up_to(), made);
        let mut read = None;
        let reading = async {
            read = Some(Instant::now());
            Ok(())
        };
        assert!(catching_up.run(reading).await.is_ok());
        assert!((made..=read.unwrap()).contains(&catching_up.up_to()) && catching_up.up_to() > made);
    }
}
