//! The phases of a load, and how its connections are paced: options that have the same names in all workloads.
//!
//! The load runs through warm-up, main phase and cool-down. What begins in the main phase is measured; the ledger covers all.

use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::ensure;
use clap::Args;
use hubbub_core::clock::{RandomSource, SeededRandom};
use hubbub_core::invariant::saturate;
use serde::Serialize;
use tokio::sync::watch;

use crate::agents::Share;
use crate::load::message_plan::share_of;
use crate::load::pace::{Rate, RateSpan, Schedule};
use crate::load::run::Run;
use crate::options::{duration, seconds};

/// How long the load runs.
#[derive(Debug, Clone, Copy, Args, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Phases {
    /// Time of the load before its main phase, in which nothing is measured
    #[arg(long, default_value = "0s", value_parser = duration, value_name = "TIME")]
    #[serde(rename = "warmupS", serialize_with = "seconds")]
    pub(crate) warmup: Duration,
    /// Length of the main phase: what begins in it is measured. Of each step, where --rate has several
    #[arg(long, short, value_parser = duration, value_name = "TIME")]
    #[serde(rename = "durationS", serialize_with = "seconds")]
    pub(crate) duration: Option<Duration>,
    /// Time of the load after its main phase, in which nothing is measured
    #[arg(long, default_value = "0s", value_parser = duration, value_name = "TIME")]
    #[serde(rename = "cooldownS", serialize_with = "seconds")]
    pub(crate) cooldown: Duration,
}

/// When connections send.
#[derive(Debug, Clone, Copy, Args, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Pacing {
    /// Starts per second, whatever the server does (open loop): 5000, or a ramp 1000..10000 or 1000..10000..26000, or steps
    /// of these such as 1000,5000@20s,10000, each as long as --duration unless it says otherwise
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Option<Rate>,
    /// Time between an answer and the next message or operation of a connection (closed loop)
    #[arg(long, default_value = "0ms", value_parser = duration, value_name = "TIME")]
    #[serde(rename = "thinkS", serialize_with = "seconds")]
    pub(crate) think: Duration,
    /// Draw each think time from the exponential distribution whose mean is --think
    #[arg(long)]
    pub(crate) think_drawn: bool,
}

/// When the phases of a load are, from its beginning on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Timetable {
    pub(crate) warmup: Duration,
    /// `None` where something else than time ends it.
    pub(crate) main: Option<Duration>,
    pub(crate) cooldown: Duration,
}

impl Timetable {
    /// The same where the warm-up belongs to the main phase.
    pub(crate) fn without_warmup(&self) -> Self {
        let main = self.main.map(|main| self.warmup.saturating_add(main));
        Self { warmup: Duration::ZERO, main, ..*self }
    }

    /// The main phase in microseconds. Without a cool-down, all that begins after the warm-up belongs to it.
    pub(crate) fn main_us(&self) -> Range<u64> {
        let from = self.warmup;
        let until = self.main_end().map_or(u64::MAX, |until| saturate(until.as_micros()));
        saturate(from.as_micros())..until
    }

    /// Where a cool-down follows it.
    pub(crate) fn main_end(&self) -> Option<Duration> {
        let main = self.main.filter(|_| !self.cooldown.is_zero())?;
        Some(self.warmup.saturating_add(main))
    }

    /// How long an open loop is to send what is measured, in seconds: its main phase, or as long as its messages take at this rate.
    pub(crate) fn sending_s(&self, run: &Run, asked_per_second: Option<f64>) -> f64 {
        let [sent, ..] = run.counts.totals();
        let of_messages = asked_per_second.map_or(0.0, |asked| sent as f64 / asked);
        self.main.map_or(of_messages, |main| main.as_secs_f64())
    }

    /// The time of all three.
    pub(crate) fn whole(&self) -> Option<Duration> {
        Some(self.warmup.saturating_add(self.main?).saturating_add(self.cooldown))
    }
}

impl Phases {
    /// Where operations have this rate, or none.
    pub(crate) fn timetable(&self, rate: Option<Rate>) -> Timetable {
        let main = self.duration.map(|each| rate.map_or(each, |rate| rate.time(each)));
        Timetable { warmup: self.warmup, main, cooldown: self.cooldown }
    }

    /// # Errors
    /// A cool-down after a main phase of which nobody knows when it ends.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        ensure!(
            self.duration.is_some() || self.cooldown.is_zero(),
            "--cooldown: without --duration, nobody knows when the main phase ends: give both"
        );
        Ok(())
    }
}

