//! When to send: a [`rate`], and a thread that keeps to it whatever the server does; or as soon as there is space.

mod rate;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hubbub_core::clock::{RandomSource, SeededRandom};
use hubbub_core::invariant::saturate;
pub(crate) use rate::{Rate, RateSpan, Schedule};
use tokio::sync::Semaphore;

use crate::load::feed::Feed;
use crate::load::message_plan::{Job, below};
use crate::load::run::Run;

/// Messages that may be due and wait to be sent. Those behind them are made when there is space; they count from when they were
/// due all the same, see [`due_us`].
const BEHIND_MAX: usize = 1_000_000;
/// What has not been sent this long after the end of a schedule is given up.
const DRAIN: Duration = Duration::from_secs(10);
/// Messages made at a time.
const MADE_MAX: usize = 10_000;

/// Shortest sleep: many wake-ups would take time from what is measured.
pub(crate) const SLEEP_MIN: Duration = Duration::from_micros(50);

/// How long it may take to send for so long.
pub(crate) const fn patience(duration: Duration) -> Duration {
    duration.saturating_add(DRAIN)
}

/// Hands over the numbers of what is due, as their time comes, but not more often than `every` so long; returns when all
/// are out, or `is_over` says so.
pub(crate) fn pace(
    run: &Run,
    schedule: &Schedule,
    every: Duration,
    is_over: impl Fn() -> bool,
    mut release: impl FnMut(Range<u64>),
) {
    let messages = schedule.messages();
    let mut next = 0;
    while next < messages && !is_over() {
        let (now_us, first) = (run.now_us(), next);
        while next < messages && schedule.intended_us(next) <= now_us {
            next += 1;
        }
        if first < next {
            release(first..next);
        }
        let wait_us = schedule.intended_us(next).saturating_sub(run.now_us());
        std::thread::sleep(Duration::from_micros(wait_us).max(every));
    }
}

/// Hands out the operations of an open loop as they become due.
#[derive(Debug)]
pub(crate) struct Due {
    schedule: Schedule,
    next: AtomicU64,
    permits: Semaphore,
}

impl Due {
    pub(crate) fn new(schedule: Schedule) -> Arc<Self> {
        Arc::new(Self { schedule, next: AtomicU64::new(0), permits: Semaphore::new(0) })
    }

    /// Begins the run, and its operations with it.
    pub(crate) fn start(self: &Arc<Self>, run: &Arc<Run>) {
        run.begin();
        self.release(run);
    }

    /// Lets each operation go when its time has come; what nobody took by the end of the patience is dropped. Latency counts from
    /// the intended start, so the run must have begun.
    pub(crate) fn release(self: &Arc<Self>, run: &Arc<Run>) {
        let (due, run) = (Arc::clone(self), Arc::clone(run));
        std::thread::spawn(move || {
            let release = |operations: Range<u64>| due.permits.add_permits(operations.count());
            pace(&run, &due.schedule, SLEEP_MIN, || run.is_over(), release);
            // What is released is still done; then whoever waits for more finds the semaphore closed.
            while due.is_awaited(run.now_us()) && !run.is_over() {
                std::thread::sleep(Duration::from_millis(1));
            }
            due.abandon();
        });
    }

    /// Whether some are left, and it is not too late for them.
    fn is_awaited(&self, now_us: u64) -> bool {
        let ran_us = now_us.saturating_sub(self.schedule.start_us());
        let is_late = u128::from(ran_us) > self.schedule.patience().as_micros();
        self.next.load(Ordering::Relaxed) < self.schedule.messages() && !is_late
    }

    /// When the next operation was to begin, once that time has come; `None` when there are no more.
    pub(crate) async fn next(&self) -> Option<u64> {
        self.permits.acquire().await.ok()?.forget();
        Some(self.schedule.intended_us(self.next.fetch_add(1, Ordering::Relaxed)).max(1))
    }

    /// Hands out no more.
    pub(crate) fn abandon(&self) {
        self.permits.close();
    }
}

/// When message `index` of those released together is due, in microseconds after the start of the run. Where that is done
/// `every` so often only, messages go together and are due with the last of them: before, that one did not exist. Those that are
/// released later than that are behind, and the time until then is theirs.
fn due_us(schedule: &Schedule, released: &Range<u64>, every: Duration, index: u64) -> u64 {
    let own = schedule.intended_us(index);
    if every <= SLEEP_MIN {
        return own;
    }
    let last = schedule.intended_us(released.end.saturating_sub(1));
    last.min(own.saturating_add(saturate(every.as_micros())))
}

/// Puts each message of `schedule` into `feed` when its time has come, every so often. Returns when all are there.
pub(crate) fn feed_paced(
    run: &Run,
    feed: &Feed,
    schedule: &Schedule,
    every: Duration,
    random: &SeededRandom,
) {
    feed_paced_from(0, run, feed, schedule, every, random);
}

