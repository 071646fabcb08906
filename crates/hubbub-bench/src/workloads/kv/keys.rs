//! The keys of a run: which of them is asked for, and what their values must be.
//!
//! Each value says its key and a version. A key is written by one connection only, one write at a time, so its versions
//! are made and acknowledged in their order; a value older than the newest version that was acknowledged before it was
//! asked for is stale.

use std::sync::atomic::{AtomicU32, Ordering};

use hubbub_core::clock::{RandomSource, SeededRandom};
use hubbub_core::message::write_u64;

use crate::load::message_plan::{Filler, share_of};

#[derive(Debug, Default)]
struct KeyVersions {
    /// The newest version made, acknowledged or not.
    made: AtomicU32,
    /// The newest version acknowledged; 0 = nothing is known.
    acked: AtomicU32,
    /// The newest version that was a deletion, acknowledged or not.
    deleted: AtomicU32,
}

/// A write without an answer may come later than the next: nothing more is said about the key.
const UNKNOWN: u32 = u32::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    Right,
    /// Older than what was acknowledged before it was asked for.
    Stale,
    /// The value of another key, or none at all.
    Wrong,
}

pub(super) struct Keys {
    prefix: String,
    filler: Filler,
    known: Box<[KeyVersions]>,
}

impl Keys {
    pub(super) fn new(run: u64, count: u64, value_bytes: usize, prefix: &str) -> Self {
        Self {
            prefix: prefix.to_owned(),
            filler: Filler::new(run, '.', value_bytes),
            known: (0..count.max(1)).map(|_| KeyVersions::default()).collect(),
        }
    }

    pub(super) fn len(&self) -> u64 {
        self.known.len() as u64
    }

    pub(super) fn write_key(&self, key: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(self.prefix.as_bytes());
        write_u64(key, out);
    }

    fn known(&self, key: u64) -> Option<&KeyVersions> {
        self.known.get(usize::try_from(key).ok()?)
    }

    /// The version that a write of `key` is to have.
    pub(super) fn next_version(&self, key: u64, is_deletion: bool) -> u32 {
        let Some(known) = self.known(key) else { return 0 };
        let version = known.made.fetch_add(1, Ordering::Relaxed) + 1;
        if is_deletion {
            known.deleted.store(version, Ordering::SeqCst);
        }
        version
    }

    pub(super) fn acknowledged(&self, key: u64, version: u32) {
        if let Some(known) = self.known(key).filter(|known| known.acked.load(Ordering::SeqCst) != UNKNOWN) {
            known.acked.store(version, Ordering::SeqCst);
        }
    }

    pub(super) fn lost(&self, key: u64) {
        if let Some(known) = self.known(key) {
            known.acked.store(UNKNOWN, Ordering::SeqCst);
        }
    }

    /// What a read that begins now must show at least.
    pub(super) fn floor(&self, key: u64) -> u32 {
        self.known(key).map_or(UNKNOWN, |known| known.acked.load(Ordering::SeqCst))
    }

    pub(super) fn write_value(&self, key: u64, version: u32, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(self.filler.mark.as_bytes());
        write_u64(key, out);
        out.push(b'.');
        write_u64(version.into(), out);
        out.push(b'.');
        self.filler.fill(start, key.wrapping_mul(0x9E37_79B9).wrapping_add(version.into()), out);
    }

