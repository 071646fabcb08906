//! How often to send: a rate that is constant, rises, or goes in steps, and when that makes each message due.

use std::str::FromStr;
use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::options::duration;
use crate::run::Run;

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
    middle: f64,
    to: f64,
    /// How long it takes; `None` where it is as long as any other.
    time: Option<Duration>,
}

impl Step {
    const fn constant(per_second: f64) -> Self {
        Self { from: per_second, middle: per_second, to: per_second, time: None }
    }

    fn is_constant(&self) -> bool {
        self.from == self.middle && self.middle == self.to
    }

    /// Its straight lines, where it takes `seconds`.
    fn lines(&self, seconds: f64) -> [Line; 2] {
        let Self { from, middle, to, .. } = *self;
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
        let (from, rest) = text.split_once("..").unwrap_or((text, text));
        let (middle, to) = rest.split_once("..").map_or((None, rest), |(middle, to)| (Some(middle), to));
        let number = |text: &str| match text.trim_start_matches('.').trim().parse::<f64>() {
            Ok(rate) if rate > 0.0 && rate <= 1e8 => Ok(rate),
            _ => Err(RULE.to_owned()),
        };
        let (from, to) = (number(from)?, number(to)?);
        Ok(Self { from, middle: middle.map_or(Ok(f64::midpoint(from, to)), number)?, to, time })
    }
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { from, middle, to, time } = self;
        if self.is_constant() {
            write!(f, "{from}")?;
        } else if *middle == f64::midpoint(*from, *to) {
            write!(f, "{from}..{to}")?;
        } else {
            write!(f, "{from}..{middle}..{to}")?;
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
            middle: step.middle * share,
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
            let is_bent = step.middle != f64::midpoint(step.from, step.to);
            let whole = [Line { from: step.from, to: step.to, seconds }];
            let halves = step.lines(seconds);
            for line in if is_bent { &halves[..] } else { &whole[..] } {
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

    /// What is to be known where not all of it was sent; `what` it is of: messages, operations.
    pub(crate) fn never_sent(&self, run: &Run, what: &str) -> Option<String> {
        let [sent, ..] = run.counts.totals();
        let left = self.messages().saturating_sub(sent);
        (left > 0).then(|| format!("the rate was not kept: {left} {what} were never sent"))
    }

    /// How long sending may take.
    pub(crate) fn patience(&self) -> Duration {
        super::patience(self.time())
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
mod tests {
    use super::*;

    fn schedule(rate: &str, seconds: u64, start_us: u64) -> Schedule {
        Schedule::new(rate.parse().unwrap(), Duration::from_secs(seconds), start_us)
    }

    #[test]
    fn a_ramp_sends_what_its_area_says() {
        let schedule = schedule("1000..10000", 10, 5);
        assert_eq!(schedule.messages(), 55_000);
        assert_eq!(schedule.intended_us(0), 5);
        assert_eq!(schedule.intended_us(55_000), 10_000_005);
        let first_second = (0..55_000).filter(|&n| schedule.intended_us(n) < 1_000_005).count();
        assert_eq!(first_second, 1_450);
    }

    #[test]
    fn a_ramp_may_have_a_bend() {
        let rate: Rate = "1000..10000..26000".parse().unwrap();
        assert_eq!(rate.to_string(), "1000..10000..26000");
        assert_eq!("1000..10000".parse::<Rate>().unwrap().to_string(), "1000..10000");
        let schedule = Schedule::new(rate, Duration::from_secs(20), 0);
        assert_eq!(schedule.messages(), 55_000 + 180_000);
        assert_eq!(schedule.intended_us(55_000), 10_000_000);
        assert_eq!(schedule.intended_us(235_000), 20_000_000);
        let (before, after) = (schedule.intended_us(54_999), schedule.intended_us(55_001));
        // Both lines meet at 10,000/s; times are cut to whole microseconds.
        assert!((99..=101).contains(&(10_000_000 - before)) && (99..=101).contains(&(after - 10_000_000)));
    }

    #[test]
    fn a_constant_rate_has_equal_distances() {
        let schedule = schedule("2000", 3, 0);
        assert_eq!(schedule.messages(), 6_000);
        assert_eq!(schedule.intended_us(5_000), 2_500_000);
        for wrong in ["0", "-5", "fast", "1..", "1..x", "5,", "5@", "5@0s", "5@soon", &"5,".repeat(17)] {
            assert!(wrong.parse::<Rate>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn steps_follow_each_other() {
        let rate: Rate = "100, 500@2s,1000..2000".parse().unwrap();
        assert_eq!(rate.to_string(), "100,500@2s,1000..2000");
        assert_eq!(rate.times(0.5).to_string(), "50,250@2s,500..1000");
        let schedule = Schedule::new(rate, Duration::from_secs(1), 0);
        assert_eq!(schedule.messages(), 100 + 1_000 + 1_500);
        assert_eq!(schedule.mean_rate(), 650.0, "2,600 in four seconds");
        assert_eq!(
            [50, 100, 600, 1_100].map(|n| schedule.intended_us(n)),
            [500_000, 1_000_000, 2_000_000, 3_000_000]
        );
        let spans = rate.spans(Duration::from_secs(1));
        let shown: Vec<_> =
            spans.iter().map(|it| (it.from_us / 1_000, it.until_us / 1_000, it.from, it.to)).collect();
        assert_eq!(shown[..2], [(0, 1_000, 100.0, 100.0), (1_000, 3_000, 500.0, 500.0)]);
        assert_eq!((shown.len(), shown[2].0, shown[6].1), (7, 3_000, 4_000), "a ramp in parts: {shown:?}");
        assert_eq!((shown[2].2, shown[6].3), (1_000.0, 2_000.0));
        assert!(Rate::constant(5.0).spans(Duration::from_secs(1)).is_empty());
        let bent: Rate = "1..5..100".parse().unwrap();
        assert_eq!(bent.spans(Duration::from_secs(1)).len(), 10);
    }

    #[test]
    fn a_load_runs_before_and_after_its_main_phase() {
        let schedule = schedule("100,500", 1, 0).between(Duration::from_secs(2), Duration::from_secs(3));
        assert_eq!(schedule.messages(), 200 + 600 + 1_500);
        assert_eq!(schedule.mean_rate(), 300.0, "of the main phase alone");
        assert_eq!(
            [199, 200, 300, 800].map(|n| schedule.intended_us(n)),
            [1_990_000, 2_000_000, 3_000_000, 4_000_000]
        );
        assert_eq!(schedule.patience(), super::super::patience(Duration::from_secs(7)));
    }
}
