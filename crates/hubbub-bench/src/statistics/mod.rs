//! Mean and variance of numbers as they come, how sure a mean is, whether means rise or fall, and the median.

pub(crate) mod models;

use serde::{Deserialize, Serialize};

/// Count, mean, and sum of the squared differences from the mean. Adding is after B. P. Welford, Technometrics 4 (1962),
/// page 419; merging after T. F. Chan, G. H. Golub and R. J. LeVeque, The American Statistician 37 (1983), page 242.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Moments {
    pub(crate) count: u64,
    pub(crate) mean: f64,
    pub(crate) squares: f64,
}

impl Moments {
    pub(crate) fn add(&mut self, value: f64) {
        self.count += 1;
        let off = value - self.mean;
        self.mean += off / self.count as f64;
        self.squares += off * (value - self.mean);
    }

    /// Adds all that another one has seen.
    pub(crate) fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        let (own, others) = (self.count as f64, other.count as f64);
        let (all, off) = (own + others, other.mean - self.mean);
        self.count += other.count;
        self.mean += off * others / all;
        self.squares += other.squares + off * off * own * others / all;
    }

    /// Sample variance; 0 with fewer than two numbers.
    pub(crate) fn variance(&self) -> f64 {
        if self.count > 1 { self.squares / (self.count - 1) as f64 } else { 0.0 }
    }

    /// The standard deviation as a share of the mean; 0 where that is 0.
    pub(crate) fn variation(&self) -> f64 {
        if self.mean == 0.0 { 0.0 } else { self.variance().sqrt() / self.mean }
    }
}

impl FromIterator<f64> for Moments {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        let mut moments = Self::default();
        values.into_iter().for_each(|value| moments.add(value));
        moments
    }
}

/// The middle value; of an even count the mean of the two in the middle, and 0 of none.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let before = if sorted.len().is_multiple_of(2) { middle.saturating_sub(1) } else { middle };
    let both: Moments = sorted.get(before..=middle).unwrap_or_default().iter().copied().collect();
    both.mean
}

/// Fewest means that a trend is drawn through, or that say how alike neighbours are.
pub(crate) const MEANS_MIN: usize = 5;

/// Half the width of the 95 % interval of the mean of numbers, which may be means that follow each other in time: Student's t, where neighbours
/// that are alike (`correlation`, see [`correlation_of`]) count as fewer, n(1 − ρ)/(1 + ρ): C. E. Leith, Journal of Applied
/// Meteorology 12 (1973), page 1066. `None` with fewer than two, and where neighbours are too alike.
pub(crate) fn half_width(means: &[f64], correlation: f64) -> Option<f64> {
    if means.len() < 2 || correlation > CORRELATION_MAX {
        return None;
    }
    let alike = correlation.max(0.0);
    let all = means.len() as f64;
    let counted = all * (1.0 - alike) / (1.0 + alike);
    let variance = means.iter().copied().collect::<Moments>().variance();
    Some(student_t_975(all - 1.0) * (variance / counted).sqrt())
}

/// Beyond this, a handful of means counts as three or fewer, and its own estimate of the correlation is too unsure: the
/// interval would be narrower than it says.
const CORRELATION_MAX: f64 = 0.5;

/// How alike neighbours are in series of the same length: the autocorrelation at a lag of one, over all of them, each about
/// its own mean, without the bias that short series have: M. G. Kendall, Biometrika 41 (1954), page 403. 0 where there is
/// nothing to tell.
pub(crate) fn correlation_of(series: &[Vec<f64>]) -> f64 {
    let (mut together, mut squares, mut lengths) = (0.0, 0.0, Moments::default());
    for values in series.iter().filter(|values| values.len() >= MEANS_MIN) {
        let moments: Moments = values.iter().copied().collect();
        let off = |value: &f64| value - moments.mean;
        together += values.iter().zip(values.iter().skip(1)).map(|(a, b)| off(a) * off(b)).sum::<f64>();
        squares += moments.squares;
        lengths.add(values.len() as f64);
    }
    if squares <= 0.0 {
        return 0.0;
    }
    let n = lengths.mean;
    (n * together / squares + 1.0) / (n - 3.0)
}

