//! Points in time: microseconds since 1970-01-01T00:00:00Z inside, RFC 3339 on the wire.

use std::fmt;

/// Microseconds since the Unix epoch, UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

/// What [`Timestamp::parse`] takes, for people.
pub const TIMESTAMP_RULE: &str =
    "must be an RFC 3339 time such as 2026-01-31T12:00:00Z, or decimal seconds since 1970";

/// 0001-01-01T00:00:00Z and 9999-12-31T23:59:59.999999Z: what RFC 3339 can say.
const MICROS_MIN: i64 = -62_135_596_800_000_000;
const MICROS_MAX: i64 = 253_402_300_799_999_999;

impl Timestamp {
    /// The earliest there is.
    pub const MIN: Self = Self(MICROS_MIN);

    /// From microseconds since 1970; brought into the years 1 to 9999.
    pub const fn from_micros(micros: i64) -> Self {
        if micros < MICROS_MIN {
            Self(MICROS_MIN)
        } else if micros > MICROS_MAX {
            Self(MICROS_MAX)
        } else {
            Self(micros)
        }
    }

    /// Microseconds since 1970.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// From (fractional) seconds since 1970; `None` outside the years 1 to 9999.
    pub fn from_epoch_seconds(seconds: f64) -> Option<Self> {
        let micros = (seconds * 1e6).round();
        #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
        (micros >= MICROS_MIN as f64 && micros <= MICROS_MAX as f64).then(|| Self::from_micros(micros as i64))
    }

    /// RFC 3339 (`T` or a space, fraction of any length cut to microseconds, `Z` or an offset; without an
    /// offset UTC is meant) or decimal seconds since 1970.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        if bytes.get(4) != Some(&b'-') {
            let plain =
                bytes.iter().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'-')) && !bytes.is_empty();
            return plain.then(|| text.parse().ok()).flatten().and_then(Self::from_epoch_seconds);
        }
        parse_rfc3339(bytes)
    }

    /// Writes RFC 3339 in UTC: milliseconds, or microseconds where there are any.
    pub fn write(self, out: &mut Vec<u8>) {
        let micros = self.0.rem_euclid(1_000_000);
        let seconds = self.0.div_euclid(1_000_000);
        let (year, month, day) = civil_from_days(seconds.div_euclid(86_400));
        let second_of_day = seconds.rem_euclid(86_400);
        let [century, year] = [two_digits(year / 100), two_digits(year % 100)];
        let [month, day] = [two_digits(month), two_digits(day)];
        let [hour, minute] = [two_digits(second_of_day / 3_600), two_digits(second_of_day / 60 % 60)];
        let second = two_digits(second_of_day % 60);
        let [first, middle, last] = [micros / 10_000, micros / 100 % 100, micros % 100].map(two_digits);
        out.extend_from_slice(&[
            century[0], century[1], year[0], year[1], b'-', month[0], month[1], b'-', day[0], day[1], b'T',
            hour[0], hour[1], b':', minute[0], minute[1], b':', second[0], second[1], b'.', first[0],
            first[1], middle[0],
        ]);
        if micros % 1_000 == 0 {
            out.push(b'Z');
        } else {
            out.extend_from_slice(&[middle[1], last[0], last[1], b'Z']);
        }
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = Vec::with_capacity(27);
        self.write(&mut out);
        f.write_str(&String::from_utf8_lossy(&out))
    }
}

/// The decimal digits of 0 to 99.
fn two_digits(value: i64) -> [u8; 2] {
    let value = u8::try_from(value).unwrap_or(0);
    [b'0' + value / 10, b'0' + value % 10]
}

fn number(bytes: &[u8]) -> Option<i64> {
    bytes.iter().try_fold(0_i64, |sum, b| b.is_ascii_digit().then(|| sum * 10 + i64::from(b - b'0')))
}

