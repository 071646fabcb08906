//! The Universal Scalability Law: X(N) = λN / (1 + σ(N − 1) + κN(N − 1)).
//!
//! λ is the rate of one, σ the share that has to wait for the others (contention), κ the cost of agreeing with each of them
//! (coherency). N. J. Gunther, Guerrilla Capacity Planning, Springer 2007, chapter 5. The start is his transformation, a
//! parabola through N/X; then Gauss and Newton make the squares of the residuals of X least, as the package `usl` of R does.

use serde::{Deserialize, Serialize};

use super::least_squares::{Fit, Observation};

/// A figure with its 95 % interval, if the measurements tell one. It supposes that rates scatter alike at every N.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Estimate {
    pub(crate) value: f64,
    pub(crate) interval: Option<[f64; 2]>,
}

/// A law that was fitted.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Usl {
    pub(crate) lambda: Estimate,
    pub(crate) sigma: Estimate,
    pub(crate) kappa: Estimate,
    /// The predicted maximum; `None` where the law has none.
    pub(crate) maximum: Option<Estimate>,
    /// Where it is reached; `None` where it is only approached.
    pub(crate) peak: Option<Estimate>,
    /// The knee: where λN, as if nobody waited, would reach the maximum. Fewer are worth adding to, more hardly.
    pub(crate) knee: Option<Estimate>,
    /// The maximum lies beyond what was measured.
    pub(crate) is_extrapolated: bool,
}

/// λ, σ and κ.
type Parameters = [f64; 3];

/// Steps of Gauss and Newton, each halved up to [`HALVINGS`] times.
const STEPS: usize = 100;
const HALVINGS: i32 = 30;

impl Usl {
    /// Fits pairs of N and X, repetitions included. `None` with fewer than three different N, or figures that are not
    /// positive.
    pub(crate) fn fit(measured: &[(f64, f64)]) -> Option<Self> {
        let mut different: Vec<f64> = measured.iter().map(|(n, _)| *n).collect();
        different.sort_by(f64::total_cmp);
        different.dedup();
        if different.len() < 3 || measured.iter().any(|(n, x)| !(*n > 0.0 && *x > 0.0)) {
            return None;
        }
        // A law whose σ or κ would be negative is fitted again without it: what cannot be is noise. So is one that cannot be
        // fitted at all.
        let mut used = [true; 3];
        let (parameters, fit) = loop {
            let Some((parameters, fit)) = descend(measured, used) else {
                used = match used {
                    [_, _, true] => [true, used[1], false],
                    [_, true, false] => [true, false, false],
                    [_, false, false] => return None,
                };
                continue;
            };
            let [_, sigma, kappa] = parameters;
            match (sigma < 0.0, kappa < 0.0) {
                (false, false) => break (parameters, fit),
                (_, true) => used = [true, used[1], false],
                (true, false) => used = [true, false, used[2]],
            }
        };
        let largest = different.last().copied().unwrap_or(0.0);
        Some(Self::of(parameters, used, &fit, largest))
    }

    fn of(parameters: Parameters, used: [bool; 3], fit: &Fit, largest: f64) -> Self {
        let estimate = |figure: &dyn Fn(Parameters) -> Option<f64>| estimate(parameters, used, fit, figure);
        let peak_of = |parameters: Parameters| peak(parameters);
        let peak = estimate(&peak_of);
        Self {
            lambda: estimate(&|[lambda, _, _]| Some(lambda))
                .unwrap_or(Estimate { value: parameters[0], interval: None }),
            sigma: estimate(&|[_, sigma, _]| Some(sigma))
                .unwrap_or(Estimate { value: parameters[1], interval: None }),
            kappa: estimate(&|[_, _, kappa]| Some(kappa))
                .unwrap_or(Estimate { value: parameters[2], interval: None }),
            maximum: estimate(&maximum),
            knee: estimate(&|parameters| Some(maximum(parameters)? / parameters[0])),
            is_extrapolated: peak.is_none_or(|peak| peak.value > largest),
            peak,
        }
    }

    /// The rate that the law predicts.
    pub(crate) fn rate(&self, n: f64) -> f64 {
        rate([self.lambda.value, self.sigma.value, self.kappa.value], n)
    }
}

fn rate([lambda, sigma, kappa]: Parameters, n: f64) -> f64 {
    lambda * n / (1.0 + sigma * (n - 1.0) + kappa * n * (n - 1.0))
}

fn peak([_, sigma, kappa]: Parameters) -> Option<f64> {
    (kappa > 0.0).then(|| ((1.0 - sigma).max(0.0) / kappa).sqrt().max(1.0))
}

fn maximum(parameters: Parameters) -> Option<f64> {
    let [lambda, sigma, _] = parameters;
    let approached = || (sigma > 0.0).then(|| lambda / sigma);
    peak(parameters).map(|n| rate(parameters, n)).or_else(approached)
}

