//! Number of shards of a cache: by its capacity and largest entry, not by the machine's cores.
//!
//! The cache library locks each shard separately and gives it an equal part of the capacity. It never keeps an entry that
//! is larger than this part. By default it makes four shards per core, so a large entry that is kept on a small machine
//! would never be kept on a large one.

use quick_cache::{Options, OptionsBuilder};

/// Most shards of one cache: enough that threads rarely wait for each other.
const SHARDS_MAX: u64 = 16;
/// How many of the largest entries each shard can hold.
const LARGEST_PER_SHARD: u64 = 4;

/// Options of a cache with a total weight of `capacity`, about `entries` entries, and a largest entry of weight `largest`
/// that must be kept. If `capacity` is less than `largest`, there is one shard, and such an entry is not kept.
pub fn options(entries: usize, capacity: u64, largest: u64) -> Options {
    let shards = capacity / largest.max(1).saturating_mul(LARGEST_PER_SHARD);
    // Rounded down to a power of two: the library would round up.
    let shards = 1 << shards.clamp(1, SHARDS_MAX).ilog2();
    let mut options = OptionsBuilder::new();
    options.shards(shards).estimated_items_capacity(entries).weight_capacity(capacity);
    match options.build() {
        Ok(options) => options,
        Err(_) => unreachable!("entries and capacity are given"),
    }
}

#[cfg(test)]
mod tests {
    use quick_cache::sync::{Cache, DefaultLifecycle};
    use quick_cache::{DefaultHashBuilder, Weighter};

    use super::*;

    #[derive(Clone)]
    struct ByItself;

    impl Weighter<u64, u64> for ByItself {
        fn weight(&self, _: &u64, weight: &u64) -> u64 {
            *weight
        }
    }

    fn cache(entries: usize, capacity: u64, largest: u64) -> Cache<u64, u64, ByItself> {
        let options = options(entries, capacity, largest);
        Cache::with_options(options, ByItself, DefaultHashBuilder::default(), DefaultLifecycle::default())
    }

    /// Nothing here asks for the number of cores, so the figures are the same on every machine.
    #[test]
    fn shards_follow_from_capacity_and_largest_entry() {
        for (entries, capacity, largest, shards) in [
            (1_000_000, 256 << 20, 1 << 20, 16),
            (1_000_000, 256 << 20, 16 << 20, 4),
            (1_000, 1 << 20, 256 << 10, 1),
            (1_365, 32 << 20, 1 << 20, 8),
            (100_000, 100_000, 1, 16),
            (1_000, 1_000, u64::MAX, 1),
            (0, 0, 0, 1),
        ] {
            let cache = cache(entries, capacity, largest);
            assert_eq!(cache.num_shards(), shards, "{entries} {capacity} {largest}");
        }
    }

    #[test]
    fn the_largest_entries_are_kept() {
        for (capacity, largest) in [(256 << 20, 1 << 20), (32 << 20, 4 << 20), (1 << 20, 256 << 10)] {
            let cache = cache(100_000, capacity, largest);
            for key in 0..100 {
                cache.insert(key, largest);
                assert!(cache.get(&key).is_some(), "{key} of {capacity} and {largest}");
                assert!(cache.weight() <= capacity);
            }
        }
    }
}
