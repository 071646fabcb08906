//! Numbers in as few bytes as they need: LEB128, seven bits to a byte, the lowest first.

/// Longest form of a `u64`.
pub(crate) const VARINT_BYTES_MAX: usize = 10;

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

/// Appends bytes behind their length.
pub(crate) fn write_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    write(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Takes bytes of that length off the front of `input`; `None` when there are not so many.
fn take_bytes<'a>(input: &mut &'a [u8], length: u64) -> Option<&'a [u8]> {
    let (bytes, rest) = input.split_at_checked(usize::try_from(length).ok()?)?;
    *input = rest;
    Some(bytes)
}

pub(crate) fn read_bytes<'a>(input: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = read(input)?;
    take_bytes(input, length)
}

/// Takes a string of that length off the front of `input`.
pub(crate) fn take_text<'a>(input: &mut &'a [u8], length: u64) -> Option<&'a str> {
    std::str::from_utf8(take_bytes(input, length)?).ok()
}

/// Appends a string behind its length.
pub(crate) fn write_text(text: &str, out: &mut Vec<u8>) {
    write_bytes(text.as_bytes(), out);
}

pub(crate) fn read_text<'a>(input: &mut &'a [u8]) -> Option<&'a str> {
    std::str::from_utf8(read_bytes(input)?).ok()
}

/// Appends numbers behind their count.
pub(crate) fn write_list(numbers: &[u64], out: &mut Vec<u8>) {
    write(numbers.len() as u64, out);
    numbers.iter().for_each(|number| write(*number, out));
}

pub(crate) fn read_list(input: &mut &[u8]) -> Option<Vec<u64>> {
    let mut numbers = Vec::new();
    for _ in 0..read(input)? {
        numbers.push(read(input)?);
    }
    Some(numbers)
}

/// Small differences of either sign as small numbers.
pub(crate) const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

/// Appends a difference so that small ones of either sign are short.
pub(crate) fn write_zigzag(value: i64, out: &mut Vec<u8>) {
    write(zigzag(value), out);
}

pub(crate) const fn unzigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -((value & 1).cast_signed())
}

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

        #[test]
        fn texts_and_lists_come_back(text in "\\PC{0,200}", numbers in proptest::collection::vec(any::<u64>(), 0..20)) {
            let mut bytes = Vec::new();
            write_text(&text, &mut bytes);
            write_list(&numbers, &mut bytes);
            let mut input = bytes.as_slice();
            prop_assert_eq!(read_text(&mut input), Some(text.as_str()));
            prop_assert_eq!(read_list(&mut input), Some(numbers));
            prop_assert!(input.is_empty());
            prop_assert_eq!(read_bytes(&mut [3, 1, 2].as_slice()), None);
        }
    }

    #[test]
    fn a_number_beyond_u64_is_refused() {
        assert_eq!(read(&mut [0xFF; 11].as_slice()), None);
        assert_eq!(read(&mut [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 2].as_slice()), None);
    }
}