/// How the rate at `n` changes with the parameters that are used.
fn derivatives([lambda, sigma, kappa]: Parameters, used: [bool; 3], n: f64) -> Vec<f64> {
    let below = 1.0 + sigma * (n - 1.0) + kappa * n * (n - 1.0);
    let waiting = -lambda * n * (n - 1.0) / (below * below);
    let all = [n / below, waiting, waiting * n];
    all.into_iter().zip(used).filter_map(|(one, is_used)| is_used.then_some(one)).collect()
}

/// `steps` of the parameters that are used, added to all of them.
fn moved(parameters: Parameters, used: [bool; 3], steps: &[f64], share: f64) -> Parameters {
    let mut steps = steps.iter();
    let mut moved = parameters;
    for (parameter, is_used) in moved.iter_mut().zip(used) {
        if is_used {
            *parameter += share * steps.next().copied().unwrap_or(0.0);
        }
    }
    moved
}

fn squares(measured: &[(f64, f64)], parameters: Parameters) -> f64 {
    measured.iter().map(|(n, x)| (x - rate(parameters, *n)).powi(2)).sum()
}

/// N/X = a + b(N − 1) + cN(N − 1), so λ = 1/a, σ = b/a, κ = c/a.
fn start(measured: &[(f64, f64)], used: [bool; 3]) -> Option<Parameters> {
    let observation = |(n, x): &(f64, f64)| {
        let columns = [1.0, n - 1.0, n * (n - 1.0)].into_iter().zip(used);
        Observation {
            columns: columns.filter_map(|(one, is_used)| is_used.then_some(one)).collect(),
            seen: n / x,
        }
    };
    let fit = Fit::of(&measured.iter().map(observation).collect::<Vec<_>>())?;
    let [a, b, c] = moved([0.0; 3], used, &fit.coefficients, 1.0);
    // A parabola that begins below 0 is no law at all.
    Some(if a > 0.0 {
        [1.0 / a, b / a, c / a]
    } else {
        [measured.iter().map(|(n, x)| x / n).fold(0.0, f64::max), 0.0, 0.0]
    })
}

/// The parameters with the least squares, and the linear fit there.
fn descend(measured: &[(f64, f64)], used: [bool; 3]) -> Option<(Parameters, Fit)> {
    let mut parameters = start(measured, used)?;
    for _ in 0..STEPS {
        let fit = step(measured, parameters, used)?;
        let before = squares(measured, parameters);
        let shares = (0..HALVINGS).map(|halving| 0.5_f64.powi(halving));
        let better = shares.map(|share| moved(parameters, used, &fit.coefficients, share));
        let Some(next) = better.into_iter().find(|next| squares(measured, *next) < before) else { break };
        let is_done = before - squares(measured, next) <= 1e-14 * before;
        parameters = next;
        if is_done {
            break;
        }
    }
    Some((parameters, step(measured, parameters, used)?))
}

fn step(measured: &[(f64, f64)], parameters: Parameters, used: [bool; 3]) -> Option<Fit> {
    let observation = |(n, x): &(f64, f64)| Observation {
        columns: derivatives(parameters, used, *n),
        seen: x - rate(parameters, *n),
    };
    Fit::of(&measured.iter().map(observation).collect::<Vec<_>>())
}

