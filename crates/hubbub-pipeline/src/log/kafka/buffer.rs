//! Records of one partition that wait for the store.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hubbub_core::{LogPosition, Timestamp};
use parking_lot::{Condvar, Mutex};
use rdkafka::message::BorrowedMessage;
use tokio::sync::Notify;

use super::Core;
use super::attachment::Progress;
use super::batch::Batch;

/// How long a full buffer holds up all partitions before its own is paused, which drops what the library has fetched.
const FULL_TIMEOUT: Duration = Duration::from_secs(1);

/// What is to be done for a partition.
pub(super) enum Work {
    Batch(Box<Batch>),
    /// The store may have gone back.
    Compare,
    /// It is not known from where to read the partition.
    Locate,
}

#[derive(Default)]
struct Buffered {
    batches: VecDeque<Batch>,
    /// Records before this offset were taken.
    next: u64,
    /// While it is paused: with so few batches it goes on. Fetching again takes a while.
    resume_at: Option<usize>,
    /// The partition is to be read again from here; nothing is taken until the library does so.
    seek_to: Option<u64>,
    /// Where the store is is not known: the partition stays paused, and nothing is taken, until it is to be read from there.
    is_lost: bool,
    must_compare: bool,
    is_over: bool,
}

/// A partition of which Kafka has more, and nothing comes.
#[derive(Default)]
struct Waiting {
    /// What is stored, and since when no more is.
    since: Option<(u64, Timestamp)>,
    /// It was noticed anew, and nobody has looked yet what there is.
    must_look: bool,
}

pub(super) struct Buffer {
    buffered: Mutex<Buffered>,
    filled: Notify,
    drained: Condvar,
    pub(super) progress: Progress,
    /// The offset behind what is stored, as the library knows it.
    pub(super) reported: AtomicU64,
    pub(super) unstored: AtomicU64,
    waiting: Mutex<Waiting>,
}

impl Buffer {
    pub(super) fn new(progress: Progress) -> Self {
        let reported = progress.stored.load(Ordering::Acquire).into();
        Self {
            buffered: Mutex::default(),
            filled: Notify::new(),
            drained: Condvar::new(),
            progress,
            reported,
            unstored: AtomicU64::new(0),
            waiting: Mutex::default(),
        }
    }

    /// That of a paused partition of which nobody knows yet where the store is.
    pub(super) fn lost(attachment: u64) -> Self {
        let buffer = Self::new(Progress::new(0, attachment));
        let paused = Buffered { is_lost: true, resume_at: Some(0), ..Buffered::default() };
        Self { buffered: paused.into(), ..buffer }
    }

    /// Whether it is not known where the store is.
    pub(super) fn is_lost(&self) -> bool {
        self.buffered.lock().is_lost
    }

    /// What is to be done next; `None` when the partition was taken away.
    pub(super) async fn next(&self) -> Option<Work> {
        loop {
            {
                let mut buffered = self.buffered.lock();
                if buffered.is_over {
                    return None;
                }
                if buffered.is_lost {
                    return Some(Work::Locate);
                }
                if std::mem::take(&mut buffered.must_compare) {
                    return Some(Work::Compare);
                }
                if let Some(batch) = buffered.batches.pop_front() {
                    self.drained.notify_one();
                    return Some(Work::Batch(Box::new(batch)));
                }
            }
            self.filled.notified().await;
        }
    }

    /// Takes a record, and waits a moment if the buffer is full then. Returns whether the partition must be paused.
    pub(super) fn take(
        &self,
        core: &Core,
        position: LogPosition,
        message: &BorrowedMessage<'_>,
        batches_max: usize,
    ) -> bool {
        let mut buffered = self.buffered.lock();
        let is_unwanted = buffered.is_lost || buffered.seek_to.is_some() || buffered.is_over;
        if is_unwanted || position.offset < buffered.next {
            return false;
        }
        buffered.next = position.offset + 1;
        let last = buffered.batches.back_mut().filter(|batch| batch.has_room());
        if last.is_none_or(|batch| !batch.take(core, position, message)) {
            let mut batch = Batch::default();
            batch.take(core, position, message);
            buffered.batches.push_back(batch);
        }
        self.unstored.fetch_add(1, Ordering::Relaxed);
        self.filled.notify_one();
        if buffered.resume_at.is_some() {
            return false;
        }
        let is_full = |buffered: &mut Buffered| buffered.batches.len() >= batches_max;
        let waited = self.drained.wait_while_for(&mut buffered, is_full, FULL_TIMEOUT);
        if waited.timed_out() {
            buffered.resume_at = Some(batches_max / 2);
        }
        waited.timed_out()
    }

