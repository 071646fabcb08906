//! How often to send: a rate that is constant, rises, or goes in steps, and when that makes each message due.

use std::ops::Range;
use std::str::FromStr;
use std::time::Duration;

use hubbub_core::invariant::saturate;
use serde::{Serialize, Serializer};

use crate::load::run::Run;
use crate::options::duration;

/// Steps of a rate, at most: a rate is copied as a whole.
const STEPS_MAX: usize = 16;
/// Parts in which each straight line of a ramp is reported.
const RAMP_PARTS: u32 = 5;
const RULE: &str = "write a rate per second such as 5000, a ramp such as 1000..10000 or 1000..10000..26000, or up to 16 such \
                    steps such as 1000,5000@20s,10000";

/// Messages per second from the start to the end of a step: two straight lines that meet in the middle of its time.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Step {
    from: f64,
    /// Where it was given: the rate between the two lines. Else both are one line, however often the step is divided.
    middle: Option<f64>,
    to: f64,
    /// How long it takes; `None` where it is as long as any other.
    time: Option<Duration>,
}

impl Step {
    const fn constant(per_second: f64) -> Self {
        Self { from: per_second, middle: None, to: per_second, time: None }
    }

    fn is_constant(&self) -> bool {
        self.from == self.to && self.middle.is_none_or(|middle| middle == self.to)
    }

    /// Its straight lines, where it takes `seconds`.
    fn lines(&self, seconds: f64) -> [Line; 2] {
        let Self { from, to, .. } = *self;
        let middle = self.middle.unwrap_or(f64::midpoint(from, to));
        let half = |from, to| Line { from, to, seconds: seconds / 2.0 };
        [half(from, middle), half(middle, to)]
    }
}

impl FromStr for Step {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (text, time) = match text.split_once('@') {
            Some((text, time)) => (text, Some(duration(time)?)),
            None => (text, None),
        };
        if time.is_some_and(|time| time.is_zero()) {
            return Err(format!("a step must take longer than 0: {RULE}"));
        }
        // Of three dots, nobody knows whether the last one begins a number.
        if text.contains("...") {
            return Err(RULE.to_owned());
        }
        let (from, rest) = text.split_once("..").unwrap_or((text, text));
        let (middle, to) = rest.split_once("..").map_or((None, rest), |(middle, to)| (Some(middle), to));
        let number = |text: &str| match text.trim().parse::<f64>() {
            Ok(rate) if rate > 0.0 && rate <= 1e8 => Ok(rate),
            _ => Err(RULE.to_owned()),
        };
        let (from, to) = (number(from)?, number(to)?);
        Ok(Self { from, middle: middle.map(number).transpose()?, to, time })
    }
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { from, middle, to, time } = self;
        if self.is_constant() {
            write!(f, "{from}")?;
        } else if let Some(middle) = middle {
            write!(f, "{from}..{middle}..{to}")?;
        } else {
            write!(f, "{from}..{to}")?;
        }
        time.map_or(Ok(()), |time| write!(f, "@{}s", time.as_secs_f64()))
    }
}

/// Messages per second over a run: steps that follow each other, one at least.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rate {
    steps: [Step; STEPS_MAX],
    count: usize,
}

impl FromStr for Rate {
    type Err = String;

    /// `1000`, or `1000..10000` for a ramp, or `1000..10000..26000` for one that has a bend; or several of these with commas
    /// between them, one after another. Each may say how long it takes, as `5000@20s`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut rate = Self { steps: [Step::constant(1.0); STEPS_MAX], count: 0 };
        for part in text.split(',') {
            let step = rate.steps.get_mut(rate.count).ok_or(RULE)?;
            *step = part.trim().parse()?;
            rate.count += 1;
        }
        Ok(rate)
    }
}

impl std::fmt::Display for Rate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, step) in self.steps().iter().enumerate() {
            write!(f, "{}{step}", if index > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}

impl Serialize for Rate {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl Rate {
    pub(crate) const fn constant(per_second: f64) -> Self {
        Self { steps: [Step::constant(per_second); STEPS_MAX], count: 1 }
    }

    fn steps(&self) -> &[Step] {
        self.steps.get(..self.count).unwrap_or_default()
    }

