//! What was measured: histograms, and rates over time.

use std::ops::Range;
use std::time::Duration;

use hdrhistogram::Histogram;
use hubbub_core::invariant::saturate;
use serde::Serialize;

use crate::load::pace::RateSpan;
use crate::results::minutes::Seconds;
use crate::results::steps::StepRecord;
use crate::results::tally::Tally;
use crate::statistics::Moments;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Ending {
    Accepted,
    Rejected,
    /// No answer after all retries; it may be stored.
    Unconfirmed,
}

impl Ending {
    pub(crate) const fn status_code(self) -> u16 {
        match self {
            Self::Accepted => 200,
            Self::Rejected => 400,
            Self::Unconfirmed => 0,
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    /// Microseconds from the start of the phase to the answer.
    pub(crate) done_us: u64,
    /// The number of the message in the run; of an operation 0.
    pub(crate) index: u64,
    pub(crate) latency_us: u32,
    /// The part of it from the intended send until the first; `None` in a closed loop.
    pub(crate) waited_us: Option<u32>,
    pub(crate) room: u16,
    /// Which of the kinds of the record.
    pub(crate) kind: u8,
    pub(crate) ending: Ending,
}

impl Sample {
    /// When its time began, in microseconds of the same clock.
    pub(crate) fn begun_us(&self) -> u64 {
        self.done_us.saturating_sub(self.latency_us.into())
    }
}

/// Width of the finest time step kept, in microseconds.
pub(crate) const STEP_US: u64 = 100_000;

/// What began in the main phase. Times count from the beginning of that.
#[derive(Debug)]
pub(crate) struct Record {
    /// Latencies of all accepted messages, and of those of each kind.
    pub(crate) all: Dist,
    pub(crate) by_kind: Vec<(&'static str, Dist)>,
    /// Microseconds from the start to the last answer.
    pub(crate) last_us: u64,
    /// The same until the last message began that was accepted: what follows are answers to what was under way.
    pub(crate) last_begun_us: u64,
    pub(crate) steps: Vec<u64>,
    /// What an open loop has besides.
    pub(crate) open: Option<OpenLoopTimes>,
    /// Latencies in microseconds, by the number of the room.
    pub(crate) by_room: Vec<Moments>,
    pub(crate) seconds: Seconds,
    /// Those that were refused, and those without an answer.
    pub(crate) failed: [u64; 2],
    /// Messages that were accepted in the main phase, whenever they began.
    pub(crate) answered_in_main: u64,
    /// What was asked for in each span of a rate that changes, and what came of it.
    pub(crate) by_span: Vec<StepRecord>,
    /// Messages that were accepted in all phases, by the number of the room.
    pub(crate) accepted_by_room: Vec<Tally>,
    /// What came to an end in all phases, however, in each step of the run.
    pub(crate) ended: Vec<u64>,
}

/// The two parts of the latency of an accepted message, which counts from its intended send.
#[derive(Debug, Default)]
pub(crate) struct OpenLoopTimes {
    /// Until it was first sent.
    pub(crate) send_delay: Dist,
    /// From then on: the latency without what it waited for the generator or for a connection, as those see it who count
    /// from the send.
    pub(crate) from_send: Dist,
}

impl Record {
    /// An empty record. `kinds` are the names of the kinds of messages or operations.
    pub(crate) fn new(kinds: &[&'static str]) -> Self {
        Self {
            all: Dist::default(),
            last_us: 0,
            last_begun_us: 0,
            by_kind: kinds.iter().map(|kind| (*kind, Dist::default())).collect(),
            steps: Vec::new(),
            open: None,
            by_room: Vec::new(),
            seconds: Seconds::default(),
            failed: [0; 2],
            answered_in_main: 0,
            by_span: Vec::new(),
            accepted_by_room: Vec::new(),
            ended: Vec::new(),
        }
    }

    /// Tells these spans of the main phase apart from now on.
    pub(crate) fn tell_apart(&mut self, spans: &[RateSpan], asked: impl Fn(&RateSpan) -> u64) {
        self.by_span = spans.iter().map(|span| StepRecord::new(*span, asked(span))).collect();
    }

    /// Messages that were accepted in a second of the run, whose main phase begins so many microseconds after its start.
    pub(crate) fn answered_in(&self, second: u64, main_from_us: u64) -> u64 {
        let step = |second: u64| {
            saturate::<_, usize>(second.saturating_mul(1_000_000).saturating_sub(main_from_us) / STEP_US)
        };
        let (first, end) = (step(second), step(second.saturating_add(1)));
        self.steps.iter().skip(first).take(end - first).sum()
    }

    /// Messages of the main phase that were accepted in so many seconds from its beginning; of the step in which these end, a
    /// share.
    pub(crate) fn answered_by(&self, seconds: f64) -> f64 {
        if seconds * 1e6 >= self.last_us as f64 {
            return self.all.len() as f64;
        }
        let steps = (seconds * 1e6 / STEP_US as f64).max(0.0);
        let (whole, share) = (steps as usize, steps.fract());
        let before: u64 = self.steps.iter().take(whole).sum();
        share.mul_add(self.steps.get(whole).map_or(0.0, |last| *last as f64), before as f64)
    }

    /// Messages that came to an end in this time of the run, whenever they began, and how many more or less it may be: of the
    /// steps at both ends the share that lies in it, though all may lie on one side.
    pub(crate) fn ended_between(&self, us: Range<u64>) -> (f64, f64) {
        let (first, end) = (us.start / STEP_US, us.end.div_ceil(STEP_US));
        let steps = (first..end).zip(self.ended.iter().skip(saturate(first)));
        steps.fold((0.0, 0.0), |(count, off), (step, ended)| {
            let (from, until) = (us.start.max(step * STEP_US), us.end.min((step + 1) * STEP_US));
            let share = until.saturating_sub(from) as f64 / STEP_US as f64;
            let unsure = if share < 1.0 { share.max(1.0 - share) } else { 0.0 };
            let ended = *ended as f64;
            (ended.mul_add(share, count), ended.mul_add(unsure, off))
        })
    }

    /// Counts what came to an end in any phase, by the clock of the run, of which this is the main phase.
    pub(crate) fn count(&mut self, samples: &[Sample], main_us: &Range<u64>) {
        for sample in samples {
            if let Some(ended) = at(&mut self.ended, step_of(sample.done_us)) {
                *ended += 1;
            }
        }
        for sample in samples.iter().filter(|sample| sample.ending == Ending::Accepted) {
            self.answered_in_main += u64::from(main_us.contains(&sample.done_us));
            if let Some(accepted) = at(&mut self.accepted_by_room, sample.room.into()) {
                accepted.add(sample.index);
            }
        }
    }

    /// Adds what began in the main phase.
    pub(crate) fn add(&mut self, samples: &[Sample]) {
        let [rejected, unconfirmed] = &mut self.failed;
        for sample in samples {
            crate::results::steps::add(&mut self.by_span, sample);
            *rejected += u64::from(sample.ending == Ending::Rejected);
            *unconfirmed += u64::from(sample.ending == Ending::Unconfirmed);
        }
        for sample in samples.iter().filter(|sample| sample.ending == Ending::Accepted) {
            let latency_us = u64::from(sample.latency_us);
            self.all.add(latency_us);
            if let Some(waited_us) = sample.waited_us.map(u64::from) {
                let open = self.open.get_or_insert_default();
                open.send_delay.add(waited_us);
                open.from_send.add(latency_us.saturating_sub(waited_us));
            }
            if let Some((_, dist)) = self.by_kind.get_mut(usize::from(sample.kind)) {
                dist.add(latency_us);
            }
            self.last_us = self.last_us.max(sample.done_us);
            self.last_begun_us = self.last_begun_us.max(sample.begun_us());
            if let Some(messages) = at(&mut self.steps, step_of(sample.done_us)) {
                *messages += 1;
            }
            if let Some(room) = at(&mut self.by_room, sample.room.into()) {
                room.add(latency_us as f64);
            }
            self.seconds.add(sample.done_us, latency_us as f64);
        }
    }
}

/// The step that this time lies in.
fn step_of(us: u64) -> usize {
    saturate::<_, usize>(us / STEP_US).min(MAX_STEPS)
}

/// What stands at `index`, which is made room for.
pub(crate) fn at<T: Clone + Default>(all: &mut Vec<T>, index: usize) -> Option<&mut T> {
    if all.len() <= index {
        all.resize(index + 1, T::default());
    }
    all.get_mut(index)
}

/// A day of steps; a longer run counts the rest into the last one.
const MAX_STEPS: usize = 864_000;

/// A distribution of times: percentiles to three digits, exact mean and variance.
#[derive(Debug, Clone)]
pub(crate) struct Dist {
    pub(crate) histogram: Histogram<u64>,
    /// Microseconds.
    pub(crate) moments: Moments,
}

impl Default for Dist {
    fn default() -> Self {
        // One to two significant steps of memory would save nothing: it grows with the largest value.
        let histogram = Histogram::new(3).unwrap_or_else(|_| unreachable!("three digits are supported"));
        Self { histogram, moments: Moments::default() }
    }
}

impl Dist {
    pub(crate) fn add(&mut self, us: u64) {
        // It grows as needed, so nothing is out of its range.
        let _ = self.histogram.record(us.max(1));
        self.moments.add(us as f64);
    }

    pub(crate) fn len(&self) -> u64 {
        self.histogram.len()
    }

    pub(crate) fn percentile_ms(&self, percentile: f64) -> f64 {
        self.histogram.value_at_percentile(percentile) as f64 / 1e3
    }

    /// Percentiles of what was added since `earlier`, an older copy of this one, in milliseconds; `None` where nothing was.
    pub(crate) fn percentiles_ms_since<const N: usize>(
        &self,
        earlier: &Self,
        percentiles: [f64; N],
    ) -> Option<[f64; N]> {
        let mut added = self.histogram.clone();
        added.subtract(&earlier.histogram).ok()?;
        (!added.is_empty()).then(|| percentiles.map(|it| added.value_at_percentile(it) as f64 / 1e3))
    }

    /// Counts in bars that grow by a constant factor: `(upper edge in ms, count)`.
    pub(crate) fn bars(&self) -> Vec<(f64, u64)> {
        let first = (self.histogram.min().max(1)).next_power_of_two() / 2;
        let iter = self.histogram.iter_log(first.max(1), 1.25);
        iter.map(|step| (step.value_iterated_to() as f64 / 1e3, step.count_since_last_iteration())).collect()
    }

    pub(crate) fn stats(&self) -> Stats {
        let Moments { count, mean, .. } = self.moments;
        Stats {
            count,
            mean_ms: mean / 1e3,
            median_ms: self.percentile_ms(50.0),
            p90_ms: self.percentile_ms(90.0),
            p95_ms: self.percentile_ms(95.0),
            p99_ms: self.percentile_ms(99.0),
            p99_9_ms: self.percentile_ms(99.9),
            min_ms: if count > 0 { self.histogram.min() as f64 / 1e3 } else { 0.0 },
            max_ms: self.histogram.max() as f64 / 1e3,
            variance_ms2: self.moments.variance() / 1e6,
            variation: self.moments.variation(),
        }
    }
}

#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Stats {
    pub count: u64,
    pub mean_ms: f64,
    pub median_ms: f64,
    pub p90_ms: f64,
    pub p95_ms: f64,
    pub p99_ms: f64,
    #[serde(rename = "p99_9Ms")]
    pub p99_9_ms: f64,
    pub min_ms: f64,
    pub max_ms: f64,
    /// Sample variance, in square milliseconds.
    pub variance_ms2: f64,
    /// Coefficient of variation: the standard deviation as a share of the mean.
    pub variation: f64,
}

/// One row of `throughput.csv`.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Bucket {
    pub start_s: f64,
    pub end_s: f64,
    pub messages: u64,
    pub per_second: f64,
    /// Shorter than the others; its rate is scaled to its own length.
    pub partial: bool,
}

/// Sums the steps of a phase that took `elapsed` into buckets of `width`.
pub(crate) fn buckets(steps: &[u64], elapsed: Duration, width: Duration) -> Vec<Bucket> {
    let per_bucket = saturate::<_, usize>(width.as_micros() / u128::from(STEP_US)).max(1);
    let width_s = per_bucket as f64 * STEP_US as f64 / 1e6;
    let elapsed_s = elapsed.as_secs_f64();
    let bucket = |(index, steps): (usize, &[u64])| {
        let start_s = index as f64 * width_s;
        let end_s = (start_s + width_s).min(elapsed_s.max(start_s + 1e-3));
        let messages = steps.iter().sum();
        let partial = end_s - start_s < 0.99 * width_s;
        Bucket { start_s, end_s, messages, per_second: messages as f64 / (end_s - start_s), partial }
    };
    steps.chunks(per_bucket).enumerate().map(bucket).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_of_known_numbers() {
        let mut dist = Dist::default();
        (1..=1_000).for_each(|ms| dist.add(ms * 1_000));
        let stats = dist.stats();
        assert_eq!(stats.count, 1_000);
        assert!((stats.mean_ms - 500.5).abs() < 1e-9);
        assert!((stats.variance_ms2 - 83_416.666).abs() < 0.01, "{}", stats.variance_ms2);
        assert!((stats.variation - 83_416.666_f64.sqrt() / 500.5).abs() < 1e-6, "{}", stats.variation);
        for (got, want) in
            [(stats.median_ms, 500.0), (stats.p99_ms, 990.0), (stats.p99_9_ms, 999.0), (stats.max_ms, 1000.0)]
        {
            assert!((got - want).abs() <= want * 0.002, "{got} {want}");
        }
        assert_eq!(Dist::default().stats().count, 0);
        assert_eq!(dist.bars().iter().map(|bar| bar.1).sum::<u64>(), 1_000);
    }

    #[test]
    fn the_record_knows_when_its_last_message_began() {
        let mut record = Record::new(&["TEXT"]);
        record.add(&[
            sample(9_000, 1_000, None, Ending::Accepted),
            sample(12_000, 7_000, None, Ending::Accepted),
            sample(20_000, 1, None, Ending::Rejected),
        ]);
        assert_eq!((record.last_begun_us, record.last_us), (8_000, 12_000));
        assert!(record.open.is_none(), "a closed loop");
    }

    fn sample(done_us: u64, latency_us: u32, waited_us: Option<u32>, ending: Ending) -> Sample {
        Sample { done_us, index: 0, latency_us, waited_us, room: 1, kind: 0, ending }
    }

    #[test]
    fn what_an_open_loop_waited_before_it_sent_is_told_apart() {
        let mut record = Record::new(&["TEXT"]);
        record.add(&[
            sample(9_000, 8_000, Some(7_000), Ending::Accepted),
            sample(9_000, 2_000, Some(0), Ending::Accepted),
            sample(20_000, 19_000, Some(18_000), Ending::Rejected),
        ]);
        let open = record.open.unwrap();
        let [all, late, sent] = [&record.all, &open.send_delay, &open.from_send].map(Dist::stats);
        assert_eq!([all.count, late.count, sent.count], [2; 3]);
        assert_eq!([all.mean_ms, late.mean_ms, sent.mean_ms], [5.0, 3.5, 1.5]);
    }

    #[test]
    fn the_last_bucket_is_scaled_and_marked() {
        let buckets = buckets(&[10; 25], Duration::from_millis(2_500), Duration::from_secs(1));
        let rates: Vec<_> =
            buckets.iter().map(|b| (b.messages, b.per_second.round() as u64, b.partial)).collect();
        assert_eq!(rates, [(100, 100, false), (100, 100, false), (50, 100, true)]);
    }
}