    /// Decides whether what a read showed is right; `floor` is from when it began.
    pub(super) fn check(&self, key: u64, floor: u32, value: Option<&[u8]>) -> Seen {
        if floor == UNKNOWN {
            return Seen::Right;
        }
        let Some(value) = value else {
            let deleted = self.known(key).map_or(0, |known| known.deleted.load(Ordering::SeqCst));
            return if deleted >= floor { Seen::Right } else { Seen::Stale };
        };
        let Some((run, rest)) = value.split_at_checked(self.filler.mark.len()) else { return Seen::Wrong };
        let mut parts =
            rest.split(|byte| *byte == b'.').map(|part| std::str::from_utf8(part).ok()?.parse::<u64>().ok());
        match (parts.next().flatten(), parts.next().flatten()) {
            // What another run wrote is over since this run wrote the key first.
            (Some(its_key), Some(version)) if its_key == key => {
                let is_ours = run == self.filler.mark.as_bytes();
                let is_fresh = if is_ours { version >= u64::from(floor) } else { floor == 0 };
                if is_fresh { Seen::Right } else { Seen::Stale }
            }
            _ => Seen::Wrong,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Popularity {
    Uniform,
    /// The k-th most popular one in proportion to 1/k.
    Zipf,
    /// So many of them nine times out of ten.
    Hot(u64),
}

impl Popularity {
    pub(super) fn draw(self, count: u64, random: &SeededRandom) -> u64 {
        let bits = random.next_u64();
        match self {
            Self::Uniform => bits % count,
            Self::Zipf => {
                // The inverse of the distribution's continuous relative, ln(k + 1) / ln(count + 1).
                let rank = ((share_of(bits) * ((count + 1) as f64).ln()).exp() - 1.0) as u64;
                scattered(rank.min(count - 1), count)
            }
            Self::Hot(hot) => {
                let among = if bits.is_multiple_of(10) { count } else { hot.clamp(1, count) };
                random.next_u64() % among
            }
        }
    }
}

/// The key of a rank, and no other's: popular keys are not neighbours.
///
/// Multiplied by what has no common divisor with `count`, each number below it comes out once; a prime has none with whatever is
/// smaller, as all counts of keys are.
fn scattered(rank: u64, count: u64) -> u64 {
    const PRIME: u64 = 2_654_435_761;
    rank.wrapping_mul(PRIME) % count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(keys: &Keys, key: u64, version: u32) -> Vec<u8> {
        let mut value = Vec::new();
        keys.write_value(key, version, &mut value);
        value
    }

    #[test]
    fn stale_values_are_told_from_fresh_ones() {
        let keys = Keys::new(7, 10, 100, "k");
        assert_eq!(value(&keys, 3, 1).len(), 100);
        for version in 1..=3 {
            assert_eq!(keys.next_version(3, false), version);
            keys.acknowledged(3, version);
        }
        let floor = keys.floor(3);
        assert_eq!(floor, 3);
        for (seen, version) in [(Seen::Stale, 2), (Seen::Right, 3), (Seen::Right, 4)] {
            assert_eq!(keys.check(3, floor, Some(&value(&keys, 3, version))), seen);
        }
        assert_eq!(keys.check(3, floor, Some(&value(&keys, 4, 3))), Seen::Wrong);
        assert_eq!(keys.check(3, floor, Some(&value(&Keys::new(8, 1, 9, ""), 3, 9))), Seen::Stale);
        assert_eq!(keys.check(3, floor, None), Seen::Stale, "it was never deleted");
        // A deletion under way may be seen, one that is done must be.
        assert_eq!(keys.next_version(3, true), 4);
        assert_eq!(keys.check(3, keys.floor(3), None), Seen::Right);
        assert_eq!(keys.check(3, keys.floor(3), Some(&value(&keys, 3, 3))), Seen::Right);
        keys.acknowledged(3, 4);
        assert_eq!(keys.check(3, keys.floor(3), Some(&value(&keys, 3, 3))), Seen::Stale);
        // Of a key whose write had no answer nothing is known any more.
        keys.lost(3);
        keys.acknowledged(3, 5);
        assert_eq!(keys.check(3, keys.floor(3), Some(&value(&keys, 3, 1))), Seen::Right);
        assert_eq!(keys.check(5, keys.floor(5), None), Seen::Right, "nothing is known of it");
    }

    #[test]
    fn popular_keys_are_drawn_more_often() {
        let random = SeededRandom::new(3);
        let top = |popularity: Popularity, count: u64| {
            let mut drawn = vec![0_u32; count as usize];
            (0..100_000).for_each(|_| drawn[popularity.draw(count, &random) as usize] += 1);
            drawn.sort_unstable_by(|a, b| b.cmp(a));
            (f64::from(drawn[0]) / 1e5, f64::from(drawn[9]) / 1e5)
        };
        let (first, tenth) = top(Popularity::Zipf, 1_009);
        assert!((0.08..0.13).contains(&first) && (0.008..0.02).contains(&tenth), "{first} {tenth}");
        let (first, _) = top(Popularity::Uniform, 1_009);
        assert!(first < 0.002, "{first}");
        let (_, tenth) = top(Popularity::Hot(10), 1_009);
        assert!(tenth > 0.08, "{tenth}");
    }

    #[test]
    fn each_rank_has_a_key_of_its_own() {
        for count in [1, 2, 10, 1_000, 1_009, 1_024, 100_000] {
            let mut keys: Vec<u64> = (0..count).map(|rank| scattered(rank, count)).collect();
            keys.sort_unstable();
            assert!(keys.into_iter().eq(0..count), "{count}");
        }
        // No product is cut off, either.
        let most = super::super::KEYS_MAX;
        let [one, other] = [most - 2, most - 1].map(|rank| scattered(rank, most));
        assert_eq!((other + most - one) % most, 2_654_435_761 % most);
    }
}