fn parse_rfc3339(bytes: &[u8]) -> Option<Timestamp> {
    let field = |from: usize, to: usize| bytes.get(from..to).and_then(number);
    let separators = bytes.get(7) == Some(&b'-')
        && matches!(bytes.get(10), Some(b'T' | b't' | b' '))
        && bytes.get(13) == Some(&b':')
        && bytes.get(16) == Some(&b':');
    if !separators {
        return None;
    }
    let (year, month, day) = (field(0, 4)?, field(5, 7)?, field(8, 10)?);
    let (hour, minute, second) = (field(11, 13)?, field(14, 16)?, field(17, 19)?);
    let days = days_from_civil(year, month, day);
    // Of a day that is not in the calendar, the number belongs to another one.
    let is_date = year >= 1 && civil_from_days(days) == (year, month, day);
    if !is_date || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let mut rest = bytes.get(19..)?;
    let mut micros = 0;
    if let Some(fraction) = rest.strip_prefix(b".") {
        let length = fraction.iter().take_while(|b| b.is_ascii_digit()).count();
        let used = length.min(6);
        micros = number(fraction.get(..used)?)? * 10_i64.pow(u32::try_from(6 - used).ok()?);
        rest = fraction.get(length..)?;
        if length == 0 {
            return None;
        }
    }
    let offset_minutes = parse_offset(rest)?;
    // A leap second (:60) is the last moment of its minute, as POSIX time has no place for it.
    let seconds = days * 86_400 + hour * 3_600 + minute * 60 + second.min(59);
    let total = (seconds - offset_minutes * 60) * 1_000_000 + micros;
    (MICROS_MIN..=MICROS_MAX).contains(&total).then_some(Timestamp(total))
}

fn parse_offset(rest: &[u8]) -> Option<i64> {
    match rest {
        [] | [b'Z' | b'z'] => Some(0),
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] => {
            let (hours, minutes) = (number(&[*h1, *h2])?, number(&[*m1, *m2])?);
            let total = (hours <= 23 && minutes <= 59).then_some(hours * 60 + minutes)?;
            Some(if *sign == b'-' { -total } else { total })
        }
        _ => None,
    }
}

/// Days since 1970-01-01 of a date in the proleptic Gregorian calendar; Howard Hinnant,
/// "chrono-Compatible Low-Level Date Algorithms", `days_from_civil`.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let y = if month <= 2 { year - 1 } else { year };
    let era = y.div_euclid(400);
    let year_of_era = y.rem_euclid(400);
    let day_of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// The inverse of [`days_from_civil`], same source.
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let mp = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * mp + 2) / 5 + 1;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_what_senders_write() {
        let noon = Timestamp::from_micros(1_769_860_800_000_000);
        for text in [
            "2026-01-31T12:00:00Z",
            "2026-01-31t12:00:00.000z",
            "2026-01-31 13:30:00+01:30",
            "2026-01-31T12:00:00",
            "2026-01-31T12:00:00.0000000009Z",
            "1769860800",
            "1769860800.0",
        ] {
            assert_eq!(Timestamp::parse(text), Some(noon), "{text}");
        }
        for text in [
            "",
            "x",
            "-",
            "2026-02-30T00:00:00Z",
            "2026-01-31",
            "2026-01-31T24:00:00Z",
            "2026-01-31T12:00:00.Z",
            "1e9",
            "NaN",
            "2026-01-31T12:00:00+1:00",
        ] {
            assert_eq!(Timestamp::parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn agrees_with_jiff(micros in MICROS_MIN..=253_402_200_000_000_000_i64) {
            let ours = Timestamp::from_micros(micros);
            let theirs = jiff::Timestamp::from_microsecond(micros).unwrap();
            prop_assert_eq!(Timestamp::parse(&theirs.to_string()), Some(ours));
            prop_assert_eq!(ours.to_string().parse::<jiff::Timestamp>().unwrap(), theirs);
        }

        #[test]
        fn never_panics(text in "\\PC{0,40}") {
            let _ = Timestamp::parse(&text);
        }
    }
}
