//! Memory of what has not arrived whole: bodies, frames and commands, of all connections together.
//!
//! Each is bounded by its own limit, and takes memory only as it comes. Many connections that all stop in the middle of something
//! long would still take the memory of the server, so they share one budget. When it is exceeded, what has not grown for longest
//! is given up until it is kept: refusing whatever comes next instead would let a few such connections keep everybody out. That
//! needs no addresses, which everybody behind a proxy may share.
//!
//! What is whole, and waits for its answer, counts, and is not given up: the server is at work on it.
//!
//! Invariants
//! - No more is held than the budget, [`FREE_BYTES`] of each, and as much as the budget again by those that were given up and
//!   whose tasks have not run since.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;
use hubbub_core::ErrorCode;
use hubbub_core::invariant::saturate;
use hubbub_pipeline::Metrics;
use parking_lot::Mutex;

use crate::problem::Problem;

/// Bytes of each body, frame, command or answer that do not count: who fills a budget is in nobody's way who sends little, and is
/// sent little.
pub(crate) const FREE_BYTES: usize = 16 * 1024;
/// Whoever sends less than this does not count as going on: a byte now and then would keep a place.
const GROWTH_BYTES: usize = 4 * 1024;

/// What is held of all that has not arrived whole.
#[derive(Debug)]
pub struct IncomingMemory {
    max_bytes: usize,
    state: Mutex<State>,
    metrics: Arc<Metrics>,
}

#[derive(Debug, Default)]
struct State {
    /// Of those that are not given up.
    bytes: usize,
    /// Of those that are given up.
    given_up: usize,
    last_number: u64,
    /// Those that may be given up, in the order in which they grew last.
    growing: BTreeMap<u64, Growing>,
    growing_bytes: usize,
}

#[derive(Debug)]
struct Growing {
    bytes: usize,
    holder: Arc<Holder>,
}

impl State {
    fn unlist(&mut self, number: u64) {
        if let Some(growing) = self.growing.remove(&number) {
            self.growing_bytes -= growing.bytes;
        }
    }

    fn list(&mut self, number: u64, growing: Growing) {
        self.growing_bytes += growing.bytes;
        self.growing.insert(number, growing);
    }
}

impl IncomingMemory {
    /// `max_bytes` of a server that sets nothing else.
    pub const DEFAULT_BYTES: usize = 256 << 20;

    /// At most `max_bytes` are held, besides [`FREE_BYTES`] of each. What they take may be twice as much: buffers grow by doubling.
    pub fn new(max_bytes: usize, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self { max_bytes, state: Mutex::default(), metrics })
    }

    /// Gives up what has not grown for longest until there is space for `more` bytes. Tasks are to be woken once nothing is locked.
    fn make_space(
        &self,
        state: &mut State,
        more: usize,
        given_up: &mut Vec<Arc<Holder>>,
    ) -> Result<(), Full> {
        let kept = state.bytes - state.growing_bytes;
        if kept.saturating_add(more) > self.max_bytes {
            return Err(Full);
        }
        while state.bytes.saturating_add(more) > self.max_bytes {
            // Their tasks have not run yet.
            if state.given_up > self.max_bytes {
                return Err(Full);
            }
            let Some((_, Growing { bytes, holder })) = state.growing.pop_first() else { return Err(Full) };
            state.growing_bytes -= bytes;
            state.bytes -= bytes;
            state.given_up += bytes;
            holder.is_given_up.store(true, Ordering::Release);
            self.metrics.unfinished_refused.inc();
            given_up.push(holder);
        }
        Ok(())
    }

    fn show(&self, state: &State) {
        self.metrics.unfinished_bytes.set(saturate(state.bytes + state.given_up));
    }
}

/// The budget is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Full;

impl Full {
    pub(crate) const REASON: &str = "too much is arriving at this moment";
}

impl From<Full> for Problem {
    fn from(_: Full) -> Self {
        Self::new(ErrorCode::Overloaded, Full::REASON)
    }
}

/// Who is to let go of a share when it is given up.
#[derive(Debug, Default)]
pub(crate) struct Holder {
    /// Changed under the lock of the state only.
    is_given_up: AtomicBool,
    waker: AtomicWaker,
}

impl Holder {
    fn is_given_up(&self) -> bool {
        self.is_given_up.load(Ordering::Acquire)
    }

