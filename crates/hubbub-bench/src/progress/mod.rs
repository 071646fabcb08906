//! What a running measurement shows on standard error: lines that are drawn anew each second on a terminal, and elsewhere a
//! plain line every ten seconds, unless it is to be quiet.
//!
//! Counters are read, and the histogram of latencies is copied under the lock that the record has anyway, once for each line.
//! The difference between two copies are the last seconds. There are at most five copies, some 100 KiB each.

mod line;

use std::collections::VecDeque;
use std::io::{IsTerminal, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{HumanDuration, ProgressBar, ProgressStyle};
use parking_lot::Mutex;

use line::{Line, late};

use crate::load::pace::Schedule;
use crate::load::run::Run;
use crate::load::subscribers::Listeners;
use crate::results::record::Dist;

/// Between two lines on a terminal, and elsewhere.
const REDRAW: Duration = Duration::from_secs(1);
const REPORT: Duration = Duration::from_secs(10);
/// Rates and latencies on a terminal are those of so many lines; elsewhere those since the last line.
const REDRAWN_LINES: usize = 3;
/// Steps of the bar.
const STEPS: f64 = 1_000.0;

/// Which measurement of several this is.
#[derive(Debug, Clone)]
pub(crate) struct Overall {
    /// Such as "point 2 of 8, connections 20".
    name: String,
    /// When all will be done, where that is known.
    ends: Option<Instant>,
}

impl Overall {
    pub(crate) fn new(name: String, ends: Option<Instant>) -> Self {
        Self { name, ends }
    }

    /// Its name, and how much time is left in all.
    pub(crate) fn shown(&self, now: Instant) -> String {
        let left = self.ends.map(|ends| ends.saturating_duration_since(now)).filter(|left| !left.is_zero());
        let left = left.map(|left| format!(", {} left in all", HumanDuration(left)));
        format!("{}{}", self.name, left.unwrap_or_default())
    }

    /// Measures; what it shows stands beside the name of the measurement.
    pub(crate) async fn during<W: Future>(self, measuring: W) -> W::Output {
        OVERALL.scope(self, measuring).await
    }
}

tokio::task_local! {
    /// Of the task that measures: workloads need not know that they are one of several.
    static OVERALL: Overall;
}

#[derive(Debug, Clone)]
enum View {
    Hidden,
    /// On a terminal.
    Bar(ProgressBar),
    /// Anywhere else.
    Lines,
}

/// What is shown of one phase.
pub(crate) struct Live<'a> {
    name: &'static str,
    view: View,
    overall: Option<Overall>,
    /// Messages or operations that there will be; 0 if nobody knows.
    count: u64,
    /// How long it takes, where that is known.
    time: Option<Duration>,
    schedule: Option<Schedule>,
    listeners: Option<&'a Listeners>,
    begun: Instant,
    /// Of a phase without a run.
    done: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// When to look again.
    next: Option<Instant>,
    /// The oldest first.
    looks: VecDeque<Look>,
}

/// What was seen at a time.
#[derive(Debug)]
struct Look {
    at: Instant,
    done: u64,
    latency: Option<Dist>,
}

impl<'a> Live<'a> {
    /// Of a phase with `count` messages, 0 if nobody knows how many.
    pub(crate) fn new(name: &'static str, count: u64, quiet: bool) -> Self {
        let view = match (quiet, std::io::stderr().is_terminal()) {
            (true, _) => View::Hidden,
            (false, true) => View::Bar(ProgressBar::new(STEPS as u64)),
            (false, false) => View::Lines,
        };
        Self::with_view(name, count, view)
    }

    fn with_view(name: &'static str, count: u64, view: View) -> Self {
        Self {
            name,
            view,
            overall: OVERALL.try_with(Clone::clone).ok(),
            count,
            time: None,
            schedule: None,
            listeners: None,
            begun: Instant::now(),
            done: AtomicU64::new(0),
            state: Mutex::default(),
        }
    }

    /// The same, of which the time is known.
    pub(crate) fn for_time(self, time: Option<Duration>) -> Self {
        Self { time, ..self }
    }

    /// The same, with how far it is behind an open loop's schedule.
    pub(crate) fn on_schedule(self, schedule: Option<Schedule>) -> Self {
        Self { schedule, ..self }
    }

    /// The same, with how far the slowest of those is behind who follow the messages.
    pub(crate) fn followed_by(self, listeners: &'a Listeners) -> Self {
        Self { listeners: (!listeners.is_empty()).then_some(listeners), ..self }
    }

    /// So many more are done of a phase without a run.
    pub(crate) fn inc(&self, n: u64) {
        self.done.fetch_add(n, Ordering::Relaxed);
        self.show(None);
    }

    /// Looks at the run, if it is time for it, and shows what it sees.
    pub(crate) fn show(&self, run: Option<&Run>) {
        if let Some(line) = self.look(run, Instant::now()) {
            self.draw(&line);
        }
    }