    /// A share of it.
    pub(crate) fn times(self, share: f64) -> Self {
        let scaled = |step: Step| Step {
            from: step.from * share,
            middle: step.middle.map(|middle| middle * share),
            to: step.to * share,
            ..step
        };
        Self { steps: self.steps.map(scaled), ..self }
    }

    /// How long all steps take, of which each takes `each` unless it says otherwise.
    pub(crate) fn time(&self, each: Duration) -> Duration {
        let times = self.steps().iter().map(|step| step.time.unwrap_or(each));
        times.fold(Duration::ZERO, Duration::saturating_add)
    }

    /// Whether it stays the same from the beginning to the end.
    fn is_constant(&self) -> bool {
        matches!(self.steps(), [only] if only.is_constant())
    }

    /// Its straight lines, where each step takes `each` unless it says otherwise.
    fn lines(&self, each: Duration) -> impl Iterator<Item = Line> {
        let lines = move |step: &Step| step.lines(step.time.unwrap_or(each).as_secs_f64());
        self.steps().iter().flat_map(lines)
    }

    /// What a report tells apart, in microseconds from the beginning: each step, and parts of each ramp. Nothing where it is
    /// constant.
    pub(crate) fn spans(&self, each: Duration) -> Vec<RateSpan> {
        if self.is_constant() {
            return Vec::new();
        }
        let (mut spans, mut begun_s) = (Vec::new(), 0.0);
        let mut add = |from: f64, to: f64, seconds: f64| {
            let [from_us, until_us] = [begun_s, begun_s + seconds].map(|s| (s * 1e6).round() as u64);
            spans.push(RateSpan { from_us, until_us, from, to });
            begun_s += seconds;
        };
        for step in self.steps() {
            let seconds = step.time.unwrap_or(each).as_secs_f64();
            if step.is_constant() {
                add(step.from, step.to, seconds);
                continue;
            }
            let whole = [Line { from: step.from, to: step.to, seconds }];
            let halves = step.lines(seconds);
            for line in if step.middle.is_some() { &halves[..] } else { &whole[..] } {
                for part in 0..RAMP_PARTS {
                    let at = |part: u32| {
                        line.from + (line.to - line.from) * f64::from(part) / f64::from(RAMP_PARTS)
                    };
                    add(at(part), at(part + 1), line.seconds / f64::from(RAMP_PARTS));
                }
            }
        }
        spans
    }
}

/// A part of a rate, in the time of the main phase.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RateSpan {
    pub(crate) from_us: u64,
    pub(crate) until_us: u64,
    /// Messages per second at its beginning, and at its end.
    pub(crate) from: f64,
    pub(crate) to: f64,
}

/// A rate that changes in proportion to time.
#[derive(Debug, Clone, Copy)]
struct Line {
    from: f64,
    to: f64,
    seconds: f64,
}

impl Line {
    fn messages(&self) -> f64 {
        f64::midpoint(self.from, self.to) * self.seconds
    }

    /// When its message `n` is due, in seconds after its beginning.
    fn due_s(&self, n: f64) -> f64 {
        let Self { from, to, seconds } = *self;
        let growth = (to - from) / (2.0 * seconds);
        // n = from·t + growth·t²
        if growth == 0.0 {
            n / from
        } else {
            (2.0 * n) / (from + (from * from + 4.0 * growth * n).max(0.0).sqrt())
        }
    }
}

/// A rate over the phases of a load: warm-up at the first rate, the rate itself, cool-down at the last.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Schedule {
    rate: Rate,
    /// Of each step that does not say otherwise.
    each: Duration,
    start_us: u64,
    warmup: Duration,
    cooldown: Duration,
}

impl Schedule {
    /// Starts `start_us` after the start of the run, with the rate itself, of which each step takes `each`.
    pub(crate) fn new(rate: Rate, each: Duration, start_us: u64) -> Self {
        Self { rate, each, start_us, warmup: Duration::ZERO, cooldown: Duration::ZERO }
    }

    /// The same between a warm-up and a cool-down.
    pub(crate) fn between(self, warmup: Duration, cooldown: Duration) -> Self {
        Self { warmup, cooldown, ..self }
    }

