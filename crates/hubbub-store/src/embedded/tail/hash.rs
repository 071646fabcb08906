//! Hashing of numbers that are hashes or counters already: one multiplication.

use std::hash::{BuildHasher, Hasher};

/// Odd, and close to 2^64 divided by the golden ratio.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// Hashes one number. Not for keys that a sender can choose.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        let mixed = (self.0 ^ number).wrapping_mul(GOLDEN);
        self.0 = mixed ^ (mixed >> 32);
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct MixState;

impl BuildHasher for MixState {
    type Hasher = Mix;

    fn build_hasher(&self) -> Mix {
        Mix::default()
    }
}
