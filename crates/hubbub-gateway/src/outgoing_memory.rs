//! Memory of what clients have not taken yet: answers, and what waits in sockets, of all connections together.
//!
//! Each is bounded by its own limit. Many clients that take nothing would still take the memory of the server, so they share one
//! budget. When it is exceeded, the connections on which nothing was taken for longest are given up until it is kept: refusing
//! further answers instead would let a few such clients keep everybody from reading. Live messages and pages of missed ones,
//! which are shared between connections, have a budget of their own ([`hubbub_pipeline::hub`]).
//!
//! A connection that was given up frees what it holds when its task runs. Requests wait meanwhile, if that is much
//! ([`OutgoingMemory::space`]), and few large answers are made at once ([`OutgoingMemory::permit_large`]): otherwise hundreds
//! that are asked for together would all be in memory before the first one is given up.
//!
//! Invariants
//! - No more is held than the budget and what one connection holds; as much again by those that were given up; and
//!   [`LARGE_AT_ONCE`] answers that are being made, and the messages of [`TAKES_AT_ONCE`] large takes.
//! - A connection on which little waits is never given up, and costs nothing here.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::Context;
use std::time::Duration;

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use hubbub_core::ErrorCode;
use hubbub_core::invariant::saturate;
use hubbub_pipeline::Metrics;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};

use crate::incoming_memory::FREE_BYTES;
use crate::problem::Problem;

/// Answers of several MiB that are made at once.
const LARGE_AT_ONCE: usize = 32;
/// Takes of many messages of queues that are on their way at the same time. They wait for the disk, which reads must not.
const TAKES_AT_ONCE: usize = 64;
/// How long a request waits for space, or for its turn to make a large answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// What clients have not taken, of all connections.
#[derive(Debug)]
pub struct OutgoingMemory {
    max_bytes: usize,
    state: Mutex<State>,
    /// Bytes of connections that were given up. Changed under the lock of `state` only.
    given_up: AtomicUsize,
    freed: Notify,
    large: Semaphore,
    takes: Semaphore,
    metrics: Arc<Metrics>,
}

#[derive(Debug, Default)]
struct State {
    bytes: usize,
    last_number: u64,
    /// In the order in which something was taken last.
    held: BTreeMap<u64, Held>,
}

#[derive(Debug)]
struct Held {
    bytes: usize,
    reader: Arc<Reader>,
}

impl OutgoingMemory {
    /// `max_bytes` of a server that sets nothing else.
    pub const DEFAULT_BYTES: usize = 256 << 20;

    /// Gives connections up when more than `max_bytes` are held, besides [`FREE_BYTES`] of each answer.
    pub fn new(max_bytes: usize, metrics: Arc<Metrics>) -> Arc<Self> {
        let (given_up, freed) = (AtomicUsize::new(0), Notify::new());
        let (large, takes) = (Semaphore::new(LARGE_AT_ONCE), Semaphore::new(TAKES_AT_ONCE));
        Arc::new(Self { max_bytes, state: Mutex::default(), given_up, freed, large, takes, metrics })
    }

    /// Waits while connections that were given up hold as much as all others may.
    pub(crate) async fn space(&self) -> Result<(), Problem> {
        if !self.is_short() {
            return Ok(());
        }
        let waiting = async {
            loop {
                let mut freed = std::pin::pin!(self.freed.notified());
                freed.as_mut().enable();
                if !self.is_short() {
                    return;
                }
                freed.await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.map_err(|_| overloaded())
    }

    fn is_short(&self) -> bool {
        self.given_up.load(Ordering::Relaxed) > self.max_bytes
    }

    /// Waits until an answer of several MiB may be made. It is to be held until that is made, and everything that is needed for it.
    pub(crate) async fn permit_large(&self) -> Result<SemaphorePermit<'_>, Problem> {
        let turn = tokio::time::timeout(PATIENCE, self.large.acquire()).await;
        let turn = turn.ok().and_then(Result::ok).ok_or_else(overloaded)?;
        self.space().await?;
        Ok(turn)
    }

    /// Waits until many messages of queues may be taken, for so long or a moment. It is to be held until the answer is made.
    pub(crate) async fn permit_take(&self, patience: Duration) -> Result<SemaphorePermit<'_>, Problem> {
        let turn = tokio::time::timeout(patience.max(PATIENCE), self.takes.acquire()).await;
        let detail = "too many messages of queues are being taken at this moment";
        let turn = turn.ok().and_then(Result::ok);
        let turn = turn.ok_or_else(|| Problem::new(ErrorCode::Overloaded, detail))?;
        self.space().await?;
        Ok(turn)
    }

