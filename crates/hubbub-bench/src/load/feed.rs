//! From the one generator to the connections: a bounded queue, filled and emptied many at a time. Where connections send to
//! one room each, a message goes to the room of the connection that takes it, so that rooms get work in proportion to
//! their connections, and a slow room does not starve the others.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::load::message_plan::Job;

#[derive(Debug)]
pub(crate) struct Feed {
    state: Mutex<State>,
    limit: usize,
    /// Half of it is free.
    opened: Condvar,
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
    /// Holds `limit` messages of a closed loop.
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), limit: limit.max(1), opened: Condvar::new() })
    }

    /// Moves up to `max` messages to `into`. When it got none, `who` is woken once there are some.
    pub(crate) fn take(&self, max: usize, into: &mut VecDeque<Job>, who: usize, waker: &Waker) -> Supply {
        let mut state = self.state.lock();
        let n = max.min(state.jobs.len());
        into.extend(state.jobs.drain(..n));
        if n < max && !state.ended && !state.waiting.iter().any(|(other, _)| *other == who) {
            state.waiting.push_back((who, waker.clone()));
        }
        let supply = if state.ended && state.jobs.is_empty() { Supply::Ended } else { Supply::Open };
        let is_low = state.jobs.len() <= self.limit / 2;
        drop(state);
        if is_low {
            self.opened.notify_one();
        }
        supply
    }

    /// Adds messages; drops them once the run has ended, because nobody is to send them then.
    pub(crate) fn push(&self, jobs: &mut Vec<Job>) {
        let mut state = self.state.lock();
        if state.ended {
            return jobs.clear();
        }
        let n = jobs.len();
        state.jobs.extend(jobs.drain(..));
        State::wake(state, n);
    }

    pub(crate) fn end(&self) {
        let mut state = self.state.lock();
        state.ended = true;
        State::wake(state, usize::MAX);
    }

    /// Ends the run early: no more will come, and what waits is dropped; the answer is how many messages that were.
    pub(crate) fn abandon(&self) -> usize {
        let mut state = self.state.lock();
        let dropped = std::mem::take(&mut state.jobs).len();
        state.ended = true;
        State::wake(state, usize::MAX);
        dropped
    }

    /// Whether nobody wants more.
    pub(crate) fn is_ended(&self) -> bool {
        self.state.lock().ended
    }

    /// Waits until fewer messages than that wait to be taken, or nobody wants more.
    pub(crate) fn wait_below(&self, most: usize) {
        let is_full = || {
            let state = self.state.lock();
            state.jobs.len() >= most && !state.ended
        };
        while is_full() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// How many more it takes. Waits a moment until half of it is free, so that not each is handed over alone.
    pub(crate) fn wait_for_space(&self) -> u64 {
        let mut state = self.state.lock();
        if state.jobs.len() > self.limit / 2 {
            self.opened.wait_for(&mut state, Duration::from_millis(2));
        }
        self.limit.saturating_sub(state.jobs.len()) as u64
    }
}

#[cfg(test)]
mod tests {
    use hubbub_core::clock::SeededRandom;

    use super::*;
    use crate::client::Target;
    use crate::load::message_plan::Shape;
    use crate::load::pace::supply;
    use crate::load::run::Run;
    use crate::options::{Rules, arguments};

    fn run() -> Run {
        let target = Target::parse("127.0.0.1:1").expect("address");
        let rules: Rules = arguments("rules", &[]).expect("defaults");
        Run::new(target, Shape::new(1, 10, None, "").of_rooms(3), rules)
    }

    #[test]
    fn every_message_arrives_once() {
        let (feed, run, random) = (Feed::new(40), run(), SeededRandom::new(5));
        let mut seen = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                supply(&run, &feed, 100..5_100, Duration::MAX, &random, |_| feed.wait_for_space());
            });
            let (mut got, mut supply) = (VecDeque::new(), Supply::Open);
            while supply == Supply::Open {
                assert!(feed.state.lock().jobs.len() <= 40);
                supply = feed.take(7, &mut got, 0, Waker::noop());
                assert!(got.iter().all(|job| (1..=3).contains(&job.room)));
                seen.extend(got.drain(..).map(|job| job.index));
                std::thread::yield_now();
            }
        });
        assert_eq!(seen, (100..5_100).collect::<Vec<_>>());
    }

    #[test]
    fn abandoning_ends_the_generator() {
        let (feed, run, random) = (Feed::new(10), run(), SeededRandom::new(5));
        std::thread::scope(|scope| {
            let made = scope.spawn(|| {
                supply(&run, &feed, 0..u64::MAX, Duration::MAX, &random, |_| feed.wait_for_space());
            });
            feed.abandon();
            made.join().expect("generator");
        });
        assert!(feed.state.lock().jobs.len() <= 10);
    }

    #[test]
    fn what_is_made_after_the_end_is_dropped() {
        let (feed, run) = (Feed::new(10), run());
        let job = |index| run.shape.draw(&SeededRandom::new(1), index, 1);
        feed.push(&mut vec![job(1), job(2)]);
        assert_eq!(feed.abandon(), 2);
        // The generator was about to hand over more.
        feed.push(&mut vec![job(3)]);
        let mut taken = VecDeque::new();
        assert_eq!(feed.take(10, &mut taken, 0, Waker::noop()), Supply::Ended);
        assert!(taken.is_empty());
    }
}
