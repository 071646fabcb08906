//! The partition of the log that a room is in: murmur2 of its name, as Kafka's own clients choose it for a record with that key.
//! So the keyed records of other programs are in the same partition, if they use that hash, too.

/// The partition of `room` among `partitions`, or of what the bus tells of the user with this id.
pub fn of_room(room: &str, partitions: u32) -> u32 {
    (murmur2(room.as_bytes()) & 0x7fff_ffff) % partitions.max(1)
}

const M: u32 = 0x5bd1_e995;

/// MurmurHash2 with Kafka's seed.
pub fn murmur2(data: &[u8]) -> u32 {
    let mut hash = 0x9747_b28c ^ crate::invariant::saturate::<usize, u32>(data.len());
    let (words, rest) = data.as_chunks::<4>();
    for word in words {
        let k = u32::from_le_bytes(*word).wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ (k ^ (k >> 24)).wrapping_mul(M);
    }
    if !rest.is_empty() {
        for (index, byte) in rest.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * index);
        }
        hash = hash.wrapping_mul(M);
    }
    hash = (hash ^ (hash >> 13)).wrapping_mul(M);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the tests of Kafka's Java client.
    #[test]
    fn the_hash_is_kafkas() {
        for (text, hash) in [
            ("21", -973_932_308_i32),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
        ] {
            assert_eq!(murmur2(text.as_bytes()), hash.cast_unsigned(), "{text}");
            assert!(of_room(text, 12) < 12);
        }
    }
}
