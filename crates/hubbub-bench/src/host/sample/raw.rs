//! What is read at one moment, and what two such moments say of the time between them.

use std::collections::BTreeMap;

use super::measured::{Measured, SystemSample};

/// Counters and figures of one moment. What could not be read is missing, and so is then what is made of it.
#[derive(Debug, Default)]
pub(super) struct Raw {
    pub(super) at_s: f64,
    /// What only grows; shown as rates.
    pub(super) counters: BTreeMap<String, f64>,
    /// What stands as it is.
    pub(super) figures: BTreeMap<String, f64>,
    /// Pairs of what only grows; shown is how much the first grew for each one of the second.
    pub(super) ratios: BTreeMap<String, (f64, f64)>,
    /// Counters of processes and threads that come and go, by their ids; shown as the rate of all together. What one that is
    /// gone has counted since the last sample is not known.
    pub(super) by_id: BTreeMap<String, BTreeMap<u32, f64>>,
    /// Counters of things by their ids, of which the one that grows most is shown, with its name.
    pub(super) busiest: BTreeMap<String, BTreeMap<String, Named>>,
}

/// A counter of something with a name.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) name: String,
    pub(super) count: f64,
}

impl Raw {
    /// A counter, if it is known.
    pub(super) fn count(&mut self, name: impl Into<String>, count: Option<f64>) {
        self.counters.extend(count.map(|count| (name.into(), count)));
    }

    /// A pair, if both are known.
    pub(super) fn ratio(&mut self, name: impl Into<String>, part: Option<f64>, whole: Option<f64>) {
        self.ratios.extend(part.zip(whole).map(|pair| (name.into(), pair)));
    }

    /// Counters by ids, of those that are known; if none is, nothing is known.
    pub(super) fn count_each(&mut self, name: String, counts: impl Iterator<Item = (u32, f64)>) {
        let counts: BTreeMap<u32, f64> = counts.collect();
        if !counts.is_empty() {
            self.by_id.insert(name, counts);
        }
    }

    /// The time since an earlier moment.
    pub(super) fn since(&self, before: &Self) -> SystemSample {
        let seconds = (self.at_s - before.at_s).max(1e-3);
        let mut sample = SystemSample { at_s: self.at_s, ..SystemSample::default() };
        let values = &mut sample.values;
        let figures = self.figures.iter();
        values.extend(figures.map(|(name, value)| (name.clone(), Measured::over(seconds, *value))));
        let mut rate = |name: &String, grown: f64| {
            values.insert(name.clone(), Measured::over(seconds, grown.max(0.0) / seconds));
        };
        for (name, value) in &self.counters {
            if let Some(earlier) = before.counters.get(name) {
                rate(name, value - earlier);
            }
        }
        for (name, now) in &self.by_id {
            if let Some(earlier) = before.by_id.get(name) {
                let grown = |(id, now): (&u32, &f64)| (now - earlier.get(id).unwrap_or(&0.0)).max(0.0);
                rate(name, now.iter().map(grown).sum());
            }
        }
        for (name, (part, whole)) in &self.ratios {
            if let Some((part_before, whole_before)) = before.ratios.get(name)
                && whole > whole_before
            {
                let whole = whole - whole_before;
                values.insert(name.clone(), Measured::over(whole, (part - part_before) / whole));
            }
        }
        for (name, now) in &self.busiest {
            let Some(earlier) = before.busiest.get(name) else { continue };
            let grown = |(id, now): (&String, &Named)| {
                let before = earlier.get(id).map_or(0.0, |earlier| earlier.count);
                (now.count - before).max(0.0)
            };
            let each = now.iter().map(|one| (grown(one), &one.1.name));
            if let Some((most, whose)) = each.max_by(|(one, _), (other, _)| one.total_cmp(other)) {
                sample.values.insert(name.clone(), Measured::over(seconds, most / seconds));
                // Of things that all did nothing, none is the busiest.
                sample.busiest.extend((most > 0.0).then(|| (name.clone(), whose.clone())));
            }
        }
        sample
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn means(sample: &SystemSample) -> Vec<(&str, f64)> {
        sample.values.iter().map(|(name, value)| (&**name, value.mean())).collect()
    }

    #[test]
    fn what_grows_is_shown_as_a_rate_and_as_a_ratio() {
        let raw = |seconds, stored, hits| Raw {
            at_s: seconds,
            counters: [("stored/s".to_owned(), stored)].into(),
            figures: [("connections".to_owned(), 3.0)].into(),
            ratios: [("cache hits %".to_owned(), hits)].into(),
            ..Raw::default()
        };
        let sample = raw(6.0, 500.0, (900.0, 20.0)).since(&raw(4.0, 100.0, (100.0, 10.0)));
        assert_eq!(means(&sample), [("cache hits %", 80.0), ("connections", 3.0), ("stored/s", 200.0)]);
        assert_eq!(sample.at_s, 6.0);
        // A server that began anew counts from 0; what was not there before is not known.
        let restarted = raw(7.0, 20.0, (900.0, 20.0)).since(&raw(6.0, 500.0, (900.0, 20.0)));
        assert_eq!(means(&restarted), [("connections", 3.0), ("stored/s", 0.0)]);
        assert_eq!(means(&raw(7.0, 20.0, (0.0, 9.0)).since(&Raw::default())), [("connections", 3.0)]);
    }

    #[test]
    fn a_process_that_ends_takes_no_time_from_the_others() {
        let raw = |at, seconds: &[(u32, f64)]| {
            let mut raw = Raw { at_s: at, ..Raw::default() };
            raw.count_each("postgres CPU".to_owned(), seconds.iter().copied());
            raw
        };
        let sample = raw(2.0, &[(1, 6.0), (3, 1.0)]).since(&raw(0.0, &[(1, 4.0), (2, 50.0)]));
        assert_eq!(means(&sample), [("postgres CPU", 1.5)], "two seconds of the first, one of the new one");
        let unseen = raw(2.0, &[(1, 6.0)]).since(&raw(0.0, &[]));
        assert!(means(&unseen).is_empty(), "what they had used before is not of this time");
    }

    #[test]
    fn the_busiest_is_shown_with_its_name() {
        let raw = |at, counts: [(&str, &str, f64); 2]| Raw {
            at_s: at,
            busiest: [(
                "hottest thread %".to_owned(),
                counts
                    .map(|(id, name, count)| (id.to_owned(), Named { name: name.to_owned(), count }))
                    .into(),
            )]
            .into(),
            ..Raw::default()
        };
        let before = raw(0.0, [("1", "commit", 900.0), ("2", "tokio", 10.0)]);
        let after = raw(2.0, [("1", "commit", 1_000.0), ("2", "renamed", 170.0)]);
        let sample = after.since(&before);
        assert_eq!(means(&sample), [("hottest thread %", 80.0)]);
        assert_eq!(sample.busiest["hottest thread %"], "renamed", "an id may change its name");
        let idle = raw(3.0, [("1", "commit", 1_000.0), ("2", "renamed", 170.0)]).since(&after);
        assert_eq!((means(&idle), idle.busiest.len()), (vec![("hottest thread %", 0.0)], 0));
    }
}
