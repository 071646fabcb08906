//! Which message ids may be stored: a Bloom filter in memory over the hashes of all of them.
//!
//! Most ids are new, and this says so without touching a disk. It grows by tiers, each twice as large as the one
//! before, because a Bloom filter cannot be resized. All bits of a hash lie in one cache line of a tier, one in each
//! of its eight words, so a question costs one cache miss per tier. The first tier has 12 bits per id, each later
//! one a bit more, so that the chances of a false "maybe" do not add up: 0.7 % with 5 million ids, 1.2 % with 120
//! million.
//!
//! Nothing can be taken out; a store that dropped much builds a new one from what it holds.

use hubbub_core::invariant::saturate;

const FIRST_TIER_IDS: u64 = 1 << 20;
const FIRST_TIER_BITS_PER_ID: u64 = 12;
const BITS_PER_ID_MAX: u64 = 20;
const LINE_WORDS: usize = 8;
const LINE_BITS: u64 = 512;

#[derive(Debug)]
pub(crate) struct BloomFilter {
    /// One line more than used, so that lines can begin where the processor's do.
    words: Vec<u64>,
    first_word: usize,
    lines: u64,
    ids: u64,
    ids_max: u64,
}

impl BloomFilter {
    pub(crate) fn new(ids_max: u64, bits_per_id: u64) -> Self {
        Self::with_lines((ids_max * bits_per_id).div_ceil(LINE_BITS).max(1), ids_max)
    }

    fn with_lines(lines: u64, ids_max: u64) -> Self {
        let words = vec![0; saturate::<_, usize>(lines + 1).saturating_mul(LINE_WORDS)];
        let first_word = words.as_ptr().align_offset(LINE_WORDS * size_of::<u64>()).min(LINE_WORDS);
        Self { words, first_word, lines, ids: 0, ids_max }
    }

    /// The same after [`Self::to_bytes`]; `None` when the bytes are none of those.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (words, rest) = bytes.as_chunks::<8>();
        let lines = (words.len() / LINE_WORDS) as u64;
        if !rest.is_empty() || words.is_empty() || !words.len().is_multiple_of(LINE_WORDS) {
            return None;
        }
        let mut tier = Self::with_lines(lines, 0);
        let place = tier.words.get_mut(tier.first_word..)?.get_mut(..words.len())?;
        for (word, bytes) in place.iter_mut().zip(words) {
            *word = u64::from_le_bytes(*bytes);
        }
        Some(tier)
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let words = saturate::<_, usize>(self.lines).saturating_mul(LINE_WORDS);
        let used = self.words.get(self.first_word..).and_then(|rest| rest.get(..words)).unwrap_or_default();
        used.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Where the line of a hash begins. Takes the upper half of the hash, the bits take the lower.
    fn line_at(&self, hash: u64) -> usize {
        let line = (u128::from(hash) * u128::from(self.lines)) >> 64;
        self.first_word + saturate::<_, usize>(line) * LINE_WORDS
    }

    fn line(&self, hash: u64) -> Option<&[u64; LINE_WORDS]> {
        self.words.get(self.line_at(hash)..)?.first_chunk()
    }

    pub(crate) fn insert(&mut self, hash: u64) {
        let at = self.line_at(hash);
        if let Some(line) = self.words.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<LINE_WORDS>()) {
            for (word, bit) in line.iter_mut().zip(bits(hash)) {
                *word |= bit;
            }
        }
        self.ids += 1;
    }

    /// `false` when the hash was certainly never added.
    pub(crate) fn may_contain(&self, hash: u64) -> bool {
        self.line(hash).is_none_or(|line| line.iter().zip(bits(hash)).all(|(word, bit)| word & bit != 0))
    }
}