    /// Leaves nothing on a terminal.
    pub(crate) fn clear(&self) {
        if let View::Bar(bar) = &self.view {
            bar.finish_and_clear();
        }
    }

    fn draw(&self, line: &Line) {
        let overall = self.overall.as_ref().map(|overall| overall.shown(line.at));
        match &self.view {
            View::Hidden => {}
            View::Bar(bar) => {
                let bar_part = if line.share.is_some() { "{bar:20} " } else { "" };
                let overall_part = if overall.is_some() { "{prefix}\n" } else { "" };
                // It is made of constants that are right.
                if let Ok(style) = ProgressStyle::with_template(&format!("{overall_part}{bar_part}{{msg}}")) {
                    bar.set_style(style);
                }
                // All in one line would be wider than many a terminal.
                bar.set_message(format!("{}\n{}", line.progress(), line.course()));
                bar.set_prefix(overall.unwrap_or_default());
                bar.set_position((STEPS * line.share.unwrap_or(0.0)) as u64);
            }
            View::Lines => {
                let overall = overall.map_or_else(String::new, |overall| overall + ": ");
                // Nobody can be told that it is gone.
                let _ = writeln!(std::io::stderr(), "{overall}{line}");
            }
        }
    }

    /// A line, if it is time for one. The first look of a view of lines shows nothing.
    fn look(&self, run: Option<&Run>, now: Instant) -> Option<Line> {
        let (every, lines) = match self.view {
            View::Hidden => return None,
            View::Bar(_) => (REDRAW, REDRAWN_LINES),
            View::Lines => (REPORT, 1),
        };
        let mut state = self.state.lock();
        if state.next.is_some_and(|next| now < next) {
            return None;
        }
        let is_first = state.next.replace(now + every).is_none();
        let done = run.map_or(&self.done, |run| &run.counts.accepted).load(Ordering::Relaxed);
        let latency = run.map(|run| run.record.lock().all.clone());
        let look = Look { at: now, done, latency };
        let line = self.line(run, state.looks.front().unwrap_or(&look), &look);
        state.looks.push_back(look);
        if state.looks.len() > lines {
            state.looks.pop_front();
        }
        (!is_first || matches!(self.view, View::Bar(_))).then_some(line)
    }

