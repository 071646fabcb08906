//! Identifiers: strings of `[A-Za-z0-9_.:@-]{1,64}`, checked once, then trusted by their type.

use std::fmt;
use std::sync::Arc;

use uuid::{Builder, Uuid};

use crate::clock::RandomSource;
use crate::time::Timestamp;

/// Longest identifier, in bytes (all its characters are ASCII).
pub const ID_BYTES_MAX: usize = 64;

/// The rule of [`is_valid_id`], for people.
pub const ID_RULE: &str = "must be 1 to 64 characters out of A-Z a-z 0-9 _ . : @ -";

/// Whether `text` may be a room, user or message id.
pub fn is_valid_id(text: &str) -> bool {
    (1..=ID_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b':' | b'@' | b'-'))
}

/// The text is not a valid identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{ID_RULE}")]
pub struct InvalidId;

macro_rules! id_types {
    ($($(#[$doc:meta])* $name:ident;)*) => { $(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks `text` against [`ID_RULE`].
            pub fn new(text: &str) -> Result<Self, InvalidId> {
                if is_valid_id(text) { Ok(Self(Arc::from(text))) } else { Err(InvalidId) }
            }

            /// The identifier as it is written on the wire.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    )* };
}

id_types! {
    /// Names a room.
    RoomId;
    /// Names a user who sends or reads.
    UserId;
    /// Names a queue.
    QueueId;
    /// Names a client of queues.
    ClientId;
    /// Names a message of a room.
    MessageId;
}

/// Writes a UUIDv7 (RFC 9562 §5.7) in its canonical form: the id of a message whose sender gave none.
pub fn write_uuid_v7(now: Timestamp, random: &dyn RandomSource, out: &mut String) {
    let millis = now.as_micros().max(0).cast_unsigned() / 1_000;
    let [.., a1, a0] = random.next_u64().to_be_bytes();
    let [b7, b6, b5, b4, b3, b2, b1, b0] = random.next_u64().to_be_bytes();
    let uuid =
        Builder::from_unix_timestamp_millis(millis, &[a1, a0, b7, b6, b5, b4, b3, b2, b1, b0]).into_uuid();
    out.push_str(uuid.hyphenated().encode_lower(&mut Uuid::encode_buffer()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SeededRandom;

    #[test]
    fn ids_follow_the_rule() {
        for good in ["a", "team-1", "A.b:c@d_e-9", &"x".repeat(64)] {
            assert!(is_valid_id(good), "{good}");
        }
        for bad in ["", "a b", "ä", "a/b", "a\0", &"x".repeat(65)] {
            assert!(!is_valid_id(bad), "{bad}");
        }
    }

    #[test]
    fn uuid_v7_has_version_variant_and_time() {
        let mut text = String::new();
        write_uuid_v7(Timestamp::from_micros(0x0198_0000_0001 * 1_000), &SeededRandom::new(7), &mut text);
        assert_eq!(text.len(), 36);
        assert!(text.starts_with("01980000-0001-7"), "{text}");
        assert!(matches!(text.as_bytes()[19], b'8' | b'9' | b'a' | b'b'), "{text}");
        assert!(is_valid_id(&text));
    }
}
