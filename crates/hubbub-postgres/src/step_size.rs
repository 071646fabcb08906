//! How much a step of maintenance takes on: less after one that took too long, since the next one would choose the same.

use crate::db::Result;

/// Most halvings. 200,000 messages become some 800.
const HALVINGS_MAX: u32 = 8;
/// After so many steps in time, the next one takes on twice as much.
const STEPS_BEFORE_MORE: u32 = 16;

/// The size of the next step.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StepSize {
    halvings: u32,
    /// Steps in time since it changed.
    in_time: u32,
}

impl StepSize {
    /// Of what is `most` in a step, how much the next one takes on.
    pub(crate) fn of(self, most: i64) -> i64 {
        most.checked_shr(self.halvings).unwrap_or(0).max(1)
    }

    /// Notes how a step ended.
    pub(crate) fn record<T>(&mut self, done: &Result<T>) {
        match done {
            Err(fault) if fault.took_too_long() => {
                self.halvings = self.halvings.saturating_add(1).min(HALVINGS_MAX);
                self.in_time = 0;
            }
            Err(_) => {}
            Ok(_) => {
                self.in_time = self.in_time.saturating_add(1);
                if self.in_time >= STEPS_BEFORE_MORE {
                    *self = Self { halvings: self.halvings.saturating_sub(1), in_time: 0 };
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::DbError;

    #[test]
    fn a_step_that_took_too_long_is_halved() {
        let (mut size, late) = (StepSize::default(), || Err::<(), _>(DbError::Timeout { what: "counting" }));
        size.record(&late());
        size.record(&late());
        size.record(&Err::<(), _>(DbError::Exhausted));
        assert_eq!((size.of(200), size.of(2)), (50, 1));
        (0..16).for_each(|_| size.record(&Ok(())));
        assert_eq!(size.of(200), 100);
        (0..100).for_each(|_| size.record(&late()));
        assert_eq!(size.of(200_000), 781);
        (0..1_000).for_each(|_| size.record(&Ok(())));
        assert_eq!(size.of(200), 200);
    }
}
