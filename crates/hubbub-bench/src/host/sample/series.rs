//! How figures go over a run: before, meanwhile and after.

use std::collections::BTreeSet;

use serde::Serialize;

use super::measured::{Measured, SystemSample};

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
fn measured<'a>(samples: &'a [SystemSample], name: &'a str) -> impl Iterator<Item = Measured> + 'a {
    samples.iter().filter_map(move |sample| sample.values.get(name).copied())
}

/// Its mean in each of these samples.
pub(crate) fn values(samples: &[SystemSample], name: &str) -> Vec<f64> {
    measured(samples, name).map(|value| value.mean()).collect()
}

/// The same over all of these samples; `None` where none saw it.
fn all_of(samples: &[SystemSample], name: &str) -> Option<Measured> {
    measured(samples, name).reduce(Measured::with)
}

/// The mean of the figure `name` over samples that follow each other; `None` where none saw it.
pub(crate) fn average(samples: &[SystemSample], name: &str) -> Option<f64> {
    all_of(samples, name).map(|all| all.mean())
}

/// A summary of each figure that was seen during `span`. Before is the last sample before it, or the first that saw the figure;
/// after the last one of all.
pub(crate) fn summaries(samples: &[SystemSample], span: &Span) -> Vec<SeriesSummary> {
    let during = span.of(samples);
    let before = samples.iter().take_while(|sample| sample.at_s <= span.from_s).count();
    let before = samples.get(..before).unwrap_or_default();
    let names: BTreeSet<&String> = during.iter().flat_map(|sample| sample.values.keys()).collect();
    let summary = |name: &String| {
        let all = all_of(during, name)?;
        Some(SeriesSummary {
            name: name.clone(),
            before: measured(before, name).last().or_else(|| measured(samples, name).next())?.mean(),
            average: all.mean(),
            peak: all.peak(),
            after: measured(samples, name).last()?.mean(),
        })
    };
    let mut summaries: Vec<SeriesSummary> = names.into_iter().filter_map(summary).collect();
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
                values: BTreeMap::from([("stored/s".to_owned(), rate.into())]),
                ..SystemSample::default()
            })
            .collect()
    }

    #[test]
    fn a_course_tells_idle_from_load() {
        let samples = samples([1.0, 2.0, 5.0, 9.0, 7.0, 4.0, 3.0].into_iter());
        // From 2.2 to 5.8 the samples at 4 and 5 saw nothing but load.
        let series = summaries(&samples, &Span { from_s: 2.2, to_s: 5.8 }).remove(0);
        assert_eq!((series.before, series.average, series.peak, series.after), (2.0, 8.0, 9.0, 3.0));
        assert_eq!(average(&samples[3..5], "stored/s"), Some(8.0));
        assert_eq!(average(&samples, "batch ms"), None);
        // Too short for a whole sample.
        let series = summaries(&samples, &Span { from_s: 2.2, to_s: 2.8 }).remove(0);
        assert_eq!((series.before, series.average), (2.0, 5.0));
    }

    #[test]
    fn a_figure_that_was_not_seen_meanwhile_is_left_out() {
        let mut samples = samples([1.0, 2.0, 3.0].into_iter());
        samples[2].values.insert("batch ms".to_owned(), 7.0.into());
        let names = |to_s| {
            let series = summaries(&samples, &Span { from_s: 0.0, to_s });
            series.into_iter().map(|series| series.name).collect::<Vec<_>>()
        };
        assert_eq!(names(2.0), ["stored/s"]);
        assert_eq!(names(3.0), ["stored/s", "batch ms"]);
    }
}
