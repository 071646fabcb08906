//! Bounds the lines of a log that one cause can fill, such as a store that is away.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Lines within a second. Clients that try again while the store is away would fill the log.
const LINES_MAX: u32 = 10;
const SPAN: Duration = Duration::from_secs(1);

/// At most ten lines a second of one kind. The next one that is written says how many were left out.
#[derive(Debug, Default)]
pub struct LogLimit(Mutex<Second>);

/// The second in which a line was written last.
#[derive(Debug, Default)]
struct Second {
    begun: Option<Duration>,
    lines: u32,
    left_out: u64,
}

impl LogLimit {
    /// None is written yet.
    pub const fn new() -> Self {
        Self(Mutex::new(Second { begun: None, lines: 0, left_out: 0 }))
    }

    /// How many lines were left out before this one, which is to be written; `None` = this one is left out, too. `now` is the
    /// time of a monotonic clock.
    pub fn next(&self, now: Duration) -> Option<u64> {
        let mut second = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if second.begun.is_none_or(|begun| now.abs_diff(begun) >= SPAN) {
            (second.begun, second.lines) = (Some(now), 0);
        }
        if second.lines == LINES_MAX {
            second.left_out += 1;
            return None;
        }
        second.lines += 1;
        Some(std::mem::take(&mut second.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_cause_does_not_fill_the_log() {
        let (limit, begin) = (LogLimit::new(), Duration::from_secs(7));
        let later = begin + SPAN;
        for number in 0..100 {
            assert_eq!(limit.next(begin), (number < LINES_MAX).then_some(0), "{number}");
        }
        let left_out = 100 - u64::from(LINES_MAX);
        assert_eq!(limit.next(later), Some(left_out), "the next says how many there were");
        assert_eq!(limit.next(later), Some(0));
    }
}