    fn lines(&self) -> impl Iterator<Item = Line> {
        let ends =
            [self.rate.steps().first().map(|step| step.from), self.rate.steps().last().map(|step| step.to)];
        let [before, after] = ends.map(|rate| rate.unwrap_or(1.0));
        let line = |rate: f64, time: Duration| Line { from: rate, to: rate, seconds: time.as_secs_f64() };
        let before = std::iter::once(line(before, self.warmup));
        let all = before.chain(self.rate.lines(self.each)).chain([line(after, self.cooldown)]);
        all.filter(|line| line.seconds > 0.0)
    }

    /// How long it takes.
    fn time(&self) -> Duration {
        self.warmup.saturating_add(self.rate.time(self.each)).saturating_add(self.cooldown)
    }

    pub(crate) fn messages(&self) -> u64 {
        // A little more, so that rounding leaves none out.
        (self.lines().map(|line| line.messages()).sum::<f64>() + 1e-6) as u64
    }

    /// Messages per second of the rate itself, without warm-up and cool-down.
    pub(crate) fn mean_rate(&self) -> f64 {
        let main = self.between(Duration::ZERO, Duration::ZERO);
        main.messages() as f64 / main.time().as_secs_f64().max(1e-9)
    }

    /// Messages that are due in this time of the main phase, in microseconds after its beginning.
    pub(crate) fn due_in_main(&self, Range { start, end }: Range<u64>) -> u64 {
        let main_us = self.start_us.saturating_add(saturate(self.warmup.as_micros()));
        let [before, by_then] = [start, end].map(|us| self.due_before(main_us.saturating_add(us)));
        by_then.saturating_sub(before)
    }

    /// Messages that are due before this time of the run.
    fn due_before(&self, us: u64) -> u64 {
        let (mut least, mut most) = (0, self.messages());
        while least < most {
            let middle = least.midpoint(most);
            if self.intended_us(middle) < us {
                least = middle + 1;
            } else {
                most = middle;
            }
        }
        least
    }

    /// What is to be known where not all of the main phase was sent; `what` it is of: messages, operations.
    pub(crate) fn never_sent(&self, run: &Run, what: &str) -> Option<String> {
        let [sent, ..] = run.counts.totals();
        let record = run.record.lock();
        let ended = record.all.len() + record.failed.iter().sum::<u64>();
        drop(record);
        let main_us =
            if self.cooldown.is_zero() { u64::MAX } else { saturate(self.rate.time(self.each).as_micros()) };
        let left = self.due_in_main(0..main_us).saturating_sub(ended);
        // What is still under way was sent.
        let left = left.min(self.messages().saturating_sub(sent));
        (left > 0).then(|| format!("the rate was not kept: {left} {what} were never sent"))
    }

    /// How long sending may take.
    pub(crate) fn patience(&self) -> Duration {
        super::patience(self.time())
    }

    /// The longest time between two messages: for so long a server that answers all of them is silent.
    pub(crate) fn longest_gap(&self) -> Duration {
        // Along a straight line gaps only grow, or only shrink: the longest of all is beside one of its ends, the last of which no
        // message is due at.
        let (mut sent, mut longest_us, last) = (0.0, 0, self.messages().saturating_sub(1));
        for messages in std::iter::once(0.0).chain(self.lines().map(|line| line.messages())) {
            sent += messages;
            let end = sent as u64;
            for index in end.saturating_sub(2)..=end + 1 {
                if index < last {
                    let gap_us = self.intended_us(index + 1).saturating_sub(self.intended_us(index));
                    longest_us = longest_us.max(gap_us);
                }
            }
        }
        Duration::from_micros(longest_us)
    }

    /// When it starts, in microseconds after the start of the run.
    pub(super) fn start_us(&self) -> u64 {
        self.start_us
    }

    /// When message `index` is to be sent, in microseconds after the start of the run.
    pub(crate) fn intended_us(&self, index: u64) -> u64 {
        let (mut n, mut before_s, mut last) = (index as f64, 0.0, None);
        for line in self.lines() {
            // What is beyond the end goes on as the last line does.
            last = Some((line, n, before_s));
            let messages = line.messages();
            if n < messages {
                break;
            }
            n -= messages;
            before_s += line.seconds;
        }
        let due_s = last.map_or(0.0, |(line, n, before_s)| before_s + line.due_s(n));
        self.start_us + (due_s * 1e6).round() as u64
    }
}

#[cfg(test)]
mod tests;