    /// Ready when the share is given up.
    fn poll_given_up(&self, context: &Context<'_>) -> Poll<()> {
        self.waker.register(context.waker());
        if self.is_given_up() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Resolves when the share is given up.
    pub(crate) async fn given_up(&self) {
        std::future::poll_fn(|context| self.poll_given_up(context)).await;
    }
}

/// The part of one body, frame or command. It is free again when dropped.
#[derive(Debug)]
pub(crate) struct Share {
    all: Arc<IncomingMemory>,
    counted: usize,
    /// Its number in [`State::growing`], if it is there, and the bytes it had when it got that.
    number: u64,
    listed_bytes: usize,
    /// Made when something counts: most of what comes is small.
    holder: Option<Arc<Holder>>,
}

impl Share {
    pub(crate) fn new(all: &Arc<IncomingMemory>) -> Self {
        Self { all: all.clone(), counted: 0, number: 0, listed_bytes: 0, holder: None }
    }

    /// Who is told when it is given up.
    pub(crate) fn holder(&mut self) -> Arc<Holder> {
        self.holder.get_or_insert_default().clone()
    }

    /// Whether the holder is to let go of it.
    pub(crate) fn is_given_up(&self) -> bool {
        self.holder.as_ref().is_some_and(|holder| holder.is_given_up())
    }

    /// Ready when it is given up; if not, the task is woken then. To be asked after each [`Self::set`].
    pub(crate) fn poll_given_up(&self, context: &Context<'_>) -> Poll<()> {
        self.holder.as_ref().map_or(Poll::Pending, |holder| holder.poll_given_up(context))
    }

    /// Says how many bytes are held now. If there is no space for more, or the share was given up, it fails and adds nothing: the
    /// holder is to let go of them, or to read no more.
    pub(crate) fn set(&mut self, held_bytes: usize) -> Result<(), Full> {
        let counted = held_bytes.saturating_sub(FREE_BYTES);
        if counted == self.counted {
            return if self.is_given_up() { Err(Full) } else { Ok(()) };
        }
        let (all, holder, mut given_up) = (self.all.clone(), self.holder(), Vec::new());
        let mut state = all.state.lock();
        let is_set = self.change(&mut state, counted, holder, &mut given_up);
        all.show(&state);
        drop(state);
        given_up.iter().for_each(|holder| holder.waker.wake());
        is_set
    }

    fn change(
        &mut self,
        state: &mut State,
        counted: usize,
        holder: Arc<Holder>,
        given_up: &mut Vec<Arc<Holder>>,
    ) -> Result<(), Full> {
        if holder.is_given_up() {
            state.given_up -= self.counted.saturating_sub(counted);
            self.counted = self.counted.min(counted);
            return Err(Full);
        }
        // It is not to be given up for itself.
        state.unlist(self.number);
        let space = match counted.checked_sub(self.counted) {
            Some(more) => self.all.make_space(state, more, given_up),
            None => Ok(()),
        };
        if space.is_ok() {
            state.bytes = state.bytes + counted - self.counted;
            self.counted = counted;
        }
        self.listed_bytes = self.listed_bytes.min(self.counted);
        if self.counted == 0 {
            self.number = 0;
        } else {
            if self.number == 0 || self.counted - self.listed_bytes >= GROWTH_BYTES {
                state.last_number += 1;
                (self.number, self.listed_bytes) = (state.last_number, self.counted);
            }
            state.list(self.number, Growing { bytes: self.counted, holder });
        }
        space
    }

    /// The same; a failure is counted as a refusal.
    pub(crate) fn set_or_refuse(&mut self, held_bytes: usize) -> Result<(), Full> {
        self.set(held_bytes).inspect_err(|_| self.count_refusal())
    }

    /// Counts a refusal. That it was given up is counted already.
    pub(crate) fn count_refusal(&self) {
        if !self.is_given_up() {
            self.all.metrics.unfinished_refused.inc();
        }
    }

    /// It is whole: it counts until it is dropped, and is not given up.
    pub(crate) fn keep(&mut self) {
        if self.counted > 0 {
            self.all.state.lock().unlist(self.number);
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        // Less is always possible; that it was given up changes nothing any more.
        let _ = self.set(0);
    }
}

#[cfg(test)]
mod tests;
