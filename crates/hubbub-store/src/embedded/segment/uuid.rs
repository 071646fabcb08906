//! Ids that are UUIDs, in 16 bytes.

pub(super) const UUID_BYTES: usize = 16;
pub(super) const UUID_TEXT_BYTES: usize = 36;

/// Where the two digits of each byte stand in the canonical form.
const PLACES: [usize; UUID_BYTES] = [0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34];
const DASHES: [usize; 4] = [8, 13, 18, 23];

/// Stands for "no digit" in [`VALUES`]; no digit has its upper bits.
const NO_DIGIT: u8 = 0xFF;
const VALUES: [u8; 256] = digit_values();
const DIGITS: [[u8; 2]; 256] = digit_pairs();

/// The 16 bytes of a canonical lower-case UUID; `None` for any other id.
#[inline]
pub(super) fn pack_uuid(id: &str) -> Option<[u8; UUID_BYTES]> {
    let text: &[u8; UUID_TEXT_BYTES] = id.as_bytes().try_into().ok()?;
    if !DASHES.iter().all(|place| text.get(*place) == Some(&b'-')) {
        return None;
    }
    let value = |place: usize| {
        let digit = text.get(place).copied().unwrap_or(0);
        VALUES.get(usize::from(digit)).copied().unwrap_or(NO_DIGIT)
    };
    let mut seen = 0;
    let packed = PLACES.map(|place| {
        let (high, low) = (value(place), value(place + 1));
        seen |= high | low;
        high << 4 | low
    });
    (seen < 0x10).then_some(packed)
}

/// The canonical form of 16 bytes.
#[inline]
pub(super) fn unpack_uuid(packed: [u8; UUID_BYTES]) -> [u8; UUID_TEXT_BYTES] {
    let mut text = [b'-'; UUID_TEXT_BYTES];
    for (byte, place) in packed.into_iter().zip(PLACES) {
        let digits = DIGITS.get(usize::from(byte)).copied().unwrap_or_default();
        if let Some(two) = text.get_mut(place..place + 2) {
            two.copy_from_slice(&digits);
        }
    }
    text
}

const HEX: &[u8; 16] = b"0123456789abcdef";

#[allow(clippy::indexing_slicing)] // evaluated at compile time
const fn digit_values() -> [u8; 256] {
    let mut values = [NO_DIGIT; 256];
    let mut value = 0_u8;
    while value < 16 {
        values[HEX[value as usize] as usize] = value;
        value += 1;
    }
    values
}

#[allow(clippy::indexing_slicing)] // evaluated at compile time
const fn digit_pairs() -> [[u8; 2]; 256] {
    let mut pairs = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        pairs[byte] = [HEX[byte >> 4], HEX[byte & 15]];
        byte += 1;
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_canonical_uuids_are_packed() {
        for other in [
            "",
            "0198-1",
            "01980000-0001-7000-8000-00000000000g",
            "01980000-0001-7000-8000-00000000000A",
            "01980000a0001-7000-8000-000000000001",
            "-1980000-0001-7000-8000-000000000001",
        ] {
            assert_eq!(pack_uuid(other), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn uuids_come_back(packed in any::<[u8; 16]>()) {
            let text = unpack_uuid(packed);
            prop_assert_eq!(pack_uuid(std::str::from_utf8(&text).unwrap()), Some(packed));
        }
    }
}
