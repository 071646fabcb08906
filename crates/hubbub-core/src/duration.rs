//! Durations in settings and bodies: `500ms`, `25s`, `10min`, `12h`, `30d`.

use std::time::Duration;

use crate::invariant::saturate;

/// Units and their milliseconds.
const UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("ms", 1), ("s", 1_000)];

/// Reads a whole number with a unit.
pub fn parse(text: &str) -> Option<Duration> {
    let (name, factor) = UNITS.into_iter().find(|(name, _)| text.ends_with(name))?;
    let number: u64 = text.strip_suffix(name)?.trim().parse().ok()?;
    number.checked_mul(factor).map(Duration::from_millis)
}

/// Formats a duration for [`parse`], in the largest unit that divides it. Cut to milliseconds.
pub fn show(time: Duration) -> String {
    let millis: u64 = saturate(time.as_millis());
    let unit = UNITS
        .into_iter()
        .find(|(name, factor)| *name != "ms" && millis >= *factor && millis.is_multiple_of(*factor));
    let (name, factor) = unit.unwrap_or(("ms", 1));
    format!("{}{name}", millis / factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_are_written() {
        for text in ["0ms", "500ms", "25s", "10min", "12h", "30d", "90s"] {
            assert_eq!(show(parse(text).unwrap()), text);
        }
        assert_eq!(show(parse("60 s").unwrap()), "1min");
        for bad in ["", "5", "s", "-1s", "1.5h", "1y", "99999999999999999999d"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
