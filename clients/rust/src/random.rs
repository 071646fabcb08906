//! Random bits: for ids, masks and pauses, not for secrets.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// A keyed hash of a counter. The key comes from the operating system.
static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
static COUNTER: AtomicU64 = AtomicU64::new(0);

pub(crate) fn next_u64() -> u64 {
    KEY.hash_one(COUNTER.fetch_add(1, Ordering::Relaxed))
}

/// Of 0 up to 1.
pub(crate) fn fraction() -> f64 {
    f64::from(u32::try_from(next_u64() >> 32).unwrap_or_default()) / f64::from(u32::MAX)
}

pub(crate) fn mask() -> [u8; 4] {
    let [a, b, c, d, ..] = next_u64().to_ne_bytes();
    [a, b, c, d]
}

pub(crate) fn bits_128() -> u128 {
    u128::from(next_u64()) << 64 | u128::from(next_u64())
}

/// A new unique id of 32 hexadecimal digits.
pub fn make_id() -> String {
    format!("{:032x}", bits_128())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_differ_and_fractions_have_their_range() {
        let ids: HashSet<String> = (0..1_000).map(|_| make_id()).collect();
        assert_eq!(ids.len(), 1_000);
        assert!(ids.iter().all(|id| id.len() == 32));
        assert!((0..1_000).map(|_| fraction()).all(|fraction| (0.0..=1.0).contains(&fraction)));
    }
}
