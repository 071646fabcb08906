//! The time of a message, as the sender's clock shows it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const DAY: u64 = 86_400;
/// 9999-12-31T23:59:59Z, the last second that RFC 3339 can say.
const SECOND_MAX: u64 = 253_402_300_799;

/// RFC 3339 in UTC, to the millisecond; `None` if the clock cannot be right.
pub(crate) fn timestamp() -> Option<String> {
    format(SystemTime::now().duration_since(UNIX_EPOCH).ok()?)
}

fn format(since_1970: Duration) -> Option<String> {
    let seconds = Some(since_1970.as_secs()).filter(|seconds| *seconds <= SECOND_MAX)?;
    let ((year, month, day), time) = (date(seconds / DAY), seconds % DAY);
    let (hour, minute, second, ms) = (time / 3_600, time / 60 % 60, time % 60, since_1970.subsec_millis());
    Some(format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z"))
}

/// Year, month and day of a day since 1970. Counted in years that begin in March, a leap day is the last one of its year.
fn date(since_1970: u64) -> (u64, u64, u64) {
    const ERA: u64 = 146_097; // 400 years
    let days = since_1970 + 719_468; // since March of the year 0
    let (era, day) = (days / ERA, days % ERA);
    let year = (day - day / 1_460 + day / 36_524 - day / (ERA - 1)) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, is_next_year) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + is_next_year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rfc_3339() {
        let at = |seconds, ms| format(Duration::from_secs(seconds) + Duration::from_millis(ms));
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00.007Z"),
            (951_782_399, "2000-02-28T23:59:59.007Z"),
            (951_782_400, "2000-02-29T00:00:00.007Z"),
            (951_868_800, "2000-03-01T00:00:00.007Z"),
            (1_769_860_800, "2026-01-31T12:00:00.007Z"),
            (4_107_542_399, "2100-02-28T23:59:59.007Z"),
            (4_107_542_400, "2100-03-01T00:00:00.007Z"),
            (SECOND_MAX, "9999-12-31T23:59:59.007Z"),
        ] {
            assert_eq!(at(seconds, 7).as_deref(), Some(expected));
        }
        assert_eq!(at(SECOND_MAX + 1, 0), None);
    }
}