    fn line(&self, run: Option<&Run>, before: &Look, now: &Look) -> Line {
        let seconds = now.at.saturating_duration_since(before.at).as_secs_f64();
        let per_second =
            if seconds > 0.0 { now.done.saturating_sub(before.done) as f64 / seconds } else { 0.0 };
        let elapsed = now.at.saturating_duration_since(self.begun);
        let missing = self.count.saturating_sub(now.done) as f64;
        let by_count = (self.count > 0 && per_second > 0.0)
            .then(|| Duration::try_from_secs_f64(missing / per_second).ok())
            .flatten();
        let by_time = self.time.map(|time| time.saturating_sub(elapsed));
        // Whichever is over first ends it, but an open loop has as many messages as there is time for.
        let is_timed = self.schedule.is_some() && self.time.is_some();
        let left = by_time.into_iter().chain(by_count.filter(|_| !is_timed)).min();
        let done_of = (self.count > 0).then(|| now.done as f64 / self.count as f64);
        let time_of = self.time.map(|time| elapsed.as_secs_f64() / time.as_secs_f64().max(1e-9));
        let failures = run.map_or([0; 3], |run| {
            let [.., rejected, unconfirmed] = run.counts.totals();
            [run.counts.retries.sum(), rejected, unconfirmed]
        });
        Line {
            at: now.at,
            name: self.name,
            done: now.done,
            count: self.count,
            per_second,
            left: left.filter(|left| !left.is_zero()),
            share: done_of.into_iter().chain(time_of).reduce(f64::max).map(|share| share.min(1.0)),
            latency_ms: now
                .latency
                .as_ref()
                .zip(before.latency.as_ref())
                .and_then(|(now, before)| now.percentiles_ms_since(before, [50.0, 99.0])),
            failures,
            late: run.zip(self.schedule).and_then(|(run, schedule)| {
                let [sent, ..] = run.counts.totals();
                late(&schedule, sent, run.now_us())
            }),
            behind: self.listeners.map(Listeners::behind),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Target;
    use crate::load::message_plan::Shape;
    use crate::load::pace::Rate;
    use crate::load::run::Counts;
    use crate::options::arguments;
    use crate::results::record::{Ending, Sample};

    fn run() -> Run {
        let target = Target::parse("127.0.0.1:1").unwrap();
        Run::new(target, Shape::new(1, 10, None, ""), arguments("rules", &[]).unwrap())
    }

    /// So many more are accepted, each after so long.
    fn accept(run: &Run, count: u64, latency_us: u32) {
        let sample = Sample {
            done_us: 1,
            index: 0,
            latency_us,
            waited_us: None,
            room: 1,
            kind: 0,
            ending: Ending::Accepted,
        };
        run.record(&mut vec![sample; usize::try_from(count).unwrap()], 1);
        Counts::add(&run.counts.accepted, count);
    }

    fn on_terminal(count: u64) -> Live<'static> {
        Live::with_view("sending", count, View::Bar(ProgressBar::hidden()))
    }

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn a_line_is_about_the_last_seconds() {
        let (run, live) = (run(), on_terminal(10_000));
        let at = |after_s| live.look(Some(&run), live.begun + seconds(after_s)).map(|line| line.to_string());
        assert_eq!(at(0.0).unwrap(), "sending: 0 of 10,000, 0/s");
        accept(&run, 1_000, 500);
        assert_eq!(at(0.5), None, "once a second is enough");
        assert_eq!(
            at(1.0).unwrap(),
            "sending: 1,000 of 10,000, 1,000/s, 9 seconds left, p50 0.500 ms, p99 0.500 ms"
        );
        for (second, latency_us) in [(2.0, 1_500), (3.0, 1_500), (4.0, 1_500)] {
            accept(&run, 500, latency_us);
            assert!(at(second).is_some());
        }
        accept(&run, 500, 1_500);
        let line = at(5.0).unwrap();
        assert!(line.contains("3,000 of 10,000, 500/s"), "{line}");
        assert!(line.contains("p50 1.500 ms, p99 1.500 ms"), "what is older does not count: {line}");
        assert!(live.state.lock().looks.len() <= REDRAWN_LINES);
        assert!(at(6.0).unwrap().contains("333/s, 21 seconds left, p50 1.500"), "the mean of three seconds");
        for second in [7.0, 8.0] {
            at(second);
        }
        assert_eq!(at(9.0).unwrap(), "sending: 3,000 of 10,000, 0/s", "nothing is answered any more");
    }

    #[test]
    fn what_failed_is_seen() {
        let (run, live) = (run(), on_terminal(0));
        Counts::add(&run.counts.rejected, 2);
        Counts::add(&run.counts.unconfirmed, 1_234);
        run.counts.retries.add(crate::client::Cause::Refused, 7);
        let line = live.look(Some(&run), live.begun).unwrap();
        assert_eq!(line.failures, [7, 2, 1_234]);
    }

    #[test]
    fn elsewhere_there_is_a_line_every_ten_seconds() {
        let (run, live) = (run(), Live::with_view("sending", 0, View::Lines).for_time(Some(seconds(60.0))));
        let at = |after_s| live.look(Some(&run), live.begun + seconds(after_s)).map(|line| line.to_string());
        assert_eq!(at(0.0), None);
        accept(&run, 400, 1_000);
        assert_eq!((at(5.0), at(9.9)), (None, None));
        assert_eq!(at(10.0).unwrap(), "sending: 400, 40/s, 50 seconds left, p50 1.000 ms, p99 1.000 ms");
        accept(&run, 100, 2_000);
        assert!(
            at(20.0).unwrap().contains("500, 10/s, 40 seconds left, p50 2.000 ms"),
            "since the last line"
        );
        let quiet = Live::with_view("sending", 0, View::Hidden);
        assert!(quiet.look(Some(&run), quiet.begun).is_none());
    }

    #[test]
    fn an_open_loop_ends_with_its_time() {
        let schedule = Schedule::new(Rate::constant(100.0), seconds(1.0), 0);
        let live = on_terminal(100).for_time(Some(seconds(1.0))).on_schedule(Some(schedule));
        let look = |after_s, done| Look { at: live.begun + seconds(after_s), done, latency: None };
        let line = live.line(Some(&run()), &look(0.0, 0), &look(0.25, 1));
        assert_eq!((line.left, line.share), (Some(seconds(0.75)), Some(0.25)), "however slow it is");
        let closed = Live { schedule: None, ..live };
        assert_eq!(
            closed.line(None, &look(0.0, 0), &look(0.25, 50)).left,
            Some(seconds(0.25)),
            "by its count"
        );
    }

    #[tokio::test]
    async fn a_measurement_of_several_says_which() {
        let now = Instant::now();
        let overall = Overall::new("point 2 of 8, connections 20".to_owned(), Some(now + seconds(80.0)));
        assert_eq!(overall.shown(now), "point 2 of 8, connections 20, 80 seconds left in all");
        assert_eq!(overall.shown(now + seconds(91.0)), "point 2 of 8, connections 20");
        let seen = overall.during(async { on_terminal(0).overall }).await.unwrap();
        assert_eq!(seen.name, "point 2 of 8, connections 20");
        assert!(on_terminal(0).overall.is_none());
    }

    #[test]
    fn a_phase_without_a_run_counts_by_itself() {
        let live = on_terminal(1_000);
        live.inc(10);
        live.inc(5);
        let line = live.look(None, live.begun + seconds(60.0)).unwrap().to_string();
        assert!(line.starts_with("sending: 15 of 1,000, 0/s, "), "{line}");
    }
}
