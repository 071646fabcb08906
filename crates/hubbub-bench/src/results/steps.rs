//! What came of each step of a rate that changes within one run, so that one sees from which step on answers come late, or
//! not at all.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::analysis::verdict::{REACHED, percent_missed};
use crate::load::pace::RateSpan;
use crate::report::{Table, figure, grouped};
use crate::results::record::{Dist, Ending, Sample};

/// The 99th percentile of a step counts as risen when it is so many times the lowest of the steps before.
const RISEN: f64 = 3.0;
/// Below this it does not: what is hardly longer than the generator's own sleeps says nothing.
const RISEN_MS_MIN: f64 = 5.0;

/// What began in a span of the main phase, and what was answered meanwhile.
#[derive(Debug, Clone)]
pub(crate) struct StepRecord {
    span: RateSpan,
    /// Messages that were to begin in it.
    asked: u64,
    /// Messages that were accepted in this time, whenever they began.
    answered: u64,
    /// Those that began in it, and were not accepted.
    failed: u64,
    /// Of those that began in it and were accepted: from the intended start, and from the send.
    latency: Dist,
    from_send: Dist,
}

impl StepRecord {
    pub(crate) fn new(span: RateSpan, asked: u64) -> Self {
        let (latency, from_send) = Default::default();
        Self { span, asked, answered: 0, failed: 0, latency, from_send }
    }

    /// Others say how many were to begin in it.
    pub(crate) fn forget_asked(&mut self) {
        self.asked = 0;
    }

    /// Its counters and distributions: asked for, accepted meanwhile, failed; from the intended start, from the send.
    pub(crate) fn parts(&self) -> ([u64; 3], [&Dist; 2]) {
        ([self.asked, self.answered, self.failed], [&self.latency, &self.from_send])
    }

    /// The same, to add to.
    pub(crate) fn parts_mut(&mut self) -> ([&mut u64; 3], [&mut Dist; 2]) {
        let Self { asked, answered, failed, latency, from_send, .. } = self;
        ([asked, answered, failed], [latency, from_send])
    }

    pub(crate) fn result(&self) -> StepResult {
        let RateSpan { from_us, until_us, from, to } = self.span;
        let [start_s, end_s] = [from_us, until_us].map(|us| us as f64 / 1e6);
        let per_second = self.answered as f64 / (end_s - start_s).max(1e-6);
        let [latency, from_send] = [&self.latency, &self.from_send].map(Dist::stats);
        let of_any = |ms: f64| (latency.count > 0).then_some(ms);
        StepResult {
            start_s,
            end_s,
            asked_per_second: f64::midpoint(from, to),
            per_second,
            mean_ms: of_any(latency.mean_ms),
            median_ms: of_any(latency.median_ms),
            p99_ms: of_any(latency.p99_ms),
            p99_from_send_ms: of_any(from_send.p99_ms),
            asked: Some(self.asked),
            accepted: latency.count,
            failed: self.failed,
            never_sent: self.asked.saturating_sub(latency.count + self.failed),
        }
    }
}

/// The span of these in which a time lies; none where it is behind all.
fn at(spans: &mut [StepRecord], us: u64) -> Option<&mut StepRecord> {
    let index = spans.partition_point(|step| step.span.until_us <= us);
    spans.get_mut(index)
}

/// Adds a message or operation of the main phase, where spans are told apart.
pub(crate) fn add(spans: &mut [StepRecord], sample: &Sample) {
    if spans.is_empty() {
        return;
    }
    let is_accepted = sample.ending == Ending::Accepted;
    if let Some(meanwhile) = at(spans, sample.done_us).filter(|_| is_accepted) {
        meanwhile.answered += 1;
    }
    let Some(own) = at(spans, sample.begun_us()) else { return };
    if is_accepted {
        own.latency.add(sample.latency_us.into());
        own.from_send.add(sample.latency_us.saturating_sub(sample.waited_us.unwrap_or(0)).into());
    } else {
        own.failed += 1;
    }
}

