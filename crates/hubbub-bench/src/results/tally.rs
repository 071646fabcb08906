//! Which messages there were, in whatever order.

/// How many messages, and a sum over all of them: where one is lost and another doubled, only the sum is another one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) count: u64,
    sum: u64,
}

impl Tally {
    /// Adds a message by its number in the run.
    pub(crate) fn add(&mut self, index: u64) {
        self.count += 1;
        self.sum = self.sum.wrapping_add(mixed(index));
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.count += other.count;
        self.sum = self.sum.wrapping_add(other.sum);
    }
}

/// Numbers as they are would balance each other, 1 + 4 = 2 + 3: the finalizer of SplitMix64, which is one to one.
fn mixed(index: u64) -> u64 {
    let bits = (index ^ (index >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(indexes: &[u64]) -> Tally {
        let mut tally = Tally::default();
        indexes.iter().for_each(|index| tally.add(*index));
        tally
    }

    #[test]
    fn what_is_lost_is_not_made_up_for_by_what_is_doubled() {
        let all = of(&[0, 1, 2, 3, 4]);
        assert_eq!(of(&[4, 2, 0, 1, 3]), all);
        for wrong in
            [&[0, 1, 2, 3][..], &[0, 1, 2, 3, 3], &[0, 2, 2, 3, 3], &[1, 1, 2, 3, 4], &[0, 1, 2, 3, 5]]
        {
            assert_ne!(of(wrong), all, "{wrong:?}");
        }
        let mut merged = of(&[3, 1]);
        merged.merge(of(&[0, 4, 2]));
        assert_eq!(merged, all);
    }
}
