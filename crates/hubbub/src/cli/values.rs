//! Values of arguments that are checked before a command runs.

use std::time::Duration;

use hubbub_core::id::{ID_BYTES_MAX, is_valid_id};
use hubbub_core::number::{WHOLE_NUMBER_RULE, parse_digits};
use hubbub_core::queue_draft::WAIT_MS_MAX;
use hubbub_core::{Timestamp, duration};

/// Longest beginning of an id that goes on with two dashes, the number of a line, of up to 20 digits, and a checksum of 8.
const ID_PREFIX_BYTES_MAX: usize = ID_BYTES_MAX - 30;

/// A moment, as the server reads it.
pub(super) fn moment(text: &str) -> Result<String, &'static str> {
    let is_moment = Timestamp::parse(text).is_some();
    is_moment.then(|| text.to_owned()).ok_or("must be like 2026-01-31T12:00:00Z, or seconds since 1970")
}

/// The beginning of the ids that an import makes.
pub(super) fn id_prefix(text: &str) -> Result<String, String> {
    let is_fine = text.len() <= ID_PREFIX_BYTES_MAX && is_valid_id(text);
    let rule = || format!("must be 1 to {ID_PREFIX_BYTES_MAX} characters out of A-Z a-z 0-9 _ . : @ -");
    is_fine.then(|| text.to_owned()).ok_or_else(rule)
}

/// A position, which is the number of a message or a revision, and any other number that may be 0.
pub(super) fn number<T: TryFrom<u64>>(text: &str) -> Result<T, &'static str> {
    parse_digits(text).and_then(|number| T::try_from(number).ok()).ok_or(WHOLE_NUMBER_RULE)
}

/// How many of something there may be; none would leave nothing to do.
pub(super) fn count<T: TryFrom<u64>>(text: &str) -> Result<T, &'static str> {
    let count = parse_digits(text).filter(|count| *count > 0);
    count.and_then(|count| T::try_from(count).ok()).ok_or("must be a whole number from 1 on")
}

/// How many rows of a table the server gives.
pub(super) fn rows(text: &str) -> Result<u16, &'static str> {
    count(text).ok().filter(|rows| *rows <= 1_000).ok_or("must be a whole number from 1 to 1000")
}

/// How long to wait for a message of a queue.
pub(super) fn wait(text: &str) -> Result<Duration, String> {
    let most = Duration::from_millis(WAIT_MS_MAX);
    let rule = || format!("must be a time such as 500ms or 10s, at most {}s", most.as_secs());
    duration::parse(text).filter(|wait| *wait <= most).ok_or_else(rule)
}

pub(super) fn time(text: &str) -> Result<Duration, &'static str> {
    duration::parse(text).ok_or("must be a time such as 500ms, 30s, 5min or 7d")
}

pub(super) fn positive_time(text: &str) -> Result<Duration, &'static str> {
    time(text).ok().filter(|time| !time.is_zero()).ok_or("must be a time such as 500ms, 10s or 12h")
}

/// A time, as the server reads it, or off.
pub(super) fn time_or_off(text: &str) -> Result<String, &'static str> {
    let is_known = text == "off" || duration::parse(text).is_some();
    is_known.then(|| text.to_owned()).ok_or("must be a time such as 12h or 30d, or off")
}