/// A step of a rate, or a part of a ramp.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StepResult {
    /// Seconds after the beginning of the main phase.
    pub(crate) start_s: f64,
    pub(crate) end_s: f64,
    /// The mean rate that was asked for, and the one at which answers came meanwhile.
    pub(crate) asked_per_second: f64,
    pub(crate) per_second: f64,
    /// Of those that began in it and were accepted, from the intended start; `None` where none was.
    pub(crate) mean_ms: Option<f64>,
    pub(crate) median_ms: Option<f64>,
    pub(crate) p99_ms: Option<f64>,
    /// The same from the send.
    pub(crate) p99_from_send_ms: Option<f64>,
    /// How many were to begin in it; `None` where an older program did not say.
    #[serde(default)]
    pub(crate) asked: Option<u64>,
    pub(crate) accepted: u64,
    /// Refused, or without an answer.
    pub(crate) failed: u64,
    /// Those that nobody took in time.
    #[serde(default)]
    pub(crate) never_sent: u64,
}

impl StepResult {
    /// Share of what was to begin in it that was accepted, whenever the answers came.
    fn reached(&self) -> f64 {
        let asked =
            self.asked.map_or(self.asked_per_second * (self.end_s - self.start_s), |asked| asked as f64);
        if asked > 0.0 { self.accepted as f64 / asked } else { 1.0 }
    }
}

/// All steps, for people.
pub(crate) fn table(steps: &[StepResult]) -> Table {
    let mut table = Table::new([
        "seconds",
        "asked per second",
        "answered per second meanwhile",
        "p50 ms",
        "p99 ms",
        "p99 ms from send",
        "failed",
        "never sent",
    ]);
    for step in steps {
        let seconds = format!("{:.1} to {:.1}", step.start_s, step.end_s);
        let rates = [step.asked_per_second, step.per_second].map(grouped);
        let times = [step.median_ms, step.p99_ms, step.p99_from_send_ms].map(shown_ms);
        let missing = [step.failed, step.never_sent].map(|count| count.to_string());
        table.row(std::iter::once(seconds).chain(rates).chain(times).chain(missing));
    }
    table
}

fn shown_ms(ms: Option<f64>) -> String {
    ms.map_or_else(|| "none".to_owned(), figure)
}

/// What is wrong with a step, by itself or beside those before; nothing where it is as it should be.
fn fault(before: &[StepResult], step: &StepResult) -> Option<String> {
    if step.failed > 0 {
        return Some(format!("{} were refused or had no answer", grouped(step.failed as f64)));
    }
    if step.never_sent > 0 {
        return Some(format!("{} were never sent", grouped(step.never_sent as f64)));
    }
    let reached = step.reached();
    if reached < REACHED {
        return Some(format!("only {} of it was answered", percent_missed(reached)));
    }
    let lowest = before.iter().filter_map(|step| step.p99_ms).min_by(f64::total_cmp)?;
    let p99_ms = step.p99_ms?;
    let is_risen = p99_ms > RISEN * lowest && p99_ms > RISEN_MS_MIN;
    is_risen.then(|| format!("the 99th percentile rose from {} to {} ms", figure(lowest), figure(p99_ms)))
}

/// Up to which rate all was well, and what was wrong at the first step at which it was not. `None` without steps.
pub(crate) fn in_short(steps: &[StepResult]) -> Option<InShort<'_>> {
    let first = steps.iter().enumerate().find_map(|(index, step)| {
        let (before, _) = steps.split_at_checked(index)?;
        Some((before, step, fault(before, step)?))
    });
    let (well, wrong) = match first {
        Some((before, step, fault)) => (before, Some((step, fault))),
        None => (steps, None),
    };
    (!steps.is_empty()).then(|| InShort { well: well.iter().max_by(|a, b| by_rate(a, b)), wrong })
}

fn by_rate(one: &StepResult, other: &StepResult) -> std::cmp::Ordering {
    one.asked_per_second.total_cmp(&other.asked_per_second)
}

/// What all steps say together.
pub(crate) struct InShort<'s> {
    /// The highest step before that.
    well: Option<&'s StepResult>,
    /// The first that went wrong.
    wrong: Option<(&'s StepResult, String)>,
}

impl InShort<'_> {
    /// The highest rate at which all was well, in each second; 0 where there is none.
    pub(crate) fn well_per_second(&self) -> f64 {
        self.well.map_or(0.0, |step| step.asked_per_second)
    }
}

