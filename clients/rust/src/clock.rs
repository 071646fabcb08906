//! The time of a message, as the sender's clock shows it.

use std::time::SystemTime;

use jiff::Timestamp;

/// RFC 3339 in UTC, to the millisecond; `None` if the clock cannot be right.
pub(crate) fn timestamp() -> Option<String> {
    Timestamp::try_from(SystemTime::now()).ok().map(format)
}

fn format(time: Timestamp) -> String {
    format!("{time:.3}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_milliseconds() {
        let at = |ms| format(Timestamp::from_millisecond(ms).unwrap());
        assert_eq!(at(1_769_860_800_007), "2026-01-31T12:00:00.007Z");
        assert_eq!(at(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(timestamp().unwrap().len(), "2026-01-31T12:00:00.007Z".len());
    }
}