/// How a figure changes from the first to the last of means that follow each other in time, with a 95 % confidence interval:
/// a line by least squares, and Student's t. The interval takes the means for independent of each other, so they should be
/// those of several seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Slope {
    /// The mean, in the figure's own unit.
    pub(crate) mean: f64,
    /// The change in the figure's own unit, and its bounds.
    pub(crate) change: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Slope {
    /// `None` with fewer than five means.
    pub(crate) fn through(means: &[f64]) -> Option<Self> {
        if means.len() < MEANS_MIN {
            return None;
        }
        let n = means.len() as f64;
        let (mean_x, mean) = ((n - 1.0) / 2.0, means.iter().copied().collect::<Moments>().mean);
        let centred = |index: usize| index as f64 - mean_x;
        let sxx: f64 = (0..means.len()).map(|index| centred(index).powi(2)).sum();
        let sxy: f64 = means.iter().enumerate().map(|(index, y)| centred(index) * (y - mean)).sum();
        let slope = sxy / sxx;
        let residuals: f64 =
            means.iter().enumerate().map(|(index, y)| (y - mean - slope * centred(index)).powi(2)).sum();
        let spread = student_t_975(n - 2.0) * (residuals / (n - 2.0) / sxx).sqrt();
        let whole = |slope: f64| slope * (n - 1.0);
        Some(Self { mean, change: whole(slope), low: whole(slope - spread), high: whole(slope + spread) })
    }

    /// The same over means of `width` values each; what is left at the end does not count.
    pub(crate) fn of(values: &[f64], width: usize) -> Option<Self> {
        let mean = |values: &[f64]| values.iter().copied().collect::<Moments>().mean;
        Self::through(&values.chunks_exact(width.max(1)).map(mean).collect::<Vec<_>>())
    }

    /// A part of the mean, in percent.
    pub(crate) fn percent(&self, value: f64) -> f64 {
        if self.mean == 0.0 { 0.0 } else { 100.0 * value / self.mean }
    }
}

/// The 97.5 % quantile of Student's t with `nu` degrees of freedom, 1 or more: Abramowitz and Stegun, Handbook of
/// Mathematical Functions, 26.7.5. Within 1 % at 2, better with more. The quantile of the crate statrs does not end with
/// very many. Below 2 it is that of 1, exactly.
pub(crate) fn student_t_975(nu: f64) -> f64 {
    const Z: f64 = 1.959_963_985;
    const ALONE: f64 = 12.706_204_736;
    if nu < 2.0 {
        return ALONE;
    }
    let g1 = (Z.powi(3) + Z) / 4.0;
    let g2 = (5.0 * Z.powi(5) + 16.0 * Z.powi(3) + 3.0 * Z) / 96.0;
    let g3 = (3.0 * Z.powi(7) + 19.0 * Z.powi(5) + 17.0 * Z.powi(3) - 15.0 * Z) / 384.0;
    let g4 = (79.0 * Z.powi(9) + 776.0 * Z.powi(7) + 1_482.0 * Z.powi(5) - 1_920.0 * Z.powi(3) - 945.0 * Z)
        / 92_160.0;
    Z + g1 / nu + g2 / nu.powi(2) + g3 / nu.powi(3) + g4 / nu.powi(4)
}

#[cfg(test)]
mod tests {
    use hubbub_core::clock::{RandomSource, SeededRandom};

    use super::*;

    #[test]
    fn parts_that_are_merged_are_the_whole() {
        let values: Vec<f64> = (0..100).map(|i| f64::from(i * i % 37)).collect();
        let whole: Moments = values.iter().copied().collect();
        let mut merged = Moments::default();
        for part in [&values[..1], &[], &values[1..40], &values[40..]] {
            merged.merge(&part.iter().copied().collect());
        }
        let mean = values.iter().sum::<f64>() / 100.0;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / 99.0;
        for moments in [whole, merged] {
            assert_eq!(moments.count, 100);
            assert!((moments.mean - mean).abs() < 1e-9, "{moments:?}");
            assert!((moments.variance() - variance).abs() < 1e-9, "{moments:?}");
        }
        assert!((whole.variation() - variance.sqrt() / mean).abs() < 1e-12);
        assert_eq!((Moments::default().variance(), Moments::default().variation()), (0.0, 0.0));
        // Where the differences are tiny beside the mean, sums of squares would lose them.
        let far: Moments = [1e9 + 1.0, 1e9 + 2.0, 1e9 + 3.0].into_iter().collect();
        assert_eq!(far.variance(), 1.0);
    }