impl fmt::Display for InShort<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = |step: &StepResult| grouped(step.asked_per_second);
        match self.well {
            Some(well) => {
                write!(out, "up to {}/s all was answered (p99 {} ms)", rate(well), shown_ms(well.p99_ms))?
            }
            None => write!(out, "not even the first step was as it should be")?,
        }
        match &self.wrong {
            Some((step, fault)) => write!(out, "; at {}/s {fault}", rate(step)),
            None => write!(out, ", at each step"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(second: u64, rate: f64) -> RateSpan {
        RateSpan { from_us: second * 1_000_000, until_us: (second + 1) * 1_000_000, from: rate, to: rate }
    }

    #[test]
    fn each_message_belongs_to_the_step_in_which_it_should_have_begun() {
        let mut spans: Vec<StepRecord> =
            [StepRecord::new(span(0, 2.0), 2), StepRecord::new(span(1, 3.0), 5)].into();
        let sample = |done_us, latency_us, waited_us, ending| Sample {
            done_us,
            index: 0,
            latency_us,
            waited_us: Some(waited_us),
            room: 1,
            kind: 0,
            ending,
        };
        for sample in [
            sample(500_000, 500_000, 0, Ending::Accepted),
            // Answered a step later, and after all of them.
            sample(1_200_000, 700_000, 600_000, Ending::Accepted),
            sample(2_500_000, 1_000_000, 0, Ending::Accepted),
            sample(1_900_000, 800_000, 0, Ending::Rejected),
            sample(1_900_000, 800_000, 0, Ending::Unconfirmed),
        ] {
            add(&mut spans, &sample);
        }
        let [first, second] = [&spans[0], &spans[1]].map(StepRecord::result);
        assert_eq!((first.accepted, first.per_second, first.failed), (2, 1.0, 0), "{first:?}");
        assert_eq!((second.accepted, second.per_second, second.failed), (1, 1.0, 2), "{second:?}");
        assert_eq!((first.never_sent, second.never_sent), (0, 2), "{second:?}");
        assert!((first.mean_ms.unwrap() - 600.0).abs() < 1e-6, "{first:?}");
        assert!((first.p99_from_send_ms.unwrap() - 500.0).abs() < 1.0, "{first:?}");
        let nothing = StepRecord::new(span(2, 4.0), 4).result();
        assert_eq!((nothing.p99_ms, nothing.never_sent), (None, 4), "a percentile of nothing is none");
        let shown = table(&[first, second]).markdown();
        assert!(shown.contains("\n| 1.0 to 2.0 | 3 | 1 | 1,000 "), "{shown}");
    }

    #[test]
    fn it_is_said_from_which_step_on_it_gets_worse() {
        let step = |asked: f64, accepted: u64, p99_ms: f64, failed: u64| StepResult {
            start_s: 0.0,
            end_s: 1.0,
            asked_per_second: asked,
            // Answers that come late are others' then: that says nothing of a step.
            per_second: asked / 2.0,
            mean_ms: Some(p99_ms / 2.0),
            median_ms: Some(p99_ms / 2.0),
            p99_ms: Some(p99_ms),
            p99_from_send_ms: Some(p99_ms),
            asked: None,
            accepted,
            failed,
            never_sent: 0,
        };
        let said = |steps: &[StepResult]| in_short(steps).map(|it| it.to_string()).unwrap_or_default();
        let (low, high) = (step(1_000.0, 1_000, 4.0, 0), step(5_000.0, 4_990, 9.0, 0));
        let well = "up to 5,000/s all was answered (p99 9.000 ms)";
        assert_eq!(said(&[low, high]), format!("{well}, at each step"));
        for (worse, why) in [
            (step(9_000.0, 9_000, 13.0, 0), "the 99th percentile rose from 4.000 to 13.000 ms"),
            (step(9_000.0, 8_000, 4.0, 0), "only 89 % of it was answered"),
            (step(9_000.0, 9_000, 4.0, 1_200), "1,200 were refused or had no answer"),
            (StepResult { never_sent: 7, ..step(9_000.0, 8_993, 4.0, 0) }, "7 were never sent"),
        ] {
            assert_eq!(said(&[low, high, worse, high]), format!("{well}; at 9,000/s {why}"));
        }
        let early = said(&[step(9_000.0, 80, 4.0, 0), low]);
        assert_eq!(
            early,
            "not even the first step was as it should be; at 9,000/s only 1 % of it was answered"
        );
        assert_eq!(said(&[]), "");
    }
}