    /// Gives up who has taken nothing for longest. Whoever is alone may hold more than all may. Their tasks are to be woken once
    /// nothing is locked: a task that is dropped frees what it holds.
    #[must_use]
    fn enforce_bound(&self, state: &mut State) -> Vec<Arc<Reader>> {
        let mut given_up = Vec::new();
        while state.bytes > self.max_bytes
            && state.held.len() > 1
            && let Some((_, Held { bytes, reader })) = state.held.pop_first()
        {
            state.bytes -= bytes;
            self.given_up.fetch_add(bytes, Ordering::Relaxed);
            reader.number.store(NONE, Ordering::Relaxed);
            reader.is_given_up.store(true, Ordering::Release);
            self.metrics.unread_given_up.inc();
            given_up.push(reader);
        }
        given_up
    }

    fn show(&self, state: &State) {
        self.metrics.unread_bytes.set(saturate(state.bytes));
    }
}

fn overloaded() -> Problem {
    Problem::new(ErrorCode::Overloaded, "too many answers wait for their readers at this moment")
}

/// Nothing of the reader is held; numbers begin with 1.
const NONE: u64 = 0;

/// The client of one connection, who reads what it is sent.
#[derive(Debug)]
pub(crate) struct Reader {
    all: Arc<OutgoingMemory>,
    /// Its number in [`State::held`], or [`NONE`]. Changed under the lock of that only.
    number: AtomicU64,
    is_given_up: AtomicBool,
    waker: AtomicWaker,
}

impl Reader {
    pub(crate) fn new(all: &Arc<OutgoingMemory>) -> Arc<Self> {
        let (number, is_given_up, waker) = (AtomicU64::new(NONE), AtomicBool::new(false), AtomicWaker::new());
        Arc::new(Self { all: all.clone(), number, is_given_up, waker })
    }

    /// Whether the connection is to end.
    pub(crate) fn is_given_up(&self) -> bool {
        self.is_given_up.load(Ordering::Acquire)
    }

    /// Wakes the task when the connection is given up. Call before [`Self::is_given_up`].
    pub(crate) fn register(&self, context: &Context<'_>) {
        self.waker.register(context.waker());
    }

