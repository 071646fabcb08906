//! The time span of a partition, and its name.

use std::time::Duration;

use hubbub_core::Timestamp;
use hubbub_core::invariant::saturate;

/// From `begins` up to but not including `ends`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) begins: Timestamp,
    pub(super) ends: Timestamp,
}

impl Span {
    /// The span that holds `time`, as a multiple of `length` since 1970. It is cut at existing partitions, which may overlap
    /// if the length was changed: `before` is the end of the last one before `time`, `after` the begin of the next.
    pub(super) fn around(
        time: Timestamp,
        length: Duration,
        before: Option<Timestamp>,
        after: Option<Timestamp>,
    ) -> Self {
        let length = micros(length);
        let begins = time.as_micros().div_euclid(length).saturating_mul(length);
        let begins = Timestamp::from_micros(begins);
        let ends = Timestamp::from_micros(begins.as_micros().saturating_add(length));
        Self {
            begins: before.map_or(begins, |before| begins.max(before)),
            ends: after.map_or(ends, |after| ends.min(after)),
        }
    }

    pub(super) fn holds(&self, time: Timestamp) -> bool {
        self.begins <= time && time < self.ends
    }

    /// The name of the partition, derived from its begin.
    pub(super) fn name(&self) -> String {
        let begins = self.begins.to_string();
        let digits: String =
            begins.chars().take("2026-01-31T12:00:00".len()).filter(char::is_ascii_digit).collect();
        match digits.split_at_checked(8) {
            Some((day, "000000")) => format!("messages_{day}"),
            Some((day, time)) => format!("messages_{day}_{time}"),
            None => format!("messages_{digits}"),
        }
    }
}

/// A length in microseconds, in whole seconds, so that no two names are equal.
pub(super) fn micros(length: Duration) -> i64 {
    saturate::<u64, i64>(length.as_secs().max(1)).saturating_mul(1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Timestamp {
        Timestamp::parse(text).unwrap()
    }

    fn span(begins: &str, ends: &str) -> Span {
        Span { begins: time(begins), ends: time(ends) }
    }

    const DAY: Duration = Duration::from_secs(86_400);

    #[test]
    fn spans_are_multiples_since_1970() {
        let day = Span::around(time("2026-01-31T12:59:59.999999Z"), DAY, None, None);
        assert_eq!(day, span("2026-01-31T00:00:00Z", "2026-02-01T00:00:00Z"));
        assert!(day.holds(day.begins) && !day.holds(day.ends));
        let week = Span::around(time("1970-01-01T00:00:00Z"), DAY * 7, None, None);
        assert_eq!(week, span("1970-01-01T00:00:00Z", "1970-01-08T00:00:00Z"));
        let early = Span::around(time("1969-12-31T23:00:00Z"), DAY, None, None);
        assert_eq!(early, span("1969-12-31T00:00:00Z", "1970-01-01T00:00:00Z"));
    }

    #[test]
    fn spans_are_cut_at_what_is_there() {
        let (before, after) = (time("2026-01-31T06:00:00Z"), time("2026-01-31T13:00:00Z"));
        let cut = Span::around(time("2026-01-31T12:00:00Z"), DAY, Some(before), Some(after));
        assert_eq!(cut, Span { begins: before, ends: after });
        assert_eq!(cut.name(), "messages_20260131_060000");
        let (before, after) = (time("2026-01-30T06:00:00Z"), time("2026-02-07T00:00:00Z"));
        let whole = Span::around(time("2026-01-31T12:00:00Z"), DAY, Some(before), Some(after));
        assert_eq!(whole, span("2026-01-31T00:00:00Z", "2026-02-01T00:00:00Z"));
        assert_eq!(whole.name(), "messages_20260131");
    }
}
