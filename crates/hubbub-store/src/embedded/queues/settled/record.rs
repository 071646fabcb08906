//! One remembered id, and how it stands in a file.

use crate::embedded::file::Cursor;
use crate::embedded::queues::entry::Entry;
use crate::embedded::record::write_fingerprint;

pub(super) const RECORD_BYTES: usize = 48;

/// What is remembered of a message that is gone and had an id of its sender's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SettledId {
    /// Hash of the queue's number and the sender's id.
    pub(crate) known_as: [u64; 2],
    /// Hash of what it said, to tell a repeat from another message.
    pub(crate) content: u32,
    pub(crate) copies: u32,
    /// The message's id; that of the first copy.
    pub(crate) id: u64,
    /// Microseconds of the wall clock.
    pub(crate) sent_at: i64,
    /// When it is forgotten: in memory microseconds of [`crate::embedded::queues::time`], in a file of the wall clock.
    pub(crate) forget_at: i64,
}

impl SettledId {
    /// That of a message which has an id of its sender's.
    pub(in crate::embedded::queues) fn of(entry: &Entry, copies: u32, forget_at: i64) -> Self {
        let &Entry { known_as, content, id, sent_at, .. } = entry;
        Self { known_as, content, copies, id, sent_at, forget_at }
    }

    /// Appends it as it stands in a file.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        write_fingerprint(&(self.known_as, self.content), out);
        out.extend_from_slice(&self.copies.to_le_bytes());
        for number in [self.id, self.sent_at.cast_unsigned(), self.forget_at.cast_unsigned()] {
            out.extend_from_slice(&number.to_le_bytes());
        }
    }

    /// The inverse of [`Self::write`].
    pub(super) fn read(bytes: &[u8; RECORD_BYTES]) -> Option<Self> {
        let mut from = Cursor::new(bytes);
        Some(Self {
            known_as: [from.u64()?, from.u64()?],
            content: from.u32()?,
            copies: from.u32()?,
            id: from.u64()?,
            sent_at: from.i64()?,
            forget_at: from.i64()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back() {
        let record = SettledId {
            known_as: [u64::MAX - 1, 2],
            content: 3,
            copies: u32::MAX,
            id: 1 << 60,
            sent_at: -5,
            forget_at: i64::MAX,
        };
        let mut bytes = Vec::new();
        record.write(&mut bytes);
        assert_eq!(SettledId::read(bytes.as_slice().try_into().unwrap()), Some(record));
    }
}
