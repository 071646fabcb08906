//! Sets of clients, in chunks of 1,024 numbers: a bit for each, in the order that `get_bit` of a `bytea` counts them in.

use hubbub_core::invariant::saturate;
/// Clients of one chunk.
pub(crate) const CHUNK: i32 = 1_024;

const BYTES: usize = 128;

/// Clients of one chunk, by the last bits of their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Members([u8; BYTES]);

impl Default for Members {
    fn default() -> Self {
        Self([0; BYTES])
    }
}

/// The chunk of a client, and the bit in it.
pub(crate) fn chunk_of(client: i32) -> (i32, i32) {
    (client.div_euclid(CHUNK), client.rem_euclid(CHUNK))
}

fn place(bit: i32) -> (usize, u8) {
    let bit = saturate::<_, usize>(bit) % (BYTES * 8);
    (bit / 8, 1 << (bit % 8))
}

impl Members {
    /// What stands in the database; bytes that are missing are 0.
    pub(crate) fn of_bytes(bytes: &[u8]) -> Self {
        let mut members = Self::default();
        members.0.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        members
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn has(&self, bit: i32) -> bool {
        let (byte, mask) = place(bit);
        self.0.get(byte).is_some_and(|byte| byte & mask != 0)
    }

    pub(crate) fn set(&mut self, bit: i32, to: bool) {
        let (byte, mask) = place(bit);
        let Some(byte) = self.0.get_mut(byte) else { return };
        *byte = if to { *byte | mask } else { *byte & !mask };
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|byte| *byte == 0)
    }

    pub(crate) fn count(&self) -> i64 {
        self.0.iter().map(|byte| i64::from(byte.count_ones())).sum()
    }

    /// Bits that are set, in their order.
    pub(crate) fn bits(&self) -> impl Iterator<Item = i32> + '_ {
        (0..CHUNK).filter(|bit| self.has(*bit))
    }

    /// How many are set before a bit.
    pub(crate) fn rank(&self, bit: i32) -> i64 {
        saturate::<_, i64>(self.bits().take_while(|other| *other < bit).count())
    }

    /// The bit that so many others are set before.
    pub(crate) fn at_rank(&self, rank: i64) -> Option<i32> {
        self.bits().nth(usize::try_from(rank).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_and_bits_are_of_the_same_order() {
        let mut members = Members::default();
        for bit in [0, 7, 8, 500, 1_023] {
            members.set(bit, true);
        }
        members.set(8, false);
        assert_eq!(members.bits().collect::<Vec<_>>(), [0, 7, 500, 1_023]);
        assert_eq!((members.count(), members.rank(500), members.at_rank(3)), (4, 2, Some(1_023)));
        assert_eq!((members.at_rank(4), Members::of_bytes(members.bytes())), (None, members));
        assert_eq!((chunk_of(1_024), chunk_of(1_023)), ((1, 0), (0, 1_023)));
    }
}