/// The same with messages that are numbered from `first` on.
pub(crate) fn feed_paced_from(
    first: u64,
    run: &Run,
    feed: &Feed,
    schedule: &Schedule,
    every: Duration,
    random: &SeededRandom,
) {
    let release = |due: Range<u64>| {
        let job = |index| {
            let job = run.shape.draw(random, first + index, any_room(run, random));
            Job { intended_us: due_us(schedule, &due, every, index).max(1), ..job }
        };
        let mut jobs = due.clone().map(job);
        loop {
            feed.wait_below(BEHIND_MAX);
            let mut some: Vec<Job> = jobs.by_ref().take(MADE_MAX).collect();
            if some.is_empty() || feed.is_ended() {
                break;
            }
            feed.push(&mut some);
        }
    };
    pace(run, schedule, every, || feed.is_ended(), release);
    feed.end();
}

/// Puts messages of the given numbers into `feed`, or as many as there is time for: the generator of a closed loop. `space` says how many
/// more there may be, after so many; where there may be none, it waits.
pub(crate) fn supply(
    run: &Run,
    feed: &Feed,
    Range { start, end }: Range<u64>,
    duration: Duration,
    random: &SeededRandom,
    space: impl Fn(u64) -> u64,
) {
    let mut jobs = Vec::new();
    let mut next = start;
    while next < end && u128::from(run.now_us()) < duration.as_micros() && !feed.is_ended() {
        let until = end.min(next.saturating_add(space(next)));
        jobs.extend((next..until).map(|index| run.shape.draw(random, index, any_room(run, random))));
        if !jobs.is_empty() {
            feed.push(&mut jobs);
        }
        next = until;
    }
    feed.end();
}

fn any_room(run: &Run, random: &SeededRandom) -> u16 {
    below(random.next_u64(), u64::from(run.shape.rooms)) as u16 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run() -> Run {
        let target = crate::client::Target::parse("127.0.0.1:1").expect("address");
        let rules = crate::options::arguments("rules", &[]).expect("defaults");
        Run::new(target, crate::load::message_plan::Shape::new(1, 10, None, ""), rules)
    }

    #[tokio::test]
    async fn operations_that_nobody_takes_are_given_up() {
        let due = Due::new(Schedule::new(Rate::constant(10.0), Duration::from_secs(1), 0));
        let end_us = (Duration::from_secs(1) + DRAIN).as_micros() as u64;
        assert!(due.is_awaited(0) && due.is_awaited(end_us) && !due.is_awaited(end_us + 1));
        due.permits.add_permits(10);
        for _ in 0..10 {
            assert!(due.is_awaited(0) && due.next().await.is_some());
        }
        assert!(!due.is_awaited(0), "all were taken");
        let schedule = due.schedule;
        let run = run();
        run.counts.sent.store(7, Ordering::Relaxed);
        let said = schedule.never_sent(&run, "operations");
        assert_eq!(said.as_deref(), Some("the rate was not kept: 3 operations were never sent"));
        run.counts.sent.store(10, Ordering::Relaxed);
        assert_eq!(schedule.never_sent(&run, "operations"), None);
    }

    #[test]
    fn a_time_without_end_is_waited_for() {
        assert_eq!(patience(Duration::MAX), Duration::MAX);
        assert_eq!(patience(Duration::from_secs(5)), Duration::from_secs(15));
    }

    #[test]
    fn nothing_is_made_when_the_time_is_over() {
        let run = run();
        for (time, made) in [(Duration::ZERO, 0), (Duration::MAX, 10)] {
            let (feed, mut jobs) = (Feed::new(100), std::collections::VecDeque::new());
            supply(&run, &feed, 0..10, time, &SeededRandom::new(1), |_| 4);
            feed.take(100, &mut jobs, 0, std::task::Waker::noop());
            assert_eq!(jobs.len(), made);
        }
    }

    #[test]
    fn what_is_behind_counts_from_its_own_time() {
        let schedule = Schedule::new(Rate::constant(1_000.0), Duration::from_secs(10), 7);
        let every = Duration::from_millis(5);
        let together = 0..5;
        assert!(together.clone().all(|index| due_us(&schedule, &together, every, index) == 4_007));
        // Nobody took any for ten seconds.
        let late = 0..10_000;
        let waited = late.clone().map(|index| {
            due_us(&schedule, &late, every, index).checked_sub(schedule.intended_us(index)).unwrap()
        });
        assert_eq!(waited.max(), Some(5_000));
        assert_eq!(due_us(&schedule, &late, SLEEP_MIN, 3_000), 3_000_007, "one by one");
    }
}
