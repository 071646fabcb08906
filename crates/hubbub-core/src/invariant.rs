//! Broken invariants: bugs of the server itself, reported instead of turned into a plausible value.
//!
//! A number that no input can make too large is cast with [`cast`], which counts and logs a failure. The operation is
//! then refused with [`Refusal::Internal`], and nothing is stored. A number that may honestly be too large (a duration, a
//! figure of statistics, a search bound) is cut with [`saturate`].

use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Refusal;

static BROKEN: AtomicU64 = AtomicU64::new(0);

/// An invariant did not hold. [`broken`] counts and logs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("bug: {rule} does not hold; nothing was stored")]
pub struct BrokenInvariant {
    /// What must always hold.
    pub rule: &'static str,
}

impl From<BrokenInvariant> for Refusal {
    fn from(_: BrokenInvariant) -> Self {
        Self::Internal
    }
}

/// Counts and logs that `rule` does not hold. Panics in debug builds, so that tests fail.
#[track_caller]
pub fn broken(rule: &'static str) -> BrokenInvariant {
    BROKEN.fetch_add(1, Ordering::Relaxed);
    tracing::error!("bug: invariant \"{rule}\" does not hold at {}; please report it", Location::caller());
    debug_assert!(false, "invariant \"{rule}\" does not hold");
    BrokenInvariant { rule }
}

/// `value` as another type of number.
/// Fails with: [`BrokenInvariant`] if it does not fit, contrary to `rule`.
#[track_caller]
pub fn cast<T, U: TryFrom<T>>(value: T, rule: &'static str) -> Result<U, BrokenInvariant> {
    match U::try_from(value) {
        Ok(value) => Ok(value),
        Err(_) => Err(broken(rule)),
    }
}

/// `value` as another type of number, or the nearest one. A value that does not fit is a broken invariant. For places that
/// cannot refuse an operation, such as lengths that were checked before.
#[track_caller]
pub fn cast_or_nearest<T: Integer, U: Integer + TryFrom<T>>(value: T, rule: &'static str) -> U {
    match cast(value, rule) {
        Ok(value) => value,
        Err(BrokenInvariant { .. }) => saturate(value),
    }
}

/// Number of broken invariants since the process started.
pub fn broken_invariants() -> u64 {
    BROKEN.load(Ordering::Relaxed)
}

/// The integer types of [`saturate`].
pub trait Integer: Copy {
    /// The value as an `i128`, or the nearest one.
    fn widen(self) -> i128;
    /// The nearest value to `wide`.
    fn nearest(wide: i128) -> Self;
}

macro_rules! integers {
    ($($kind:ty),*) => { $(impl Integer for $kind {
        fn widen(self) -> i128 {
            i128::try_from(self).unwrap_or(i128::MAX)
        }

        fn nearest(wide: i128) -> Self {
            Self::try_from(wide).unwrap_or(if wide < 0 { Self::MIN } else { Self::MAX })
        }
    })* };
}
integers!(u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize);

/// `value` as another type of number, or the nearest one. For figures and bounds, never for stored data.
pub fn saturate<T: Integer, U: Integer>(value: T) -> U {
    U::nearest(value.widen())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_cast() {
        assert_eq!(cast::<u64, u32>(7, "small"), Ok(7));
        assert_eq!(cast::<i64, u64>(i64::MAX, "not negative"), Ok(i64::MAX.unsigned_abs()));
    }

    #[test]
    #[should_panic(expected = "invariant \"fits a byte\" does not hold")]
    fn what_does_not_fit_stops_a_debug_build() {
        let _ = cast::<u32, u8>(256, "fits a byte");
    }

    #[test]
    fn figures_are_cut() {
        assert_eq!(saturate::<u128, u64>(u128::MAX), u64::MAX);
        assert_eq!(saturate::<u64, i64>(u64::MAX), i64::MAX);
        assert_eq!(saturate::<u64, u8>(9), 9);
        assert_eq!(saturate::<i64, u64>(-1), 0);
        assert_eq!(saturate::<usize, i32>(usize::MAX), i32::MAX);
        assert_eq!(saturate::<i32, i8>(-1_000), i8::MIN);
    }
}
