//! Ids that are UUIDs, in 16 bytes.

use uuid::Uuid;

pub(super) const UUID_BYTES: usize = 16;
pub(super) const UUID_TEXT_BYTES: usize = uuid::fmt::Hyphenated::LENGTH;

/// The 16 bytes of a canonical lower-case UUID; `None` for any other id.
#[inline]
pub(super) fn pack_uuid(id: &str) -> Option<[u8; UUID_BYTES]> {
    // Of this length no other form is parsed than the canonical one, in either case.
    if id.len() != UUID_TEXT_BYTES || id.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return None;
    }
    Uuid::try_parse_ascii(id.as_bytes()).ok().map(Uuid::into_bytes)
}

/// The canonical form of 16 bytes.
#[inline]
pub(super) fn unpack_uuid(packed: [u8; UUID_BYTES]) -> [u8; UUID_TEXT_BYTES] {
    let mut text = [0; UUID_TEXT_BYTES];
    Uuid::from_bytes(packed).hyphenated().encode_lower(&mut text);
    text
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