    #[test]
    fn a_slope_is_told_from_noise() {
        let falling: Vec<f64> = (0..100).map(|i| 1_000.0 - f64::from(i)).collect();
        let slope = Slope::of(&falling, 1).unwrap();
        assert!((slope.change + 99.0).abs() < 1e-6 && (slope.mean - 950.5).abs() < 1e-6, "{slope:?}");
        assert!(slope.high < -98.9, "{slope:?}");
        assert!((slope.percent(slope.change) + 10.416).abs() < 1e-3);
        let tens = Slope::of(&falling, 10).unwrap();
        assert!(
            (tens.change + 90.0).abs() < 1e-6,
            "from the middle of the first ten to that of the last: {tens:?}"
        );
        let noise: Vec<f64> = (0..100).map(|i| 1_000.0 + f64::from(i % 7)).collect();
        let noise = Slope::of(&noise, 1).unwrap();
        assert!(noise.low < 0.0 && noise.high > 0.0 && noise.high - noise.low < 10.0, "{noise:?}");
        assert_eq!(Slope::of(&falling[..49], 10), None, "four means");
    }

    #[test]
    fn the_interval_of_a_slope_is_that_of_the_textbook() {
        // y = 2, 4, 5, 4, 5 over x = 1 … 5: slope 0.6, standard error 0.2828, t(3) = 3.182, four steps.
        let slope = Slope::through(&[2.0, 4.0, 5.0, 4.0, 5.0]).unwrap();
        assert!((slope.change - 2.4).abs() < 1e-9, "{slope:?}");
        assert!((slope.high - (0.6 + 3.182 * 0.282_84) * 4.0).abs() < 0.03, "{slope:?}");
    }

    #[test]
    fn a_median_is_in_the_middle() {
        for (values, middle) in [
            (&[][..], 0.0),
            (&[3.0], 3.0),
            (&[9.0, 2.0], 5.5),
            (&[9.0, 1.0, 2.0], 2.0),
            (&[9.0, 1.0, 2.0, 4.0], 3.0),
        ] {
            assert_eq!(median(values), middle, "{values:?}");
        }
    }

    #[test]
    fn the_interval_is_that_of_the_textbook() {
        // Variance 2.5, t(4) = 2.776.
        let means = [1.0, 2.0, 3.0, 4.0, 5.0];
        let half = half_width(&means, -0.5).unwrap();
        assert!((half / (2.776 * 0.5_f64.sqrt()) - 1.0).abs() < 0.01, "{half}");
        assert!(half_width(&means, 0.3).unwrap() > half, "alike ones count as fewer");
        assert_eq!(half_width(&means[..1], 0.0), None);
        assert!(half_width(&means, 0.5).is_some());
        assert_eq!(half_width(&means, 0.51), None, "too alike");
        for (nu, t) in [(2.0, 4.303), (3.0, 3.182), (5.0, 2.571), (10.0, 2.228), (30.0, 2.042), (1e9, 1.960)]
        {
            assert!((student_t_975(nu) / t - 1.0).abs() < 0.01, "{nu}: {}", student_t_975(nu));
        }
    }

    /// Of 2,000 series whose neighbours are alike, about 1,900 intervals hold the truth; as if they were not, far fewer do.
    #[test]
    fn intervals_hold_the_truth_though_neighbours_are_alike() {
        let random = SeededRandom::new(5);
        let uniform = || (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64 - 0.5;
        for alike in [0.0, 0.4] {
            let series: Vec<Vec<f64>> = (0..2_000)
                .map(|_| {
                    let mut last = 0.0;
                    // The first ones are forgotten.
                    let next = |_| {
                        last = alike * last + uniform();
                        last
                    };
                    (0..30).map(next).skip(20).collect()
                })
                .collect();
            let found = correlation_of(&series);
            assert!((found - alike).abs() < 0.06, "{found} is {alike}");
            let held = |correlation| {
                let holds = |means: &&Vec<f64>| {
                    let mean = means.iter().sum::<f64>() / means.len() as f64;
                    mean.abs() <= half_width(means, correlation).unwrap()
                };
                series.iter().filter(holds).count()
            };
            assert!((1_820..=1_950).contains(&held(found)), "{alike}: {} of 2,000", held(found));
            assert!(alike == 0.0 || held(0.0) < 1_700, "{}", held(0.0));
        }
        assert_eq!(correlation_of(&[vec![1.0; 10]]), 0.0);
        assert_eq!(correlation_of(&[]), 0.0);
    }
}