impl Pacing {
    /// # Errors
    /// Options of both loops, or of none.
    pub(crate) fn check(&self, phases: &Phases) -> anyhow::Result<()> {
        phases.check()?;
        ensure!(
            self.rate.is_none() || self.think.is_zero(),
            "--think: connections wait in a closed loop only, and --rate makes an open one: give one of them"
        );
        ensure!(
            !self.think_drawn || !self.think.is_zero(),
            "--think-drawn: think times are drawn around --think, which must be more than 0"
        );
        ensure!(
            self.rate.is_none() || phases.duration.is_some(),
            "--rate: give --duration, too: how long it is kept up"
        );
        Ok(())
    }

    /// When operations are due, in an open loop.
    pub(crate) fn schedule(&self, phases: &Phases) -> Option<Schedule> {
        let (rate, each) = self.rate.zip(phases.duration)?;
        Some(Schedule::new(rate, each, 0).between(phases.warmup, phases.cooldown))
    }

    /// What a report tells apart of the main phase.
    pub(crate) fn spans(&self, phases: &Phases) -> Vec<RateSpan> {
        self.rate.zip(phases.duration).map_or_else(Vec::new, |(rate, each)| rate.spans(each))
    }

    pub(crate) fn think_time(&self) -> ThinkTime {
        ThinkTime { mean: self.think, is_drawn: self.think_drawn }
    }

    /// What each of several agents is given of the rate, in proportion to `weights`; nothing in a closed loop.
    pub(crate) fn shares(&self, weights: &[u64]) -> Vec<Share> {
        let rates = self.rate.map(|rate| rate.divided(weights)).unwrap_or_default();
        let share = |who: usize| rates.get(who).map(|rate| ("rate", rate.to_string())).into_iter().collect();
        (0..weights.len()).map(share).collect()
    }
}

/// How long a connection waits between an answer and what it sends next.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ThinkTime {
    mean: Duration,
    is_drawn: bool,
}

impl ThinkTime {
    pub(crate) fn is_zero(&self) -> bool {
        self.mean.is_zero()
    }

    /// Hardly ever longer than this.
    pub(crate) fn longest(&self) -> Duration {
        // One of 22,000 is longer (e⁻¹⁰): that all connections draw such a one at a time does not happen.
        self.mean.saturating_mul(if self.is_drawn { 10 } else { 1 })
    }

    /// The next one.
    pub(crate) fn draw(&self, random: &SeededRandom) -> Duration {
        if !self.is_drawn {
            return self.mean;
        }
        // The inverse of the exponential distribution; a share is less than 1.
        self.mean.mul_f64(-(1.0 - share_of(random.next_u64())).ln())
    }
}

/// When the load of a run began: drivers say so, and who measures beside them waits for it.
#[derive(Debug)]
pub(crate) struct LoadStart(watch::Sender<Option<Instant>>);

impl Default for LoadStart {
    fn default() -> Self {
        Self(watch::channel(None).0)
    }
}

impl LoadStart {
    pub(crate) fn set(&self, at: Instant) {
        self.0.send_replace(Some(at));
    }

    /// When it began, if it has.
    pub(crate) fn at(&self) -> Option<Instant> {
        *self.0.borrow()
    }

    /// Waits until the load has run for so long.
    async fn reach(&self, after: Duration) {
        let mut began = self.0.subscribe();
        // The sender lives as long as this is waited for.
        let at = began.wait_for(Option::is_some).await.ok().and_then(|at| *at);
        if let Some(until) = at.and_then(|at| at.checked_add(after)) {
            tokio::time::sleep_until(until.into()).await;
        }
    }
}

