//! From the one generator to the connections: a bounded queue for each room, filled and emptied many at a time.
//!
//! The generator draws messages at random over the connections, so that rooms get work in proportion to theirs; a room
//! whose queue is full passes the message on to the next, so that one slow room does not starve the others.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use hubbub_core::clock::{RandomSource, SeededRandom};
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::job::{Job, Shape, below};

/// Most messages the generator makes before it hands them over.
const BATCH_MESSAGES_MAX: usize = 4_096;

#[derive(Debug, Default)]
struct Gate {
    lock: Mutex<()>,
    opened: Condvar,
}

#[derive(Debug)]
pub(crate) struct Feed {
    state: Mutex<State>,
    limit: usize,
    gate: Arc<Gate>,
}

#[derive(Debug, Default)]
struct State {
    jobs: VecDeque<Job>,
    waiting: VecDeque<(usize, Waker)>,
    ended: bool,
}

impl State {
    /// Lets go of the state and wakes up to `n` of those who wait, the first ones first.
    fn wake(mut state: MutexGuard<'_, Self>, n: usize) {
        let n = n.min(state.waiting.len());
        let woken: Vec<_> = state.waiting.drain(..n).collect();
        drop(state);
        woken.into_iter().for_each(|(_, waker)| waker.wake());
    }
}

/// Whether more may come from a [`Feed`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Supply {
    Open,
    Ended,
}

impl Feed {
    /// Moves up to `max` messages to `into`. When it got none, `who` is woken once there are some.
    pub(crate) fn take(&self, max: usize, into: &mut VecDeque<Job>, who: usize, waker: &Waker) -> Supply {
        let mut state = self.state.lock();
        let n = max.min(state.jobs.len());
        into.extend(state.jobs.drain(..n));
        if n < max && !state.ended && !state.waiting.iter().any(|(other, _)| *other == who) {
            state.waiting.push_back((who, waker.clone()));
        }
        let supply = if state.ended && state.jobs.is_empty() { Supply::Ended } else { Supply::Open };
        let low = state.jobs.len() <= self.limit / 2;
        drop(state);
        if low {
            self.gate.opened.notify_one();
        }
        supply
    }

    pub(crate) fn push(&self, jobs: &mut Vec<Job>) {
        let mut state = self.state.lock();
        let n = jobs.len();
        state.jobs.extend(jobs.drain(..));
        State::wake(state, n);
    }

    pub(crate) fn end(&self) {
        let mut state = self.state.lock();
        state.ended = true;
        State::wake(state, usize::MAX);
    }

    fn abandon(&self) -> usize {
        let dropped = std::mem::take(&mut self.state.lock().jobs).len();
        self.end();
        dropped
    }

    /// Whether nobody wants more.
    pub(crate) fn is_ended(&self) -> bool {
        self.state.lock().ended
    }

    pub(crate) fn space(&self) -> usize {
        self.limit.saturating_sub(self.state.lock().jobs.len())
    }

    pub(crate) fn wait_for_space(&self) {
        self.gate.wait();
    }
}

impl Gate {
    /// Sleeps until half of a queue is free, or for a short time.
    fn wait(&self) {
        // The time-out covers a wake-up that came between the look and the sleep.
        self.opened.wait_for(&mut self.lock.lock(), Duration::from_millis(2));
    }
}

/// The queues of all rooms and the thread that fills them.
#[derive(Debug)]
pub(crate) struct Supplier {
    feeds: Vec<Arc<Feed>>,
    gate: Arc<Gate>,
}

impl Supplier {
    /// Queues for rooms `1..=rooms` that hold `limit` messages together. An open loop has no limit but the length of the
    /// run.
    pub(crate) fn new(rooms: u16, limit: usize) -> Arc<Self> {
        let gate = Arc::<Gate>::default();
        let each = (limit / usize::from(rooms.max(1))).max(1);
        let feed = |_| Arc::new(Feed { state: Mutex::default(), limit: each, gate: Arc::clone(&gate) });
        let feeds = (0..rooms).map(feed).collect();
        Arc::new(Self { feeds, gate })
    }

