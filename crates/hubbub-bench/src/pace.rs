//! When to send: a rate that is constant or rises, and a thread that keeps to it whatever the server does.

use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hubbub_core::clock::{RandomSource, SeededRandom};
use hubbub_core::invariant::saturate;
use serde::{Serialize, Serializer};
use tokio::sync::Semaphore;

use crate::feed::Feed;
use crate::job::{Job, below};
use crate::run::Run;

/// Messages per second, from the start to the end of a run: two straight lines that meet in the middle of its time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rate {
    from: f64,
    middle: f64,
    to: f64,
}

impl FromStr for Rate {
    type Err = String;

    /// `1000`, or `1000..10000` for a ramp, or `1000..10000..26000` for one that has a bend.
    fn from_str(text: &str) -> Result<Self, String> {
        let (from, rest) = text.split_once("..").unwrap_or((text, text));
        let (middle, to) = rest.split_once("..").map_or((None, rest), |(middle, to)| (Some(middle), to));
        let number = |text: &str| match text.trim_start_matches('.').parse::<f64>() {
            Ok(rate) if rate > 0.0 && rate <= 1e8 => Ok(rate),
            _ => Err("write a rate per second such as 5000, or a ramp such as 1000..10000".to_owned()),
        };
        let (from, to) = (number(from)?, number(to)?);
        Ok(Self { from, middle: middle.map_or(Ok(f64::midpoint(from, to)), number)?, to })
    }
}

impl std::fmt::Display for Rate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self { from, to, .. } if from == to && *self == Self::constant(*from) => write!(f, "{from}"),
            Self { from, middle, to } if *middle == f64::midpoint(*from, *to) => write!(f, "{from}..{to}"),
            Self { from, middle, to } => write!(f, "{from}..{middle}..{to}"),
        }
    }
}

impl Serialize for Rate {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl Rate {
    pub(crate) const fn constant(per_second: f64) -> Self {
        Self { from: per_second, middle: per_second, to: per_second }
    }

    /// A share of it.
    pub(crate) fn times(self, share: f64) -> Self {
        let Self { from, middle, to } = self;
        Self { from: from * share, middle: middle * share, to: to * share }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Schedule {
    rate: Rate,
    duration: Duration,
    start_us: u64,
}

impl Schedule {
    /// Starts `start_us` after the start of the run.
    pub(crate) fn new(rate: Rate, duration: Duration, start_us: u64) -> Self {
        Self { rate, duration, start_us }
    }

    pub(crate) fn messages(&self) -> u64 {
        let Rate { from, middle, to } = self.rate;
        (f64::midpoint(f64::midpoint(from, middle), f64::midpoint(middle, to)) * self.duration.as_secs_f64())
            as u64
    }

    /// Messages per second over its whole time.
    pub(crate) fn mean_rate(&self) -> f64 {
        self.messages() as f64 / self.duration.as_secs_f64().max(1e-9)
    }

    /// What is to be known where not all of it was sent; `what` it is of: messages, operations.
    pub(crate) fn never_sent(&self, run: &Run, what: &str) -> Option<String> {
        let [sent, ..] = run.counts.totals();
        let left = self.messages().saturating_sub(sent);
        (left > 0).then(|| format!("the rate was not kept: {left} {what} were never sent"))
    }

    /// How long sending may take.
    pub(crate) fn patience(&self) -> Duration {
        patience(self.duration)
    }

    /// When message `index` is to be sent, in microseconds after the start of the run.
    pub(crate) fn intended_us(&self, index: u64) -> u64 {
        let Rate { from, middle, to } = self.rate;
        let half_s = self.duration.as_secs_f64() / 2.0;
        let first_half = f64::midpoint(from, middle) * half_s;
        let (n, from, to, before_s) = match index as f64 {
            n if n < first_half => (n, from, middle, 0.0),
            n => (n - first_half, middle, to, half_s),
        };
        let growth = (to - from) / (2.0 * half_s);
        // n = from·t + growth·t²
        let seconds = if growth == 0.0 {
            n / from
        } else {
            (2.0 * n) / (from + (from * from + 4.0 * growth * n).max(0.0).sqrt())
        };
        self.start_us + ((before_s + seconds) * 1e6) as u64
    }
}

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

    /// Lets each operation go when its time has come; what nobody took by the end of the patience is dropped. Latency counts from
    /// the intended start, so the schedule begins with the measured time: now.
    pub(crate) fn start(self: &Arc<Self>, run: &Arc<Run>) {
        run.begin();
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
        let ran_us = now_us.saturating_sub(self.schedule.start_us);
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
    let release = |due: Range<u64>| {
        let job = |index| {
            let job = run.shape.draw(random, index, any_room(run, random));
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

    #[test]
    fn a_ramp_sends_what_its_area_says() {
        let rate: Rate = "1000..10000".parse().expect("ramp");
        let schedule = Schedule::new(rate, Duration::from_secs(10), 5);
        assert_eq!(schedule.messages(), 55_000);
        assert_eq!(schedule.intended_us(0), 5);
        assert_eq!(schedule.intended_us(55_000), 10_000_005);
        let first_second = (0..55_000).filter(|&n| schedule.intended_us(n) < 1_000_005).count();
        assert_eq!(first_second, 1_450);
    }

    #[test]
    fn a_ramp_may_have_a_bend() {
        let rate: Rate = "1000..10000..26000".parse().expect("ramp");
        assert_eq!(rate.to_string(), "1000..10000..26000");
        assert_eq!("1000..10000".parse::<Rate>().expect("ramp").to_string(), "1000..10000");
        let schedule = Schedule::new(rate, Duration::from_secs(20), 0);
        assert_eq!(schedule.messages(), 55_000 + 180_000);
        assert_eq!(schedule.intended_us(55_000), 10_000_000);
        assert_eq!(schedule.intended_us(235_000), 20_000_000);
        let (before, after) = (schedule.intended_us(54_999), schedule.intended_us(55_001));
        // Both lines meet at 10,000/s; times are cut to whole microseconds.
        assert!((99..=101).contains(&(10_000_000 - before)) && (99..=101).contains(&(after - 10_000_000)));
    }

    fn run() -> Run {
        let target = crate::client::Target::parse("127.0.0.1:1").expect("address");
        let rules = crate::options::arguments("rules", &[]).expect("defaults");
        Run::new(target, crate::job::Shape::new(1, 10, None, ""), rules)
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

    #[test]
    fn a_constant_rate_has_equal_steps() {
        let schedule = Schedule::new("2000".parse().expect("rate"), Duration::from_secs(3), 0);
        assert_eq!(schedule.messages(), 6_000);
        assert_eq!(schedule.intended_us(5_000), 2_500_000);
        for wrong in ["0", "-5", "fast", "1..", "1..x"] {
            assert!(wrong.parse::<Rate>().is_err(), "{wrong}");
        }
    }
}