/// A figure of the parameters, with the interval that theirs give it to first order.
fn estimate(
    parameters: Parameters,
    used: [bool; 3],
    fit: &Fit,
    figure: &dyn Fn(Parameters) -> Option<f64>,
) -> Option<Estimate> {
    let value = figure(parameters)?;
    let mut slopes = Vec::new();
    for (index, _) in used.iter().enumerate().filter(|(_, is_used)| **is_used) {
        let width = 1e-6 * parameters.get(index).map_or(0.0, |one| one.abs()).max(1e-9);
        let at = |offset: f64| {
            let mut other = parameters;
            other.iter_mut().skip(index).take(1).for_each(|one| *one += offset);
            figure(other)
        };
        slopes.push((at(width)? - at(-width)?) / (2.0 * width));
    }
    let interval = fit.half_width(&slopes).map(|half| [value - half, value + half]);
    Some(Estimate { value, interval })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// B. Schwartz, Practical Scalability Analysis with the Universal Scalability Law, 2015: a Cisco router, with what R
    /// fits to it.
    const ROUTER: [f64; 32] = [
        955.16, 1878.91, 2688.01, 3548.68, 4315.54, 5130.43, 5931.37, 6531.08, 7219.8, 7867.61, 8278.71,
        8646.7, 9047.84, 9426.55, 9645.37, 9897.24, 10097.6, 10240.5, 10532.39, 10798.52, 11151.43, 11518.63,
        11806.0, 12089.37, 12075.41, 12177.29, 12211.41, 12158.93, 12155.27, 12118.04, 12140.4, 12074.39,
    ];

    fn is_near(found: f64, wanted: f64, share: f64) -> bool {
        (found / wanted - 1.0).abs() < share
    }

    #[test]
    fn the_published_router_has_its_published_law() {
        let measured: Vec<(f64, f64)> = (1_u8..).map(f64::from).zip(ROUTER).collect();
        let law = Usl::fit(&measured).unwrap();
        assert!(is_near(law.lambda.value, 995.6486, 1e-5), "{law:?}");
        assert!(is_near(law.sigma.value, 0.026_715_91, 1e-5), "{law:?}");
        assert!(is_near(law.kappa.value, 7.690_945e-4, 1e-5), "{law:?}");
        // He gives the rate at the whole number below the peak.
        assert_eq!(law.peak.unwrap().value.floor(), 35.0);
        assert!(is_near(law.rate(35.0), 12_341.0, 1e-4), "{law:?}");
        assert_eq!(law.maximum.unwrap().value.round(), 12_343.0);
        assert!(law.is_extrapolated, "32 were measured");
        let [low, high] = law.maximum.unwrap().interval.unwrap();
        assert!(low < 12_341.0 && high > 12_341.0 && high - low < 1_000.0, "{low} {high}");
        assert!(is_near(law.knee.unwrap().value, 12_343.0 / 995.6486, 1e-4));
    }

    /// SPEC SDM91, as in the package `usl` of R: its rates fall from 72 generators on.
    #[test]
    fn a_published_rate_that_falls_has_its_peak_where_it_was_seen() {
        let measured = [
            (1.0, 64.9),
            (18.0, 995.9),
            (36.0, 1652.4),
            (72.0, 1853.2),
            (108.0, 1828.9),
            (144.0, 1775.0),
            (216.0, 1702.2),
        ];
        let law = Usl::fit(&measured).unwrap();
        assert!(is_near(law.lambda.value, 89.9952, 1e-3), "{law:?}");
        assert!(is_near(law.sigma.value, 0.027_729, 1e-3), "{law:?}");
        assert!(is_near(law.kappa.value, 1.044e-4, 1e-3), "{law:?}");
        assert!(!law.is_extrapolated && (law.peak.unwrap().value - 96.5).abs() < 0.5, "{law:?}");
    }

    #[test]
    fn a_law_without_coherency_has_no_peak() {
        let measured = [1.0, 2.0, 4.0, 8.0].map(|n| (n, rate([100.0, 0.25, 0.0], n)));
        let law = Usl::fit(&measured).unwrap();
        assert!(is_near(law.sigma.value, 0.25, 1e-6) && law.kappa.value < 1e-9, "{law:?}");
        // More than proportional: neither contention nor coherency, and no maximum.
        let law = Usl::fit(&[(1.0, 100.0), (2.0, 210.0), (4.0, 430.0), (8.0, 880.0)]).unwrap();
        assert_eq!((law.sigma.value, law.kappa.value, law.peak, law.maximum), (0.0, 0.0, None, None));
        assert!(law.rate(2.0) > 200.0 && law.is_extrapolated);
    }

    /// Of 200 tables with noise of the same size everywhere, some 190 intervals hold what the tables were made with.
    #[test]
    fn intervals_hold_the_truth_as_often_as_they_say() {
        use hubbub_core::clock::{RandomSource, SeededRandom};

        let truth = [1_000.0, 0.05, 0.002];
        let random = SeededRandom::new(17);
        // The sum of twelve is nearly normal.
        let uniform = || (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        let normal = || (0..12).map(|_| uniform()).sum::<f64>() - 6.0;
        let mut held = 0;
        for _ in 0..200 {
            let measured: Vec<(f64, f64)> = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]
                .into_iter()
                .flat_map(|n| [n; 3])
                .map(|n| (n, rate(truth, n) + 100.0 * normal()))
                .collect();
            let [low, high] = Usl::fit(&measured).unwrap().kappa.interval.unwrap();
            held += usize::from(low <= truth[2] && truth[2] <= high);
        }
        assert!((175..=200).contains(&held), "{held} of 200");
    }

    /// However a busy machine scatters them.
    #[test]
    fn any_rates_have_a_law() {
        use hubbub_core::clock::{RandomSource, SeededRandom};

        let random = SeededRandom::new(3);
        for _ in 0..5_000 {
            let rates = [1.0, 2.0, 3.0, 4.0].map(|n| (n, 10_f64.powi((random.next_u64() % 7) as i32 - 1)));
            let law = Usl::fit(&rates).unwrap_or_else(|| panic!("{rates:?}"));
            assert!(
                law.lambda.value > 0.0 && law.sigma.value >= 0.0 && law.kappa.value >= 0.0,
                "{rates:?}: {law:?}"
            );
        }
    }

    #[test]
    fn too_little_is_no_law() {
        assert_eq!(Usl::fit(&[(1.0, 5.0), (1.0, 5.0), (2.0, 9.0)]), None);
        assert_eq!(Usl::fit(&[(1.0, 5.0), (2.0, 0.0), (3.0, 9.0)]), None);
        let law = Usl::fit(&[(1.0, 100.0), (2.0, 180.0), (4.0, 300.0)]).unwrap();
        assert_eq!(law.lambda.interval, None, "three points leave nothing for an interval");
    }
}