/// Does the load, and measures beside it for as long as its main phase lasts. Where the load ends early, so does that.
pub(crate) async fn beside_main<T, M, R>(
    start: &LoadStart,
    timetable: Timetable,
    load: impl Future<Output = T>,
    begin: impl AsyncFnOnce() -> M,
    end: impl AsyncFnOnce(M) -> R,
) -> (T, R) {
    // Nothing may pass between the two where the load begins with its main phase.
    let early = if timetable.warmup.is_zero() { Ok(begin().await) } else { Err(begin) };
    let (ended, is_ended) = watch::channel(false);
    let working = async {
        let done = load.await;
        ended.send_replace(true);
        done
    };
    let reached = async |after: Option<Duration>| {
        let mut is_ended = is_ended.clone();
        let over = async { _ = is_ended.wait_for(|is_ended| *is_ended).await };
        match after {
            Some(after) => tokio::select! {
                () = start.reach(after) => {}
                () = over => {}
            },
            None => over.await,
        }
    };
    let measuring = async {
        let mark = match early {
            Ok(mark) => mark,
            Err(begin) => {
                reached(Some(timetable.warmup)).await;
                begin().await
            }
        };
        reached(timetable.main_end()).await;
        end(mark).await
    };
    tokio::join!(working, measuring)
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use tokio::sync::Notify;

    use super::*;
    use crate::options::arguments;

    #[derive(Debug, Clone, Args)]
    struct Both {
        #[command(flatten)]
        phases: Phases,
        #[command(flatten)]
        pacing: Pacing,
    }

    fn both(line: &[&str]) -> Both {
        arguments("both", line).unwrap()
    }

    #[test]
    fn what_does_not_fit_is_named_with_its_rule() {
        for (line, parts) in [
            (&["--cooldown=1s"][..], &["--cooldown", "--duration"][..]),
            (&["--duration=1s", "--rate=5", "--think=1ms"], &["--think", "--rate"]),
            (&["--think-drawn"], &["--think-drawn", "--think"]),
            (&["--rate=5"], &["--rate", "--duration"]),
        ] {
            let Both { phases, pacing } = both(line);
            let error = pacing.check(&phases).unwrap_err().to_string();
            assert!(parts.iter().all(|part| error.contains(part)), "{line:?}: {error}");
        }
        let Both { phases, pacing } =
            both(&["--duration=1s", "--cooldown=1s", "--think=5ms", "--think-drawn"]);
        pacing.check(&phases).unwrap();
        let error = arguments::<Both>("both", &["--rate=fast"]).unwrap_err().to_string();
        assert!(error.contains("--rate") && error.contains("1000..10000"), "{error}");
    }

    #[test]
    fn the_main_phase_lies_between_the_others() {
        let Both { phases, pacing } =
            both(&["--warmup=2s", "--duration=10s", "--cooldown=3s", "--rate=5,9@1s"]);
        let timetable = phases.timetable(pacing.rate);
        assert_eq!(timetable.main_us(), 2_000_000..13_000_000);
        assert_eq!(timetable.whole(), Some(Duration::from_secs(16)));
        let open = Timetable { cooldown: Duration::ZERO, ..timetable };
        assert_eq!(open.main_us(), 2_000_000..u64::MAX, "nothing begins after it");
        assert_eq!(both(&[]).phases.timetable(None), Timetable::default());
        assert_eq!(
            pacing.shares(&[1, 3]).concat(),
            [("rate", "1.25,2.25@1s".to_owned()), ("rate", "3.75,6.75@1s".to_owned())]
        );
        assert_eq!(both(&[]).pacing.shares(&[1, 3]), [Share::new(), Share::new()]);
    }

    #[test]
    fn think_times_are_constant_or_drawn_around_their_mean() {
        let random = SeededRandom::new(7);
        let constant = both(&["--think=20ms"]).pacing.think_time();
        assert_eq!(constant.draw(&random), Duration::from_millis(20));
        let drawn = both(&["--think=20ms", "--think-drawn"]).pacing.think_time();
        let ms: crate::statistics::Moments =
            (0..20_000).map(|_| 1e3 * drawn.draw(&random).as_secs_f64()).collect();
        // Of the exponential distribution, mean and standard deviation are the same.
        assert!((ms.mean - 20.0).abs() < 1.0 && (ms.variation() - 1.0).abs() < 0.05, "{ms:?}");
    }

    /// What happens, in its order, where the load does this once it has begun.
    async fn order(timetable: Timetable, load: impl AsyncFnOnce(&Notify)) -> Vec<&'static str> {
        let (start, measured, order) = (LoadStart::default(), Notify::new(), Mutex::new(Vec::new()));
        let note = |what| order.lock().push(what);
        let loading = async {
            note("load");
            start.set(Instant::now());
            load(&measured).await;
            note("over");
        };
        let end = async |()| {
            note("end");
            measured.notify_one();
        };
        beside_main(&start, timetable, loading, async || note("begin"), end).await;
        order.into_inner()
    }

    #[tokio::test]
    async fn what_is_beside_a_load_lasts_as_long_as_its_main_phase() {
        let ms = Duration::from_millis(1);
        let all = Timetable { warmup: ms, main: Some(ms), cooldown: ms };
        let within = order(all, async |measured| measured.notified().await).await;
        assert_eq!(within, ["load", "begin", "end", "over"]);
        let only = Timetable { main: Some(ms), ..Timetable::default() };
        assert_eq!(order(only, async |_| ()).await, ["begin", "load", "over", "end"]);
        let long = Timetable { warmup: Duration::from_secs(3_600), ..all };
        assert_eq!(order(long, async |_| ()).await, ["load", "over", "begin", "end"], "it ended early");
    }
}
