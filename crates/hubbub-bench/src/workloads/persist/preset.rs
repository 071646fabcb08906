//! How much is published: as options say, or one of the runs that have a name.

use std::time::Duration;

use anyhow::{Context, ensure};
use clap::ValueEnum;
use serde::Serialize;

use super::PersistArgs;
use crate::load::pace::{Rate, Schedule};
use crate::options::Common;

const BASELINE: u64 = 500_000;
const STRESS: u64 = 1_000_000;
const ENDURANCE: Duration = Duration::from_secs(15 * 60);
/// The maximum is measured for so long: a server takes more for a few seconds than it goes on taking.
const MAXIMUM_TIME: Duration = Duration::from_secs(60);
/// Share of the measured maximum that is to be kept up.
const ENDURANCE_SHARE: f64 = 0.8;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Preset {
    /// 500,000 messages as fast as they are confirmed
    Baseline,
    /// 1,000,000 messages as fast as they are confirmed
    Stress,
    /// 15 minutes (--duration) at 80 % of the rate at which messages (--messages) are stored for a minute just before
    Endurance,
}

/// Refuses options that the preset would not heed.
pub(super) fn check(args: &PersistArgs) -> anyhow::Result<()> {
    let is_timed = matches!(args.preset, None | Some(Preset::Endurance));
    ensure!(
        is_timed || args.duration.is_none(),
        "--duration goes with --preset endurance only: baseline and stress end with their messages (--messages)"
    );
    Ok(())
}

/// Refuses a run that shows what it does not know.
pub(super) fn check_watched(args: &PersistArgs, common: &Common) -> anyhow::Result<()> {
    ensure!(
        args.preset != Some(Preset::Endurance) || !common.server_pid.is_empty(),
        "an endurance run shows the server's memory: give its process id with --server-pid"
    );
    Ok(())
}

/// The run that tells the maximum of which an endurance run keeps up a share; `None` for any other run.
pub(super) fn of_maximum(args: &PersistArgs) -> Option<PersistArgs> {
    let duration = args.messages.is_none().then_some(MAXIMUM_TIME);
    let is_endurance = args.preset == Some(Preset::Endurance);
    is_endurance.then(|| PersistArgs { preset: None, duration, warmup_messages: 0, ..args.clone() })
}

/// The run that goes before all others: nobody listens, and nothing is looked at.
pub(super) fn of_warm_up(args: &PersistArgs) -> PersistArgs {
    PersistArgs {
        preset: None,
        messages: Some(args.warmup_messages),
        rate: None,
        duration: None,
        listen: 0,
        around: Duration::ZERO,
        warmup_messages: 0,
        ..args.clone()
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Plan {
    pub(super) messages: u64,
    /// Messages per second; `None` = as fast as they are confirmed.
    pub(super) rate: Option<f64>,
    /// How long, where not the messages say it.
    pub(super) time: Option<Duration>,
}

impl Plan {
    /// Of every run but one of endurance.
    pub(super) fn of(args: &PersistArgs) -> Self {
        let messages = args.messages.unwrap_or(match args.preset {
            Some(Preset::Stress) => STRESS,
            _ => BASELINE,
        });
        match (args.rate, args.duration) {
            _ if args.preset.is_some() => Self::all(messages),
            (Some(rate), Some(duration)) => Self::at(rate, duration),
            (None, Some(duration)) => Self { time: Some(duration), ..Self::all(u64::MAX) },
            (rate, None) => Self { rate, ..Self::all(messages) },
        }
    }

    pub(super) fn endurance(args: &PersistArgs, maximum: f64) -> Self {
        Self::at(ENDURANCE_SHARE * maximum, args.duration.unwrap_or(ENDURANCE))
    }

    /// So many, as fast as they are confirmed.
    const fn all(messages: u64) -> Self {
        Self { messages, rate: None, time: None }
    }

    /// How many there will be; 0 where time says it.
    pub(super) fn expected(&self) -> u64 {
        if self.time.is_some() { 0 } else { self.messages }
    }

    /// Of an open loop that begins `start_us` after the start of the run.
    pub(super) fn schedule(&self, start_us: u64) -> anyhow::Result<Option<Schedule>> {
        let schedule = |rate: f64| {
            // Half a message more, so that rounding leaves none out.
            let time = Duration::try_from_secs_f64((self.messages as f64 + 0.5) / rate);
            let time =
                time.with_context(|| format!("--rate {rate} must be more than 0, and end some day"))?;
            Ok(Schedule::new(Rate::constant(rate), time, start_us))
        };
        self.rate.map(schedule).transpose()
    }

    /// Fails if nothing is left to be drained.
    pub(super) fn check_undrained(&self, stored: u64) -> anyhow::Result<()> {
        ensure!(
            stored < self.messages,
            "the server has stored {stored} messages already: start it anew to drain"
        );
        Ok(())
    }

    fn at(rate: f64, duration: Duration) -> Self {
        Self { messages: (rate * duration.as_secs_f64()) as u64, rate: Some(rate), time: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::arguments;
    use crate::workloads::engine::Loading;

    #[test]
    fn names_stand_for_runs() {
        let args = |line: &[&str]| arguments::<PersistArgs>("persist", line).unwrap();
        let plan = |line: &[&str]| Plan::of(&args(line));
        assert_eq!(plan(&[]), Plan::all(500_000));
        assert_eq!(plan(&["--preset", "stress"]), Plan::all(1_000_000));
        assert_eq!(plan(&["--preset", "baseline", "-n", "7"]), Plan::all(7));
        let timed = plan(&["--rate", "50", "--duration", "10s"]);
        assert_eq!(timed, Plan { messages: 500, rate: Some(50.0), time: None });
        let open_ended = plan(&["--duration", "10s"]);
        assert_eq!((open_ended.time, open_ended.expected()), (Some(Duration::from_secs(10)), 0));
        assert_eq!(timed.expected(), 500);

        let endurance = args(&["--preset", "endurance"]);
        let maximum = |args: &PersistArgs| of_maximum(args).map(|own| Plan::of(&own));
        assert_eq!(maximum(&endurance), Some(Plan { time: Some(MAXIMUM_TIME), ..Plan::all(u64::MAX) }));
        let few = args(&["--preset", "endurance", "-n", "7", "--duration", "1s"]);
        assert_eq!(maximum(&few), Some(Plan::all(7)));
        assert_eq!(maximum(&args(&["--preset", "stress"])), None);
        let warm_up = of_warm_up(&args(&["--rate", "50", "--duration", "10s", "--warmup-messages", "9"]));
        assert_eq!((Plan::of(&warm_up), warm_up.warmup_messages), (Plan::all(9), 0));
        let kept_up = Plan::endurance(&endurance, 1_000.0);
        assert_eq!(kept_up, Plan { messages: 720_000, rate: Some(800.0), time: None });
    }

    #[test]
    fn what_a_preset_does_not_heed_is_refused() {
        let is_taken = |line: &[&str]| {
            let Loading { common, own } = arguments::<Loading<PersistArgs>>("persist", line).unwrap();
            check(&own).and_then(|()| check_watched(&own, &common)).is_ok()
        };
        assert!(is_taken(&["--duration", "60s"]));
        assert!(is_taken(&["--preset", "stress", "-n", "7"]));
        assert!(!is_taken(&["--preset", "stress", "--duration", "60s"]));
        assert!(!is_taken(&["--preset", "baseline", "--duration", "60s"]));
        assert!(is_taken(&["--preset", "endurance", "--duration", "60s", "--server-pid", "1"]));
        assert!(!is_taken(&["--preset", "endurance", "--duration", "60s"]));
    }
}