    /// Resolves when the connection is given up.
    pub(crate) async fn given_up(&self) {
        std::future::poll_fn(|context| {
            self.register(context);
            if self.is_given_up() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
    }

    /// The client has taken something.
    pub(crate) fn touch(&self) {
        if self.number.load(Ordering::Relaxed) != NONE {
            self.relist(&mut self.all.state.lock(), |bytes| bytes);
        }
    }

    fn add(self: &Arc<Self>, bytes: usize) {
        let mut state = self.all.state.lock();
        if self.is_given_up() {
            self.all.given_up.fetch_add(bytes, Ordering::Relaxed);
            return;
        }
        let number = self.number.load(Ordering::Relaxed);
        match state.held.get_mut(&number) {
            Some(held) => held.bytes += bytes,
            None => self.list(&mut state, Held { bytes, reader: self.clone() }),
        }
        state.bytes += bytes;
        let given_up = self.all.enforce_bound(&mut state);
        self.all.show(&state);
        drop(state);
        given_up.iter().for_each(|reader| reader.waker.wake());
    }

    /// Behind all others.
    fn list(&self, state: &mut State, held: Held) {
        state.last_number += 1;
        self.number.store(state.last_number, Ordering::Relaxed);
        state.held.insert(state.last_number, held);
    }

    fn free(&self, bytes: usize) {
        let mut state = self.all.state.lock();
        if self.is_given_up() {
            let left = self.all.given_up.load(Ordering::Relaxed).saturating_sub(bytes);
            self.all.given_up.store(left, Ordering::Relaxed);
            self.all.freed.notify_waiters();
        } else {
            self.relist(&mut state, |held| held.saturating_sub(bytes));
        }
    }

    /// Changes what is held, and puts it behind all others.
    fn relist(&self, state: &mut State, change: impl FnOnce(usize) -> usize) {
        let number = self.number.swap(NONE, Ordering::Relaxed);
        let Some(mut held) = state.held.remove(&number) else { return };
        state.bytes -= held.bytes;
        held.bytes = change(held.bytes);
        state.bytes += held.bytes;
        if held.bytes > 0 {
            self.list(state, held);
        }
        self.all.show(state);
    }
}

/// A part of what one client has not taken. It is free again when dropped.
#[derive(Debug)]
pub(crate) struct Share {
    reader: Arc<Reader>,
    counted: usize,
}

impl Share {
    pub(crate) fn new(reader: &Arc<Reader>) -> Self {
        Self { reader: reader.clone(), counted: 0 }
    }

    /// Says how many bytes wait now.
    pub(crate) fn set(&mut self, unread_bytes: usize) {
        let counted = unread_bytes.saturating_sub(FREE_BYTES);
        if counted > self.counted {
            self.reader.add(counted - self.counted);
        } else if counted < self.counted {
            self.reader.free(self.counted - counted);
        }
        self.counted = counted;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// Bytes that count as long as anybody has them.
struct Counted {
    bytes: Bytes,
    _share: Share,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Counts bytes as unread until they are dropped.
pub(crate) fn charge(reader: &Arc<Reader>, bytes: Bytes) -> Bytes {
    if bytes.len() <= FREE_BYTES {
        return bytes;
    }
    let mut share = Share::new(reader);
    share.set(bytes.len());
    Bytes::from_owner(Counted { bytes, _share: share })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(max_bytes: usize) -> (Arc<OutgoingMemory>, Arc<Metrics>) {
        let metrics = Arc::new(Metrics::default());
        (OutgoingMemory::new(max_bytes, metrics.clone()), metrics)
    }

    fn answer(reader: &Arc<Reader>, counted_bytes: usize) -> Bytes {
        charge(reader, vec![b'a'; FREE_BYTES + counted_bytes].into())
    }

    #[test]
    fn whoever_has_taken_nothing_for_longest_is_given_up() {
        let (all, metrics) = of(100);
        let [first, second, third, fourth] = [(); 4].map(|()| Reader::new(&all));
        let _little = charge(&first, vec![b'a'; FREE_BYTES].into());
        assert_eq!(metrics.unread_bytes.get(), 0, "a little is free");
        let of_first = answer(&first, 40);
        let (of_second, other_of_second) = (answer(&second, 20), answer(&second, 10));
        let of_third = answer(&third, 30);
        assert_eq!(metrics.unread_bytes.get(), 100);
        first.touch();
        let of_fourth = answer(&fourth, 1);
        assert!(second.is_given_up(), "it has waited for longest");
        assert!(![&first, &third, &fourth].iter().any(|reader| reader.is_given_up()));
        assert_eq!((metrics.unread_bytes.get(), metrics.unread_given_up.get()), (71, 1));
        drop((of_second, other_of_second));
        let more_of_second = answer(&second, 50);
        assert_eq!(metrics.unread_bytes.get(), 71, "what was given up does not count");
        assert_eq!(all.given_up.load(Ordering::Relaxed), 50);
        drop(of_third);
        assert_eq!(metrics.unread_bytes.get(), 41);
        drop((of_first, of_fourth, more_of_second));
        assert_eq!(metrics.unread_bytes.get(), 0);
        assert!(all.state.lock().held.is_empty());
        assert_eq!(all.given_up.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn whoever_is_alone_may_hold_more() {
        let (all, metrics) = of(100);
        let (first, second) = (Reader::new(&all), Reader::new(&all));
        let held = answer(&first, 1_000);
        assert!(!first.is_given_up());
        let _other = answer(&second, 1);
        assert!(first.is_given_up() && !second.is_given_up());
        assert_eq!(metrics.unread_bytes.get(), 1);
        drop(held);
        assert_eq!(metrics.unread_bytes.get(), 1);
    }

    #[test]
    fn taking_a_part_counts_as_taking() {
        let (all, _) = of(100);
        let (first, second) = (Reader::new(&all), Reader::new(&all));
        let (mut of_first, mut of_second) = (Share::new(&first), Share::new(&second));
        of_first.set(FREE_BYTES + 60);
        of_second.set(FREE_BYTES + 40);
        of_first.set(FREE_BYTES + 50);
        of_second.set(FREE_BYTES + 51);
        assert!(second.is_given_up() && !first.is_given_up());
    }

    #[tokio::test]
    async fn requests_wait_while_what_was_given_up_is_there() {
        let (all, _) = of(100);
        let (first, second) = (Reader::new(&all), Reader::new(&all));
        let (held, _other) = (answer(&first, 300), answer(&second, 1));
        let waiting = tokio::spawn({
            let all = all.clone();
            async move { all.permit_large().await.map(drop).is_ok() }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(held);
        assert!(waiting.await.unwrap());
    }

    #[tokio::test]
    async fn a_task_hears_that_its_connection_is_given_up() {
        let (all, _) = of(100);
        let (first, second) = (Reader::new(&all), Reader::new(&all));
        let waiting = tokio::spawn({
            let first = first.clone();
            async move { first.given_up().await }
        });
        let _held = [answer(&first, 90), answer(&second, 90)];
        waiting.await.unwrap();
    }
}
