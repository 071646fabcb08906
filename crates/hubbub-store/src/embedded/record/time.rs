//! The time that was proven when a block was written.
//!
//! ```text
//! kind u8 = 9 | time i64 LE, microseconds
//! ```
//!
//! It is the first record of its block, at most one second behind the last one before, so that a start knows from when on
//! time went by ([`hubbub_core::Clock::begin_at`]).

use hubbub_core::Timestamp;

pub(super) const KIND_TIME: u8 = 9;

pub(crate) const TIME_BYTES: usize = 9;

/// A moment that had passed when the block was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimeProven(pub(crate) Timestamp);

impl TimeProven {
    pub(crate) fn write(self, out: &mut Vec<u8>) {
        out.push(KIND_TIME);
        out.extend_from_slice(&self.0.as_micros().to_le_bytes());
    }

    /// Takes the record off the front of `input`; `None` when the bytes are not one.
    pub(crate) fn read(input: &mut &[u8]) -> Option<Self> {
        let (&[kind, time @ ..], rest) = input.split_first_chunk::<TIME_BYTES>()?;
        if kind != KIND_TIME {
            return None;
        }
        *input = rest;
        Some(Self(Timestamp::from_micros(i64::from_le_bytes(time))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded::record::{self, Record};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn times_come_back(micros in 0..4_000_000_000_000_000_i64) {
            let time = TimeProven(Timestamp::from_micros(micros));
            let mut bytes = Vec::new();
            time.write(&mut bytes);
            prop_assert_eq!(bytes.len(), TIME_BYTES);
            prop_assert_eq!(TimeProven::read(&mut &bytes[..TIME_BYTES - 1]), None);
            bytes.push(7);
            let mut input = bytes.as_slice();
            prop_assert_eq!(record::read(&mut input), Some(Record::Time(time)));
            prop_assert_eq!(input, &[7]);
        }
    }
}
