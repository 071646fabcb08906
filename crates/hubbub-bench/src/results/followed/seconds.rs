//! What became of messages that were followed, second by second of a run, and the means of all.

use std::collections::BTreeMap;

use super::{Noted, Steps};

/// Fewer messages say nothing.
pub(super) const LEAST: u64 = 30;
/// Later ones count as one.
const SECONDS_MAX: u64 = 3_600;

/// What was found out of messages answered in each second of the run.
#[derive(Debug, Default)]
pub(super) struct Seconds(BTreeMap<u64, Second>);

/// Means in milliseconds of each step, and of all from the send on, by the weights of messages; added after D. H. D. West,
/// Communications of the ACM 22 (1979), page 532.
#[derive(Debug, Default)]
struct Second {
    count: u64,
    weight: f64,
    /// Sum of the squared weights.
    weights_squared: f64,
    steps: Steps,
    rest: f64,
    /// Sum of the squared differences of the rest from its mean, each by its weight.
    squares: f64,
}

impl Second {
    fn add(&mut self, weight: f64, steps: Steps) {
        self.count += 1;
        self.weight += weight;
        self.weights_squared += weight * weight;
        let share = weight / self.weight;
        self.steps.iter_mut().zip(steps).for_each(|(mean, ms)| *mean += share * (ms - *mean));
        let rest: f64 = steps.iter().skip(1).sum();
        let off = rest - self.rest;
        self.rest += share * off;
        self.squares += weight * off * (rest - self.rest);
    }

    /// As many messages of one weight would tell its mean as well as these.
    fn effective_count(&self) -> f64 {
        self.weight * self.weight / self.weights_squared
    }
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
    /// Standard error of `rest`; `None` where nothing tells the variance.
    pub(crate) error: Option<f64>,
}

impl Seconds {
    /// `weight` is how often all that are counted count this message.
    pub(super) fn add(&mut self, noted: &Noted, weight: f64, steps: Steps) {
        self.0.entry((noted.answered_us / 1_000_000).min(SECONDS_MAX)).or_default().add(weight, steps);
    }

    /// `None` where there are too few. They are asked about at one rate, whatever that of the run: so each second has the
    /// weight of all messages that `answered` counts in it.
    ///
    /// `variance` is that of the rest of all messages, in square milliseconds, where it is known: few messages that are very slow
    /// may be missing among those that were followed, which then seem to differ less than all do.
    pub(super) fn means(&self, answered: impl Fn(u64) -> u64, variance: Option<f64>) -> Option<Means> {
        let count: u64 = self.0.values().map(|second| second.count).sum();
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
        let step = |step: usize| mean(&|second| second.steps.get(step).copied().unwrap_or(0.0));
        // One message alone shows no variance; it has that of the others.
        let freedom = count.saturating_sub(weighed.len() as u64);
        let own = || {
            let squares: f64 = weighed.iter().map(|(_, second)| second.squares).sum();
            let weights: f64 = weighed.iter().map(|(_, second)| second.weight).sum();
            squares / weights * count as f64 / freedom as f64
        };
        let own = (freedom > 0).then(own);
        let variance = own.into_iter().chain(variance).reduce(f64::max);
        let share = |(weight, second): &(f64, &Second)| (weight / all).powi(2) / second.effective_count();
        let shares: f64 = weighed.iter().map(share).sum();
        Some(Means {
            count,
            steps: std::array::from_fn(step),
            rest: mean(&|second| second.rest),
            error: variance.map(|variance| (variance * shares).sqrt()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::followed::tests::noted;

    #[test]
    fn few_say_nothing() {
        let mut seconds = Seconds::default();
        (1..LEAST).for_each(|_| seconds.add(&noted(0), 1.0, [0.1, 0.2, 0.3, 0.2, 0.2, 0.5]));
        assert_eq!(seconds.means(|_| 1, None), None);
        seconds.add(&noted(0), 1.0, [0.1, 0.2, 0.3, 0.2, 0.2, 0.5]);
        let means = seconds.means(|_| 1, None).unwrap();
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
            seconds.add(&at(500_000), 1.0, [0.0, 10.0 + noise, 0.0, 0.0, 0.0, 0.0]);
            seconds.add(&at(1_500_000), 1.0, [0.0, 20.0 + noise, 0.0, 0.0, 0.0, 0.0]);
        }
        let means =
            seconds.means(|second| [100, 300].get(second as usize).copied().unwrap_or(0), None).unwrap();
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
                1.0,
                [0.0, second as f64, 0.0, 0.0, 0.0, 0.0],
            );
        }
        assert_eq!(seconds.means(|_| 1, None).unwrap().error, None);
        seconds.add(&noted(0), 1.0, [0.0, 2.0, 0.0, 0.0, 0.0, 0.0]);
        assert!(seconds.means(|_| 1, None).unwrap().error.is_some_and(|error| error > 0.0));
    }

    /// What three subscribers read late counts three times.
    #[test]
    fn messages_weigh_as_much_as_they_are_counted() {
        let mut seconds = Seconds::default();
        for _ in 0..LEAST {
            seconds.add(&noted(0), 1.0, [0.0, 1.0, 0.0, 0.0, 0.0, 1.0]);
            seconds.add(&noted(0), 3.0, [0.0, 5.0, 0.0, 0.0, 0.0, 1.0]);
        }
        let means = seconds.means(|_| 1, None).unwrap();
        assert!((means.rest - 5.0).abs() < 1e-9 && (means.steps[1] - 4.0).abs() < 1e-9, "{means:?}");
        // A quarter is 3 ms below the mean, and three quarters 1 ms above it; 120² / 300 = 48 would tell as much as these.
        let wanted = (3.0 * (60.0 / 59.0) / 48.0_f64).sqrt();
        assert!((means.error.unwrap() - wanted).abs() < 1e-9, "{means:?}");
    }

    #[test]
    fn slow_messages_that_none_of_these_is_make_the_mean_unsure() {
        let mut seconds = Seconds::default();
        (0..100).for_each(|_| seconds.add(&noted(0), 1.0, [0.0, 1.0, 0.0, 0.0, 0.0, 0.0]));
        let error = |variance| seconds.means(|_| 1, variance).unwrap().error;
        assert_eq!((error(None), error(Some(25.0))), (Some(0.0), Some(0.5)));
    }
}
