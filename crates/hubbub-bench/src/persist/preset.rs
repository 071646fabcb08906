//! How much is published: as options say, or one of the runs that have a name.

use std::time::Duration;

use anyhow::ensure;
use clap::ValueEnum;
use serde::Serialize;

use super::PersistArgs;
use crate::engine::Loading;

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
pub(crate) fn check(Loading { common, own: args }: &Loading<PersistArgs>) -> anyhow::Result<()> {
    let is_timed = matches!(args.preset, None | Some(Preset::Endurance));
    ensure!(
        is_timed || args.duration.is_none(),
        "--duration goes with --preset endurance only: baseline and stress end with their messages (--messages)"
    );
    ensure!(
        args.preset != Some(Preset::Endurance) || !common.server_pid.is_empty(),
        "an endurance run shows the server's memory: give its process id with --server-pid"
    );
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Plan {
    pub(crate) messages: u64,
    /// Messages per second; `None` = as fast as they are confirmed.
    pub(crate) rate: Option<f64>,
    /// How long, where not the messages say it.
    pub(crate) time: Option<Duration>,
}

impl Plan {
    pub(crate) fn of(args: &PersistArgs) -> Self {
        let messages = args.messages.unwrap_or(match args.preset {
            Some(Preset::Stress) => STRESS,
            _ => BASELINE,
        });
        match (args.rate, args.duration) {
            _ if args.preset == Some(Preset::Endurance) && args.messages.is_none() => {
                Self { time: Some(MAXIMUM_TIME), ..Self::all(u64::MAX) }
            }
            _ if args.preset.is_some() => Self::all(messages),
            (Some(rate), Some(duration)) => Self::at(rate, duration),
            (None, Some(duration)) => Self { time: Some(duration), ..Self::all(u64::MAX) },
            (rate, None) => Self { rate, ..Self::all(messages) },
        }
    }

    pub(crate) fn endurance(args: &PersistArgs, maximum: f64) -> Self {
        Self::at(ENDURANCE_SHARE * maximum, args.duration.unwrap_or(ENDURANCE))
    }

    /// So many, as fast as they are confirmed.
    pub(crate) const fn all(messages: u64) -> Self {
        Self { messages, rate: None, time: None }
    }

    /// How many there will be; 0 where time says it.
    pub(super) fn expected(&self) -> u64 {
        if self.time.is_some() { 0 } else { self.messages }
    }

    fn at(rate: f64, duration: Duration) -> Self {
        Self { messages: (rate * duration.as_secs_f64()) as u64, rate: Some(rate), time: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::arguments;

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
        assert_eq!(Plan::of(&endurance), Plan { time: Some(MAXIMUM_TIME), ..Plan::all(u64::MAX) });
        assert_eq!(plan(&["--preset", "endurance", "-n", "7"]), Plan::all(7));
        let kept_up = Plan::endurance(&endurance, 1_000.0);
        assert_eq!(kept_up, Plan { messages: 720_000, rate: Some(800.0), time: None });
    }

    #[test]
    fn what_a_preset_does_not_heed_is_refused() {
        let is_taken =
            |line: &[&str]| check(&arguments::<Loading<PersistArgs>>("persist", line).unwrap()).is_ok();
        assert!(is_taken(&["--duration", "60s"]));
        assert!(is_taken(&["--preset", "stress", "-n", "7"]));
        assert!(!is_taken(&["--preset", "stress", "--duration", "60s"]));
        assert!(!is_taken(&["--preset", "baseline", "--duration", "60s"]));
        assert!(is_taken(&["--preset", "endurance", "--duration", "60s", "--server-pid", "1"]));
        assert!(!is_taken(&["--preset", "endurance", "--duration", "60s"]));
    }
}
