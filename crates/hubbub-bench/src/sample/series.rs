//! How figures go over a run: before, meanwhile and after.

use std::collections::BTreeSet;

use serde::Serialize;

use super::SystemSample;

/// Shown first, in this order; the others follow by name.
const FIRST: [&str; 7] =
    ["postgres CPU", "postgres MiB", "connections", "disk writes/s", "published/s", "stored/s", "server MiB"];

/// Before, average, peak and after of one figure.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct SeriesSummary {
    pub(crate) name: String,
    pub(crate) before: f64,
    pub(crate) average: f64,
    pub(crate) peak: f64,
    pub(crate) after: f64,
}

/// When messages were under way, in seconds of the samples.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Span {
    pub(crate) from_s: f64,
    pub(crate) to_s: f64,
}

impl Span {
    /// The samples that saw nothing but this time; where there are none, all that saw some of it.
    pub(crate) fn of<'a>(&self, samples: &'a [SystemSample]) -> &'a [SystemSample] {
        let begins = |index: usize| {
            index.checked_sub(1).and_then(|i| samples.get(i)).map_or(0.0, |sample| sample.at_s)
        };
        let first = (0..samples.len()).find(|index| begins(*index) >= self.from_s).unwrap_or(samples.len());
        let end = samples.iter().take_while(|sample| sample.at_s <= self.to_s).count();
        let whole = samples.get(first..end.max(first)).unwrap_or_default();
        if !whole.is_empty() {
            return whole;
        }
        let first = samples.iter().take_while(|sample| sample.at_s <= self.from_s).count();
        let end = (0..samples.len()).take_while(|index| begins(*index) < self.to_s).count();
        samples.get(first..end.max(first)).unwrap_or_default()
    }
}

/// The figure `name` at each sample that saw it.
pub(crate) fn values(samples: &[SystemSample], name: &str) -> Vec<f64> {
    samples.iter().filter_map(|sample| sample.values.get(name).copied()).collect()
}

/// Their mean; 0 when there are none.
fn mean_of(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// The mean of the figure `name` over samples that follow each other; `None` where none saw it.
pub(crate) fn average(samples: &[SystemSample], name: &str) -> Option<f64> {
    let values = values(samples, name);
    (!values.is_empty()).then(|| mean_of(&values))
}

/// A summary of each figure. Before is the last sample before `span`, after the last one of all.
pub(crate) fn summaries(samples: &[SystemSample], span: &Span) -> Vec<SeriesSummary> {
    let names: BTreeSet<&String> = samples.iter().flat_map(|sample| sample.values.keys()).collect();
    let mut summaries: Vec<SeriesSummary> = names
        .into_iter()
        .map(|name| {
            let (all, during) = (values(samples, name), values(span.of(samples), name));
            let early = samples.iter().take_while(|sample| sample.at_s <= span.from_s).count();
            let early = values(samples.get(..early).unwrap_or_default(), name);
            SeriesSummary {
                name: name.clone(),
                before: early.last().or(all.first()).copied().unwrap_or(0.0),
                average: mean_of(&during),
                peak: during.iter().copied().fold(0.0, f64::max),
                after: all.last().copied().unwrap_or(0.0),
            }
        })
        .collect();
    summaries
        .sort_by_key(|series| FIRST.iter().position(|first| *first == series.name).unwrap_or(FIRST.len()));
    summaries
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn samples(rates: impl Iterator<Item = f64>) -> Vec<SystemSample> {
        rates
            .zip(1_u32..)
            .map(|(rate, at)| SystemSample {
                at_s: f64::from(at),
                values: BTreeMap::from([("stored/s".to_owned(), rate)]),
            })
            .collect()
    }

    #[test]
    fn a_course_tells_idle_from_load() {
        let samples = samples([1.0, 2.0, 5.0, 9.0, 7.0, 4.0, 3.0].into_iter());
        // From 2.2 to 5.8 the samples at 4 and 5 saw nothing but load.
        let series = summaries(&samples, &Span { from_s: 2.2, to_s: 5.8 }).remove(0);
        assert_eq!((series.before, series.average, series.peak, series.after), (2.0, 8.0, 9.0, 3.0));
        // Too short for a whole sample.
        let series = summaries(&samples, &Span { from_s: 2.2, to_s: 2.8 }).remove(0);
        assert_eq!((series.before, series.average), (2.0, 5.0));
    }
}