/// One bit for each word of a line. The hash is mixed once more, as its upper bits chose the line.
fn bits(hash: u64) -> impl Iterator<Item = u64> {
    let mixed = (hash ^ (hash >> 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (0..LINE_WORDS).map(move |word| 1_u64 << ((mixed >> (10 + 6 * word)) & 63))
}

/// A set of 64-bit hashes that may say "maybe" about one it does not hold, and never "no" about one it holds.
#[derive(Debug)]
pub(crate) struct IdFilter {
    tiers: Vec<BloomFilter>,
}

impl IdFilter {
    /// An empty filter; takes 1.5 MiB.
    pub(crate) fn new() -> Self {
        Self { tiers: vec![BloomFilter::new(FIRST_TIER_IDS, FIRST_TIER_BITS_PER_ID)] }
    }

    /// Adds a hash. One added before counts again.
    pub(crate) fn insert(&mut self, hash: u64) {
        if let Some(tier) = self.tiers.last_mut().filter(|tier| tier.ids < tier.ids_max) {
            tier.insert(hash);
            return;
        }
        let grown = self.tiers.len() as u64;
        let bits_per_id = (FIRST_TIER_BITS_PER_ID + grown).min(BITS_PER_ID_MAX);
        let mut tier = BloomFilter::new(FIRST_TIER_IDS << grown.min(32), bits_per_id);
        tier.insert(hash);
        self.tiers.push(tier);
    }

    /// `false` when the hash was certainly never added.
    pub(crate) fn may_contain(&self, hash: u64) -> bool {
        self.tiers.iter().rev().any(|tier| tier.may_contain(hash))
    }

    pub(crate) fn len(&self) -> u64 {
        self.tiers.iter().map(|tier| tier.ids).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hubbub_core::RandomSource;
    use hubbub_core::clock::SeededRandom;
    use proptest::prelude::*;

    #[test]
    fn few_strangers_pass() {
        for ids in [FIRST_TIER_IDS, 5_000_000] {
            let (mut filter, random) = (IdFilter::new(), SeededRandom::new(ids));
            let kept: Vec<u64> = (0..ids).map(|_| random.next_u64()).collect();
            kept.iter().for_each(|hash| filter.insert(*hash));
            assert!(kept.iter().all(|hash| filter.may_contain(*hash)));
            assert_eq!(filter.len(), ids);
            let words: usize = filter.tiers.iter().map(|tier| tier.words.len()).sum();
            let bytes = (words * size_of::<u64>()) as u64;
            assert!(bytes * 8 < ids * 24, "{bytes} bytes for {ids} ids");
            let asked = 1_000_000_u32;
            let passed: u32 = (0..asked).map(|_| u32::from(filter.may_contain(random.next_u64()))).sum();
            let share = f64::from(passed) / f64::from(asked);
            assert!(share < 0.01, "{share} with {ids} ids");
        }
    }

    #[test]
    fn lines_begin_where_the_processors_do() {
        let tier = BloomFilter::new(1_000, 12);
        assert_eq!(tier.words[tier.first_word..].as_ptr().align_offset(64), 0);
        assert!(tier.line(u64::MAX).is_some());
    }

    #[test]
    fn a_tier_comes_back_from_its_bytes() {
        let mut tier = BloomFilter::new(1_000, 10);
        (0..1_000_u64).for_each(|hash| tier.insert(hash.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
        let back = BloomFilter::from_bytes(&tier.to_bytes()).unwrap();
        for hash in (0..100_000_u64).map(|hash| hash.wrapping_mul(0x9E37_79B9_7F4A_7C15)) {
            assert_eq!(back.may_contain(hash), tier.may_contain(hash));
        }
        assert!(BloomFilter::from_bytes(&[0; 65]).is_none() && BloomFilter::from_bytes(&[]).is_none());
    }

    proptest! {
        #[test]
        fn nothing_added_is_denied(hashes in proptest::collection::vec(any::<u64>(), 0..2_000)) {
            let mut filter = IdFilter::new();
            hashes.iter().for_each(|hash| filter.insert(*hash));
            prop_assert!(hashes.iter().all(|hash| filter.may_contain(*hash)));
        }
    }
}
