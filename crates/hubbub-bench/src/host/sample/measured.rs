//! Means of figures over some time, and the rows that are kept of them: a bounded number, however long a run is.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

/// Rows that are kept at most; an even number. It is an hour of seconds; after it a row has two seconds, after two hours four.
const ROWS_MAX: usize = 3_600;

/// The mean of a figure over the time of a row, and the highest mean of the single samples in it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Measured {
    mean: f64,
    peak: f64,
    /// How much the mean counts beside that of another time.
    weight: f64,
}

impl Measured {
    /// The mean over `weight`, which is more than 0: seconds, or what a ratio is divided by.
    pub(super) fn over(weight: f64, mean: f64) -> Self {
        Self { mean, peak: mean, weight }
    }

    pub(crate) fn mean(&self) -> f64 {
        self.mean
    }

    pub(crate) fn peak(&self) -> f64 {
        self.peak
    }

    /// Both times together.
    pub(super) fn with(self, other: Self) -> Self {
        let weight = self.weight + other.weight;
        let mean = (self.mean * self.weight + other.mean * other.weight) / weight;
        Self { mean, peak: self.peak.max(other.peak), weight }
    }
}

/// A figure of one second.
#[cfg(test)]
impl From<f64> for Measured {
    fn from(value: f64) -> Self {
        Self::over(1.0, value)
    }
}

/// As its mean.
impl Serialize for Measured {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(self.mean())
    }
}

/// Figures of server, database and machine over the time since the row before; rates are those of this time.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SystemSample {
    pub(crate) at_s: f64,
    pub(crate) values: BTreeMap<String, Measured>,
    /// Which thread or disk a figure is of that only shows the busiest, by the name of the figure.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) busiest: BTreeMap<String, String>,
}

impl SystemSample {
    /// Takes over the time that follows. The busiest is that of the highest single sample.
    fn merge(&mut self, later: Self) {
        self.at_s = later.at_s;
        let peak = |values: &BTreeMap<String, Measured>, name: &str| values.get(name).map(Measured::peak);
        for (name, busiest) in later.busiest {
            if peak(&later.values, &name) > peak(&self.values, &name) || !self.busiest.contains_key(&name) {
                self.busiest.insert(name, busiest);
            }
        }
        for (name, value) in later.values {
            self.values.entry(name).and_modify(|all| *all = all.with(value)).or_insert(value);
        }
    }
}

/// The rows of a run; all but the last have equally many samples.
#[derive(Debug)]
pub(super) struct History {
    /// Samples of a row, and of the last one.
    width: usize,
    in_last: usize,
    rows: Vec<SystemSample>,
}

impl History {
    pub(super) fn new() -> Self {
        Self { width: 1, in_last: 0, rows: Vec::new() }
    }

    pub(super) fn add(&mut self, sample: SystemSample) {
        if self.in_last < self.width
            && let Some(last) = self.rows.last_mut()
        {
            last.merge(sample);
            self.in_last += 1;
            return;
        }
        if self.rows.len() >= ROWS_MAX {
            self.widen();
        }
        self.rows.push(sample);
        self.in_last = 1;
    }

    /// Makes one row of each two, all of which are complete.
    fn widen(&mut self) {
        self.width = self.width.saturating_mul(2);
        let mut rows = std::mem::take(&mut self.rows).into_iter();
        while let Some(mut row) = rows.next() {
            rows.next().into_iter().for_each(|later| row.merge(later));
            self.rows.push(row);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(super) fn into_rows(self) -> Vec<SystemSample> {
        self.rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at_s: f64, values: &[(&str, Measured)], thread: &str) -> SystemSample {
        SystemSample {
            at_s,
            values: values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
            busiest: [("hottest thread %".to_owned(), thread.to_owned())].into(),
        }
    }

    fn sum_of(value: &Measured) -> f64 {
        value.mean * value.weight
    }

    #[test]
    fn a_long_run_takes_no_more_memory_and_forgets_no_sum_and_no_peak() {
        let mut history = History::new();
        let seconds = 4 * ROWS_MAX + 5;
        for second in 0..seconds {
            let rate = if second == 777 { 5_000.0 } else { (second % 3) as f64 };
            // A ratio that is known in some seconds only: two of them weigh 1 and 9.
            let (weight, mean) = if second % 2 == 0 { (1.0, 10.0) } else { (9.0, 2.0) };
            let mut values = vec![("stored/s", rate.into()), ("hottest thread %", rate.into())];
            if second < 100 {
                values.push(("batch ms", Measured::over(weight, mean)));
            }
            let thread = if second == 777 { "commit" } else { "other" };
            history.add(sample((second + 1) as f64, &values, thread));
        }
        assert_eq!((history.width, history.in_last), (8, 5));
        let rows = history.into_rows();
        assert_eq!(rows.len(), ROWS_MAX / 2 + 1);
        assert_eq!(rows[0].at_s, 8.0);
        assert_eq!(rows.last().unwrap().at_s, seconds as f64);
        let sum: f64 = rows.iter().map(|row| sum_of(&row.values["stored/s"])).sum();
        let wanted: usize = (0..seconds).map(|second| if second == 777 { 5_000 } else { second % 3 }).sum();
        assert!((sum - wanted as f64).abs() < 1e-6, "{sum}");
        let peaks = rows.iter().map(|row| row.values["stored/s"].peak());
        assert_eq!(peaks.fold(0.0, f64::max), 5_000.0);
        let batch_ms = &rows[0].values["batch ms"];
        assert!(
            (batch_ms.mean() - 2.8).abs() < 1e-9,
            "28 for each ten, not the mean of 10 and 2: {batch_ms:?}"
        );
        assert_eq!((sum_of(batch_ms).round(), batch_ms.peak()), (112.0, 10.0));
        assert!(!rows[20].values.contains_key("batch ms"), "what was not known is not known");
        assert_eq!(rows[777 / 8].busiest["hottest thread %"], "commit");
        assert_eq!(rows[0].busiest["hottest thread %"], "other");
    }

    #[test]
    fn a_short_run_has_a_row_for_each_sample() {
        let mut history = History::new();
        assert!(history.is_empty());
        (1..=ROWS_MAX).for_each(|second| history.add(sample(second as f64, &[], "a")));
        let rows = history.into_rows();
        assert_eq!((rows.len(), rows[0].at_s, rows[1].at_s), (ROWS_MAX, 1.0, 2.0));
    }
}
