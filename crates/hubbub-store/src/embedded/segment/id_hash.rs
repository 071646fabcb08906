//! Hashes of message ids and keys, keyed so that a sender cannot aim at collisions.

use siphasher::sip::SipHasher13;

use hubbub_core::id::ID_BYTES_MAX;

/// Hashes (room, message id) with a key that belongs to the data directory. Another key makes every id table and
/// filter worthless, so it is kept as long as the data.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IdHasher {
    sip: SipHasher13,
}

impl IdHasher {
    pub(crate) fn new(key: [u64; 2]) -> Self {
        let [first, second] = key;
        Self { sip: SipHasher13::new_with_keys(first, second) }
    }

    #[inline]
    pub(crate) fn hash_key(&self, key: &[u8]) -> u64 {
        self.sip.hash(key)
    }

    #[inline]
    pub(crate) fn hash(&self, room: &str, id: &str) -> u64 {
        // Neither holds 0xFF, so no two pairs look alike.
        let mut joined = [0xFF_u8; 2 * ID_BYTES_MAX + 1];
        let end = room.len() + 1 + id.len();
        if let Some(first) = joined.get_mut(..room.len()) {
            first.copy_from_slice(room.as_bytes());
        }
        if let Some(second) = joined.get_mut(room.len() + 1..end) {
            second.copy_from_slice(id.as_bytes());
        }
        self.sip.hash(joined.get(..end).unwrap_or(&joined))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_id_and_key_all_count() {
        let hasher = IdHasher::new([1, 2]);
        let hash = hasher.hash("ab", "c");
        assert_eq!(hash, IdHasher::new([1, 2]).hash("ab", "c"));
        assert_ne!(hash, hasher.hash("a", "bc"));
        assert_ne!(hash, hasher.hash("ab", "d"));
        assert_ne!(hash, IdHasher::new([1, 3]).hash("ab", "c"));
        let longest = "x".repeat(ID_BYTES_MAX);
        assert_ne!(hasher.hash(&longest, &longest), hasher.hash(&longest, "x"));
    }
}
