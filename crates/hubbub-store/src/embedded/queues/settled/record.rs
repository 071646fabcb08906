//! One remembered id, and how it stands in a file.

use crate::embedded::queues::entry::Entry;

pub(super) const RECORD_BYTES: usize = 48;

/// What is remembered of a message that is gone and had an id of its sender's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::embedded::queues) struct SettledId {
    /// Hash of the queue's number and the sender's id.
    pub(in crate::embedded::queues) known_as: [u64; 2],
    /// Hash of what it said, to tell a repeat from another message.
    pub(in crate::embedded::queues) content: u32,
    pub(in crate::embedded::queues) copies: u32,
    /// The message's id; that of the first copy.
    pub(in crate::embedded::queues) id: u64,
    /// Microseconds of the wall clock.
    pub(in crate::embedded::queues) sent_at: i64,
    /// When it is forgotten: in memory microseconds of [`crate::embedded::queues::time`], in a file of the wall clock.
    pub(in crate::embedded::queues) forget_at: i64,
}

impl SettledId {
    /// That of a message which has an id of its sender's.
    pub(in crate::embedded::queues) fn of(entry: &Entry, copies: u32, forget_at: i64) -> Self {
        let &Entry { known_as, content, id, sent_at, .. } = entry;
        Self { known_as, content, copies, id, sent_at, forget_at }
    }

    /// Appends it as it stands in a file.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let [first, second] = self.known_as;
        out.extend_from_slice(&first.to_le_bytes());
        out.extend_from_slice(&second.to_le_bytes());
        out.extend_from_slice(&self.content.to_le_bytes());
        out.extend_from_slice(&self.copies.to_le_bytes());
        out.extend_from_slice(&self.id.to_le_bytes());
        out.extend_from_slice(&self.sent_at.to_le_bytes());
        out.extend_from_slice(&self.forget_at.to_le_bytes());
    }

    /// The inverse of [`Self::write`].
    pub(super) fn read(bytes: &[u8; RECORD_BYTES]) -> Self {
        let (words, _) = bytes.as_chunks::<8>();
        let word = |place: usize| words.get(place).copied().map_or(0, u64::from_le_bytes);
        let (parts, _) = bytes.as_chunks::<4>();
        let part = |place: usize| parts.get(place).copied().map_or(0, u32::from_le_bytes);
        Self {
            known_as: [word(0), word(1)],
            content: part(4),
            copies: part(5),
            id: word(3),
            sent_at: word(4).cast_signed(),
            forget_at: word(5).cast_signed(),
        }
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
        assert_eq!(SettledId::read(bytes.as_slice().try_into().unwrap()), record);
    }
}
