//! Numbers in as few bytes as they need: LEB128, seven bits to a byte, the lowest first.

/// Longest form of a `u64`.
pub(crate) const VARINT_BYTES_MAX: usize = 10;

/// Appends `value`.
pub(crate) fn write(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(low_byte(value) | 0x80);
        value >>= 7;
    }
    out.push(low_byte(value));
}

/// Takes a number off the front of `input`; `None` when it is cut short or longer than a `u64`.
#[inline]
pub(crate) fn read(input: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = input.split_first()?;
        *input = rest;
        if shift == 63 && *byte > 1 {
            return None;
        }
        value |= u64::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Small differences of either sign as small numbers.
pub(crate) const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

/// The inverse of [`zigzag`].
pub(crate) const fn unzigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -((value & 1).cast_signed())
}

/// The lowest eight bits.
const fn low_byte(value: u64) -> u8 {
    let [byte, ..] = value.to_le_bytes();
    byte
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_come_back(value: u64, signed: i64) {
            let mut bytes = Vec::new();
            write(value, &mut bytes);
            prop_assert!(bytes.len() <= VARINT_BYTES_MAX);
            let mut input = bytes.as_slice();
            prop_assert_eq!(read(&mut input), Some(value));
            prop_assert!(input.is_empty());
            prop_assert_eq!(read(&mut &bytes[..bytes.len() - 1]), None);
            prop_assert_eq!(unzigzag(zigzag(signed)), signed);
        }
    }

    #[test]
    fn a_number_beyond_u64_is_refused() {
        assert_eq!(read(&mut [0xFF; 11].as_slice()), None);
        assert_eq!(read(&mut [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 2].as_slice()), None);
    }
}