    /// Passes over what comes before `next`, behind all that was taken.
    pub(super) fn pass_over(&self, partition: u32, next: u64, now: Timestamp) {
        let mut buffered = self.buffered.lock();
        let is_unwanted = buffered.is_lost || buffered.seek_to.is_some() || buffered.is_over;
        if is_unwanted || next <= buffered.next.max(self.progress.stored.load(Ordering::Acquire)) {
            return;
        }
        buffered.next = next;
        if buffered.batches.back().is_none_or(|batch| !batch.has_room()) {
            buffered.batches.push_back(Batch::default());
        }
        if let Some(batch) = buffered.batches.back_mut() {
            batch.pass_over(partition, next - 1, now);
        }
        self.unstored.fetch_add(1, Ordering::Relaxed);
        self.filled.notify_one();
    }

    /// Notes whether Kafka has more than is stored, and returns since when nothing of it has come.
    pub(super) fn wait(&self, has_more: bool, now: Timestamp) -> Option<Timestamp> {
        let stored = self.progress.stored.load(Ordering::Acquire);
        let waits = has_more && self.unstored.load(Ordering::Relaxed) == 0;
        let mut waiting = self.waiting.lock();
        let before = waiting.since.filter(|(of, _)| *of == stored);
        waiting.since = waits.then(|| before.unwrap_or((stored, now)));
        waiting.must_look = waits;
        waiting.since.map(|(_, since)| since)
    }

    /// Whether what Kafka has more is to be looked at; once.
    pub(super) fn must_look(&self) -> bool {
        std::mem::take(&mut self.waiting.lock().must_look)
    }

    pub(super) fn resumes(&self) -> bool {
        let mut buffered = self.buffered.lock();
        let has_room = buffered.resume_at.is_some_and(|at| buffered.batches.len() <= at);
        let resumes = has_room && !buffered.is_lost;
        buffered.resume_at = buffered.resume_at.filter(|_| !resumes);
        resumes
    }

    /// Asks whoever stores the records to compare them with the store.
    pub(super) fn compare(&self) {
        self.buffered.lock().must_compare = true;
        self.filled.notify_one();
    }

    /// From where to read the partition is not known any more: drops what waits, and takes nothing until it is. Returns
    /// whether that is new; then the partition must be paused.
    pub(super) fn lose(&self) -> bool {
        let mut buffered = self.buffered.lock();
        if buffered.is_lost {
            return false;
        }
        let dropped: usize = buffered.batches.drain(..).map(|batch| batch.len()).sum();
        self.unstored.fetch_sub(dropped as u64, Ordering::Relaxed);
        (buffered.is_lost, buffered.seek_to, buffered.resume_at) = (true, None, Some(0));
        self.drained.notify_one();
        self.filled.notify_one();
        true
    }

    /// Drops everything, and takes nothing until the partition is read from `offset`.
    pub(super) fn go_back(&self, offset: u64) {
        let mut buffered = self.buffered.lock();
        buffered.batches.clear();
        (buffered.next, buffered.seek_to, buffered.is_lost) = (offset, Some(offset), false);
        self.unstored.store(0, Ordering::Relaxed);
        self.drained.notify_one();
    }

    /// Where the partition must be read from before anything more is taken.
    pub(super) fn seek_to(&self) -> Option<u64> {
        self.buffered.lock().seek_to
    }

    /// The partition is read from `offset`, unless the store went back once more.
    pub(super) fn sought(&self, offset: u64) {
        let mut buffered = self.buffered.lock();
        buffered.seek_to = buffered.seek_to.filter(|wanted| *wanted != offset);
    }

