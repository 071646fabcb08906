//! A change of a key, as it was decided.
//!
//! ```text
//! kind u8 = 4 | flags u8: bits 0-1 what (0 put, 1 deleted, 2 expired), bit 2 runs out, bit 3 the key is new
//! | length of the key varint | revision varint | put: length of the value varint, [when it runs out i64 LE] | key | value
//! ```

use hubbub_core::Timestamp;
use hubbub_core::kv::KvChanged;
pub(crate) use hubbub_core::rules::keys::KeyChange;

use crate::embedded::file::varint;

pub(super) const KIND_KEY: u8 = 4;

const WHAT: u8 = 3;
const PUT: u8 = 0;
const DELETED: u8 = 1;
const EXPIRED: u8 = 2;
const RUNS_OUT: u8 = 4;
const NEW: u8 = 8;

/// Bytes that the record of a deletion takes besides its key, at most.
pub(crate) const KEY_GONE_BYTES_MAX: usize = 2 + 2 * varint::VARINT_BYTES_MAX;

pub(crate) fn write_key_change(change: &KeyChange<'_>, out: &mut Vec<u8>) {
    let what = code_of(change.what);
    let runs_out = if change.expires_at.is_some() { RUNS_OUT } else { 0 };
    let new = if change.is_new { NEW } else { 0 };
    out.extend_from_slice(&[KIND_KEY, what | runs_out | new]);
    varint::write(change.key.len() as u64, out);
    varint::write(change.revision, out);
    if what == PUT {
        varint::write(change.value.len() as u64, out);
    }
    if let Some(expires) = change.expires_at.map(Timestamp::as_micros) {
        out.extend_from_slice(&expires.to_le_bytes());
    }
    out.extend_from_slice(change.key);
    if what == PUT {
        out.extend_from_slice(change.value);
    }
}

/// Takes a change off the front of `input`; `None` when it is none.
pub(crate) fn read_key_change<'a>(input: &mut &'a [u8]) -> Option<KeyChange<'a>> {
    let (&[kind, flags], mut rest) = input.split_first_chunk::<2>()?;
    if kind != KIND_KEY {
        return None;
    }
    let what = from_code(flags & WHAT)?;
    let key = usize::try_from(varint::read(&mut rest)?).ok()?;
    let revision = varint::read(&mut rest)?;
    let value = if what == KvChanged::Put { usize::try_from(varint::read(&mut rest)?).ok()? } else { 0 };
    let expires_at = if flags & RUNS_OUT != 0 {
        let (expires, after) = rest.split_first_chunk()?;
        rest = after;
        Some(Timestamp::from_micros(i64::from_le_bytes(*expires)))
    } else {
        None
    };
    let (key, rest) = rest.split_at_checked(key)?;
    let (value, rest) = rest.split_at_checked(value)?;
    *input = rest;
    Some(KeyChange { key, revision, what, value, expires_at, is_new: flags & NEW != 0 })
}

/// What a change of a key is called in records and logs.
pub(crate) fn code_of(what: KvChanged) -> u8 {
    match what {
        KvChanged::Put => PUT,
        KvChanged::Deleted => DELETED,
        KvChanged::Expired => EXPIRED,
    }
}

pub(crate) fn from_code(code: u8) -> Option<KvChanged> {
    [KvChanged::Put, KvChanged::Deleted, KvChanged::Expired].into_iter().find(|what| code_of(*what) == code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded::record::{self, RECORD_OVERHEAD_MAX, Record};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn changes_of_keys_come_back(
            key in proptest::collection::vec(any::<u8>(), 1..600),
            value in proptest::collection::vec(any::<u8>(), 0..300),
            revision: u64,
            expires: Option<i64>,
            is_new: bool,
        ) {
            for what in [KvChanged::Put, KvChanged::Deleted, KvChanged::Expired] {
                let is_put = what == KvChanged::Put;
                let change = KeyChange {
                    key: &key,
                    revision,
                    what,
                    value: if is_put { &value } else { &[] },
                    expires_at: expires.filter(|_| is_put).map(Timestamp::from_micros),
                    is_new: is_new && is_put,
                };
                let mut bytes = Vec::new();
                write_key_change(&change, &mut bytes);
                let overhead = if is_put { RECORD_OVERHEAD_MAX } else { KEY_GONE_BYTES_MAX };
                prop_assert!(bytes.len() <= key.len() + change.value.len() + overhead);
                bytes.push(9);
                let mut input = bytes.as_slice();
                prop_assert_eq!(record::read(&mut input), Some(Record::Key(change)));
                prop_assert_eq!(input, &[9]);
                prop_assert_eq!(read_key_change(&mut &bytes[..bytes.len() - 2]), None);
            }
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..99)) {
            let mut change = vec![KIND_KEY];
            change.extend_from_slice(&bytes);
            let _ = record::read(&mut change.as_slice());
        }
    }
}