    /// The queue of a room, counted from 1.
    pub(crate) fn feed(&self, room: u16) -> Option<&Arc<Feed>> {
        self.feeds.get(usize::from(room).checked_sub(1)?)
    }

    /// Ends the run early: no more will come, and what waits is dropped; the answer is how many messages that were.
    pub(crate) fn abandon(&self) -> usize {
        self.feeds.iter().map(|feed| feed.abandon()).sum()
    }

    /// Makes `count` messages numbered from `first`, for the rooms of the connections; returns how many it made.
    pub(crate) fn generate(
        &self,
        shape: &Shape,
        random: &SeededRandom,
        first: u64,
        count: u64,
        rooms: &[u16],
    ) -> u64 {
        let mut staged: Vec<Vec<Job>> = self.feeds.iter().map(|_| Vec::new()).collect();
        let (mut next, end) = (first, first + count);
        while next < end && !self.feeds.iter().any(|feed| feed.is_ended()) {
            // Rooms nobody is connected to get nothing.
            let is_open = |index: usize| rooms.iter().any(|room| usize::from(*room) == index + 1);
            let space = self.feeds.iter().enumerate();
            let mut space: Vec<usize> =
                space.map(|(index, feed)| if is_open(index) { feed.space() } else { 0 }).collect();
            let batch = space.iter().sum::<usize>().min(BATCH_MESSAGES_MAX);
            if batch == 0 {
                self.gate.wait();
                continue;
            }
            let until = end.min(next + batch as u64);
            while next < until {
                let Some(room) = pick_room(random, rooms, &mut space) else { break };
                if let Some(stage) = staged.get_mut(usize::from(room) - 1) {
                    stage.push(shape.draw(random, next, room));
                }
                next += 1;
            }
            for (feed, stage) in self.feeds.iter().zip(&mut staged) {
                if !stage.is_empty() {
                    feed.push(stage);
                }
            }
        }
        self.feeds.iter().for_each(|feed| feed.end());
        next - first
    }
}

/// The room of a random connection, or the next one with space.
fn pick_room(random: &SeededRandom, rooms: &[u16], space: &mut [usize]) -> Option<u16> {
    let start = below(random.next_u64(), rooms.len() as u64) as usize;
    let (late, early) = rooms.split_at(start.min(rooms.len()));
    for &room in early.iter().chain(late) {
        if let Some(space @ 1..) = space.get_mut(usize::from(room).checked_sub(1)?) {
            *space -= 1;
            return Some(room);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_arrives_once_in_its_room() {
        let supplier = Supplier::new(4, 40);
        let shape = Shape::new(1, 10, None, "");
        let rooms = [1, 2, 3, 3];
        let mut seen = [0_u64; 5];
        std::thread::scope(|scope| {
            let made = scope.spawn(|| supplier.generate(&shape, &SeededRandom::new(5), 100, 5_000, &rooms));
            let mut open = vec![1_u16, 2, 3];
            while !open.is_empty() {
                open.retain(|&room| {
                    let mut got = VecDeque::new();
                    let feed = supplier.feed(room).expect("room");
                    assert!(feed.state.lock().jobs.len() <= 10);
                    let supply = feed.take(7, &mut got, 0, Waker::noop());
                    assert!(got.iter().all(|job| job.room == room && (100..5_100).contains(&job.index)));
                    seen[usize::from(room)] += got.len() as u64;
                    supply == Supply::Open
                });
                std::thread::yield_now();
            }
            assert_eq!(made.join().expect("generator"), 5_000);
        });
        assert_eq!(seen.iter().sum::<u64>(), 5_000);
        assert_eq!(seen[4], 0);
    }

    #[test]
    fn abandoning_ends_the_generator() {
        let supplier = Supplier::new(1, 10);
        let shape = Shape::new(1, 10, None, "");
        std::thread::scope(|scope| {
            let made =
                scope.spawn(|| supplier.generate(&shape, &SeededRandom::new(5), 0, u64::MAX / 2, &[1]));
            supplier.abandon();
            assert!(made.join().expect("generator") < 100_000);
        });
    }
}