    /// Whether the partition was taken away.
    pub(super) fn is_over(&self) -> bool {
        self.buffered.lock().is_over
    }

    pub(super) fn end(&self) {
        let mut buffered = self.buffered.lock();
        buffered.is_over = true;
        buffered.batches.clear();
        self.filled.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_in_hand_is_dropped_when_the_store_goes_back() {
        let buffer = Buffer::new(Progress::new(20, 0));
        buffer.buffered.lock().batches.push_back(Batch::default());
        buffer.compare();
        assert!(matches!(buffer.next().await, Some(Work::Compare)));
        buffer.unstored.store(3, Ordering::Relaxed);
        buffer.go_back(10);
        assert_eq!((buffer.seek_to(), buffer.unstored.load(Ordering::Relaxed)), (Some(10), 0));
        buffer.go_back(5);
        buffer.sought(10);
        assert_eq!(buffer.seek_to(), Some(5));
        buffer.sought(5);
        assert_eq!(buffer.seek_to(), None);
        assert!(!buffer.is_over());
        buffer.end();
        assert!(buffer.is_over());
        assert!(buffer.next().await.is_none(), "the batch is gone");
    }

    #[tokio::test]
    async fn what_nobody_is_shown_is_passed_over_behind_the_rest() {
        let (buffer, now) = (Buffer::new(Progress::new(20, 0)), Timestamp::from_micros(9));
        let unstored = || buffer.unstored.load(Ordering::Relaxed);
        buffer.pass_over(0, 20, now);
        assert_eq!(unstored(), 0, "it is stored");
        buffer.pass_over(0, 22, now);
        buffer.pass_over(0, 22, now);
        buffer.pass_over(0, 23, now);
        assert_eq!(unstored(), 2);
        let Some(Work::Batch(batch)) = buffer.next().await else { panic!() };
        assert_eq!((batch.len(), batch.end()), (2, 23));
        buffer.go_back(10);
        buffer.pass_over(0, 30, now);
        assert_eq!(unstored(), 0, "it is not read from there yet");
    }

    #[test]
    fn a_partition_waits_while_nothing_comes() {
        let buffer = Buffer::new(Progress::new(20, 0));
        let at = Timestamp::from_micros;
        assert_eq!((buffer.wait(false, at(1)), buffer.must_look()), (None, false));
        assert_eq!((buffer.wait(true, at(2)), buffer.must_look()), (Some(at(2)), true));
        assert_eq!((buffer.wait(true, at(3)), buffer.must_look()), (Some(at(2)), true));
        assert!(!buffer.must_look(), "once");
        buffer.progress.stored.store(21, Ordering::Release);
        assert_eq!(buffer.wait(true, at(4)), Some(at(4)), "something came");
        buffer.unstored.store(1, Ordering::Relaxed);
        assert_eq!((buffer.wait(true, at(5)), buffer.must_look()), (None, false), "it is in hand");
    }

    #[test]
    fn a_lost_partition_stays_paused_until_it_is_read_from_where_the_store_is() {
        let buffer = Buffer::lost(0);
        assert!(buffer.is_lost() && !buffer.resumes());
        assert_eq!(buffer.seek_to(), None);
        buffer.go_back(0);
        assert!(!buffer.is_lost() && buffer.resumes());
        assert_eq!(buffer.seek_to(), Some(0));
        assert!(!buffer.resumes(), "once");
    }

    #[tokio::test]
    async fn what_waits_is_dropped_when_the_place_is_lost() {
        let buffer = Buffer::new(Progress::new(20, 0));
        buffer.buffered.lock().batches.push_back(Batch::default());
        buffer.compare();
        assert!(buffer.lose() && !buffer.lose());
        assert!(buffer.is_lost() && !buffer.resumes());
        assert!(matches!(buffer.next().await, Some(Work::Locate)));
        buffer.go_back(20);
        assert!(matches!(buffer.next().await, Some(Work::Compare)), "and no batch of before");
        assert_eq!(buffer.seek_to(), Some(20));
        buffer.end();
        assert!(!buffer.lose() || buffer.next().await.is_none());
    }
}
