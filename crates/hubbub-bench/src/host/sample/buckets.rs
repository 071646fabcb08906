//! The server's own histograms, of the time between two readings of its metrics.

/// Bounds of buckets with how many values are not above them.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Buckets {
    upto: Vec<(f64, f64)>,
    /// All values together.
    pub(crate) sum: f64,
}

impl Buckets {
    /// The histogram `name` in Prometheus text, of all servers that show it there; empty when none does.
    pub(crate) fn parse(metrics: &str, name: &str) -> Self {
        let (start, total) = (format!("{name}_bucket{{le=\""), format!("{name}_sum "));
        let bucket = |line: &str| {
            let (bound, count) = line.strip_prefix(&start)?.split_once("\"} ")?;
            let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().ok()? };
            Some((bound, count.split(' ').next()?.parse().ok()?))
        };
        let sums = metrics.lines().filter_map(|line| line.strip_prefix(&total)?.trim().parse::<f64>().ok());
        let mut upto: Vec<(f64, f64)> = Vec::new();
        for (bound, count) in metrics.lines().filter_map(bucket) {
            match upto.iter_mut().find(|(same, _)| *same == bound) {
                Some((_, all)) => *all += count,
                None => upto.push((bound, count)),
            }
        }
        Self { upto, sum: sums.sum() }
    }

    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let before = |index: usize| earlier.upto.get(index).map_or(0.0, |bucket| bucket.1);
        let upto = self.upto.iter().enumerate();
        Self {
            upto: upto.map(|(index, (bound, count))| (*bound, count - before(index))).collect(),
            sum: self.sum - earlier.sum,
        }
    }

    pub(crate) fn count(&self) -> f64 {
        self.upto.last().map_or(0.0, |bucket| bucket.1)
    }

    /// Their mean, which is exact; 0 when there are none.
    pub(crate) fn mean(&self) -> f64 {
        if self.count() > 0.0 { self.sum / self.count() } else { 0.0 }
    }

    /// A quantile, as if values were spread evenly within their bucket; 0 when there are none. Buckets that double make
    /// it wrong by up to half.
    pub(crate) fn quantile(&self, quantile: f64) -> f64 {
        let wanted = quantile * self.count();
        let (mut bound_below, mut below) = (0.0, 0.0);
        for (bound, upto) in &self.upto {
            if *upto >= wanted && *upto > below {
                if bound.is_infinite() {
                    return bound_below;
                }
                return bound_below + (bound - bound_below) * (wanted - below) / (upto - below);
            }
            (bound_below, below) = (*bound, *upto);
        }
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const METRICS: &str = "x_bucket{le=\"1.0\"} 2\nx_bucket{le=\"2.0\"} 6\nx_bucket{le=\"4.0\"} 6\n\
        x_bucket{le=\"+Inf\"} 10\nx_sum 29.0\nx_count 10\n";

    #[test]
    fn quantiles_lie_within_their_bucket() {
        let buckets = Buckets::parse(METRICS, "x");
        assert_eq!((buckets.count(), buckets.mean()), (10.0, 2.9));
        assert_eq!([0.1, 0.2, 0.4].map(|q| buckets.quantile(q)), [0.5, 1.0, 1.5]);
        assert_eq!(buckets.quantile(0.99), 4.0, "beyond the last bound nothing more is known");
        assert_eq!(Buckets::parse(METRICS, "y").quantile(0.5), 0.0);
        let two = Buckets::parse(&METRICS.repeat(2), "x");
        assert_eq!((two.count(), two.mean(), two.quantile(0.4)), (20.0, 2.9, 1.5), "two servers");
        assert_eq!(Buckets::parse(METRICS, "y").mean(), 0.0);
    }

    #[test]
    fn what_was_there_before_does_not_count() {
        let later = METRICS.replace(" 6\n", " 9\n").replace(" 10\n", " 13\n").replace("29.0", "35.0");
        let added = Buckets::parse(&later, "x").since(&Buckets::parse(METRICS, "x"));
        assert_eq!((added.count(), added.mean(), added.quantile(0.5)), (3.0, 2.0, 1.5));
    }
}
