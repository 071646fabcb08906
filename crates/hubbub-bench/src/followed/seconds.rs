//! What became of messages that were followed, second by second of a run, and the means of all.

use std::collections::BTreeMap;

use super::{Noted, STEPS, Steps};
use crate::statistics::Moments;

/// Fewer messages say nothing.
pub(super) const LEAST: u64 = 30;
/// Later ones count as one.
const SECONDS_MAX: u64 = 3_600;

/// What was found out of messages answered in each second of the run.
#[derive(Debug, Default)]
pub(super) struct Seconds(BTreeMap<u64, Second>);

/// Milliseconds of each step, and of all from the send on.
#[derive(Debug, Default)]
struct Second {
    steps: [Moments; STEPS],
    rest: Moments,
}

/// Means in milliseconds of the messages that were followed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Means {
    pub(crate) count: u64,
    /// In the client; until a server took it from its queue; in the store; until the server of its subscribers knew of it; until
    /// the connection of the sender was told, or those of subscribers took it; until it was read there.
    pub(crate) steps: Steps,
    /// All but the one in the client, which knows that of every message: in an open loop that is behind it hides all others.
    pub(crate) rest: f64,
    /// Standard error of `rest`; `None` where no second had two messages, whose difference would tell it.
    pub(crate) error: Option<f64>,
}

impl Seconds {
    pub(super) fn add(&mut self, noted: &Noted, steps: Steps) {
        let second = self.0.entry((noted.answered_us / 1_000_000).min(SECONDS_MAX)).or_default();
        second.rest.add(steps.iter().skip(1).sum());
        second.steps.iter_mut().zip(steps).for_each(|(moments, ms)| moments.add(ms));
    }

    /// `None` where there are too few. They are asked about at one rate, whatever that of the run: so each second has the
    /// weight of all messages that `answered` counts in it.
    pub(super) fn means(&self, answered: impl Fn(u64) -> u64) -> Option<Means> {
        let count: u64 = self.0.values().map(|second| second.rest.count).sum();
        let answered = |second: u64| {
            let seconds = if second < SECONDS_MAX { second..second + 1 } else { second..86_400 };
            seconds.map(&answered).sum::<u64>() as f64
        };
        let weighed: Vec<_> = self.0.iter().map(|(at, second)| (answered(*at), second)).collect();
        let all: f64 = weighed.iter().map(|(weight, _)| weight).sum();
        if count < LEAST || all <= 0.0 {
            return None;
        }
        let mean = |of: &dyn Fn(&Second) -> f64| {
            weighed.iter().map(|(weight, second)| weight / all * of(second)).sum::<f64>()
        };
        let step = |step: usize| mean(&|second| second.steps.get(step).map_or(0.0, |step| step.mean));
        // One message alone shows no variance; it has that of the others.
        let freedom = count.saturating_sub(weighed.len() as u64);
        let squares: f64 = weighed.iter().map(|(_, second)| second.rest.squares).sum();
        let variance = squares / freedom as f64;
        let error =
            |(weight, second): &(f64, &Second)| (weight / all).powi(2) * variance / second.rest.count as f64;
        let error = || weighed.iter().map(error).sum::<f64>().sqrt();
        Some(Means {
            count,
            steps: std::array::from_fn(step),
            rest: mean(&|second| second.rest.mean),
            error: (freedom > 0).then(error),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::followed::tests::noted;

    #[test]
    fn few_say_nothing() {
        let mut seconds = Seconds::default();
        (1..LEAST).for_each(|_| seconds.add(&noted(0), [0.1, 0.2, 0.3, 0.2, 0.2, 0.5]));
        assert_eq!(seconds.means(|_| 1), None);
        seconds.add(&noted(0), [0.1, 0.2, 0.3, 0.2, 0.2, 0.5]);
        let means = seconds.means(|_| 1).unwrap();
        assert!(
            (means.rest - 1.4).abs() < 1e-9 && means.error.unwrap() < 1e-9 && means.count == LEAST,
            "{means:?}"
        );
    }

    #[test]
    fn each_second_weighs_as_much_as_it_had_messages() {
        let mut seconds = Seconds::default();
        let at = |answered_us| Noted { answered_us, ..noted(0) };
        for noise in [-1.0, 1.0].repeat(20) {
            seconds.add(&at(500_000), [0.0, 10.0 + noise, 0.0, 0.0, 0.0, 0.0]);
            seconds.add(&at(1_500_000), [0.0, 20.0 + noise, 0.0, 0.0, 0.0, 0.0]);
        }
        let means = seconds.means(|second| [100, 300].get(second as usize).copied().unwrap_or(0)).unwrap();
        assert!((means.rest - 17.5).abs() < 1e-9 && (means.steps[1] - 17.5).abs() < 1e-9, "{means:?}");
        // Not the variance between seconds.
        let wanted = ((0.25_f64.powi(2) + 0.75_f64.powi(2)) * (80.0 / 78.0) / 40.0).sqrt();
        assert!((means.error.unwrap() - wanted).abs() < 1e-9, "{means:?}");
    }

    #[test]
    fn one_message_in_each_second_shows_no_variance() {
        let mut seconds = Seconds::default();
        for second in 0..LEAST {
            seconds.add(
                &Noted { answered_us: second * 1_000_000, ..noted(0) },
                [0.0, second as f64, 0.0, 0.0, 0.0, 0.0],
            );
        }
        assert_eq!(seconds.means(|_| 1).unwrap().error, None);
        seconds.add(&noted(0), [0.0, 2.0, 0.0, 0.0, 0.0, 0.0]);
        assert!(seconds.means(|_| 1).unwrap().error.is_some_and(|error| error > 0.0));
    }
}
