//! The record of a change of rooms.
//!
//! ```text
//! kind u8 = 2 | what u8 | its parts in order: texts as length varint and bytes, numbers as varints, what may be
//! missing as 0 or value + 1 (a text as 0 or length + 1)
//! ```

use crate::embedded::file::varint::{self, read_text, write_text};

/// The kind byte of a change.
pub(super) const KIND_CHANGE: u8 = 2;

const PUT_ROOM: u8 = 1;
const DELETE_ROOM: u8 = 2;
const ADD_MEMBER: u8 = 3;
const REMOVE_MEMBER: u8 = 4;
const MARK_READ: u8 = 5;
const ERASE: u8 = 6;

/// Bytes that one number of an erasure takes at most, a room of its own included.
pub(crate) const ERASED_BYTES_MAX: usize = 64 + 3 * varint::VARINT_BYTES_MAX;

/// A change that was decided and is to be applied as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Logged<'a> {
    PutRoom {
        room: &'a str,
        /// Who becomes its first member if it is new.
        founder: Option<&'a str>,
        title: Option<&'a str>,
        members_only: Option<bool>,
        retention_s: Option<u64>,
    },
    DeleteRoom {
        room: &'a str,
    },
    AddMember {
        room: &'a str,
        user: &'a str,
    },
    RemoveMember {
        room: &'a str,
        user: &'a str,
    },
    MarkRead {
        room: &'a str,
        user: &'a str,
        seq: u64,
    },
    Erase {
        user: &'a str,
        /// Whether nothing of the user is left, so that memberships end too.
        is_last: bool,
        /// Rooms and, ascending, numbers of messages in them.
        seqs: Vec<(&'a str, Vec<u64>)>,
    },
}

impl<'a> Logged<'a> {
    /// Appends the record.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.push(KIND_CHANGE);
        match self {
            Self::PutRoom { room, founder, title, members_only, retention_s } => {
                out.push(PUT_ROOM);
                write_text(room, out);
                write_optional_text(*founder, out);
                write_optional_text(*title, out);
                write_optional(members_only.map(u64::from), out);
                write_optional(*retention_s, out);
            }
            Self::DeleteRoom { room } => {
                out.push(DELETE_ROOM);
                write_text(room, out);
            }
            Self::AddMember { room, user } => {
                out.push(ADD_MEMBER);
                write_text(room, out);
                write_text(user, out);
            }
            Self::RemoveMember { room, user } => {
                out.push(REMOVE_MEMBER);
                write_text(room, out);
                write_text(user, out);
            }
            Self::MarkRead { room, user, seq } => {
                out.push(MARK_READ);
                write_text(room, out);
                write_text(user, out);
                varint::write(*seq, out);
            }
            Self::Erase { user, is_last, seqs } => {
                out.push(ERASE);
                write_text(user, out);
                varint::write((*is_last).into(), out);
                varint::write(seqs.len() as u64, out);
                for (room, seqs) in seqs {
                    write_text(room, out);
                    varint::write(seqs.len() as u64, out);
                    let mut before = 0;
                    for seq in seqs {
                        varint::write(seq.wrapping_sub(before), out);
                        before = *seq;
                    }
                }
            }
        }
    }

    /// Takes a change off the front of `input`; `None` when the bytes are not one.
    pub(super) fn read(input: &mut &'a [u8]) -> Option<Self> {
        let (&[kind, what], mut rest) = input.split_first_chunk::<2>()?;
        if kind != KIND_CHANGE {
            return None;
        }
        let from = &mut rest;
        let logged = match what {
            PUT_ROOM => Self::PutRoom {
                room: read_text(from)?,
                founder: read_optional_text(from)?,
                title: read_optional_text(from)?,
                members_only: read_optional(from)?.map(|flag| flag != 0),
                retention_s: read_optional(from)?,
            },
            DELETE_ROOM => Self::DeleteRoom { room: read_text(from)? },
            ADD_MEMBER => Self::AddMember { room: read_text(from)?, user: read_text(from)? },
            REMOVE_MEMBER => Self::RemoveMember { room: read_text(from)?, user: read_text(from)? },
            MARK_READ => {
                Self::MarkRead { room: read_text(from)?, user: read_text(from)?, seq: varint::read(from)? }
            }
            ERASE => Self::Erase {
                user: read_text(from)?,
                is_last: varint::read(from)? != 0,
                seqs: read_seqs(from)?,
            },
            _ => return None,
        };
        *input = rest;
        Some(logged)
    }
}

fn read_seqs<'a>(from: &mut &'a [u8]) -> Option<Vec<(&'a str, Vec<u64>)>> {
    let mut rooms = Vec::new();
    for _ in 0..varint::read(from)? {
        let room = read_text(from)?;
        let (mut seqs, mut seq) = (Vec::new(), 0_u64);
        for _ in 0..varint::read(from)? {
            seq = seq.wrapping_add(varint::read(from)?);
            seqs.push(seq);
        }
        rooms.push((room, seqs));
    }
    Some(rooms)
}

fn write_optional_text(text: Option<&str>, out: &mut Vec<u8>) {
    varint::write(text.map_or(0, |text| text.len() as u64 + 1), out);
    out.extend_from_slice(text.unwrap_or_default().as_bytes());
}

fn write_optional(number: Option<u64>, out: &mut Vec<u8>) {
    varint::write(number.map_or(0, |number| number.saturating_add(1)), out);
}

fn read_optional_text<'a>(from: &mut &'a [u8]) -> Option<Option<&'a str>> {
    Some(match varint::read(from)? {
        0 => None,
        more => Some(varint::take_text(from, more - 1)?),
    })
}

fn read_optional(from: &mut &[u8]) -> Option<Option<u64>> {
    Some(varint::read(from)?.checked_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn changes_come_back(
            room in "[a-z]{1,64}",
            user in "[a-z]{1,64}",
            title in proptest::option::of("\\PC{0,60}"),
            number: Option<u32>,
            flag: Option<bool>,
            seqs in proptest::collection::vec(proptest::collection::btree_set(any::<u64>(), 0..9), 0..4),
        ) {
            let (room, user) = (room.as_str(), user.as_str());
            let retention_s = number.map(u64::from);
            let seqs = seqs.into_iter().map(|seqs| (room, seqs.into_iter().collect())).collect::<Vec<_>>();
            let numbers: usize = seqs.iter().map(|(_, seqs): &(_, Vec<u64>)| seqs.len()).sum();
            let erase_bytes_max = (numbers + seqs.len()) * ERASED_BYTES_MAX + 100;
            for logged in [
                Logged::PutRoom { room, founder: flag.map(|_| user), title: title.as_deref(), members_only: flag, retention_s },
                Logged::DeleteRoom { room },
                Logged::AddMember { room, user },
                Logged::RemoveMember { room, user },
                Logged::MarkRead { room, user, seq: u64::MAX },
                Logged::Erase { user, is_last: flag.is_some(), seqs: seqs.clone() },
            ] {
                let mut bytes = Vec::new();
                logged.write(&mut bytes);
                let is_erasure = matches!(logged, Logged::Erase { .. });
                prop_assert!(!is_erasure || bytes.len() <= erase_bytes_max);
                bytes.push(9);
                let mut input = bytes.as_slice();
                prop_assert_eq!(super::super::read(&mut input), Some(super::super::Record::Change(logged)));
                prop_assert_eq!(input, &[9]);
                prop_assert_eq!(Logged::read(&mut &bytes[..bytes.len() - 2]), None);
            }
        }

        #[test]
        fn any_bytes_are_read_without_panic(what in 0_u8..9, bytes in proptest::collection::vec(any::<u8>(), 0..99)) {
            let mut change = vec![KIND_CHANGE, what];
            change.extend_from_slice(&bytes);
            let _ = super::super::read(&mut change.as_slice());
        }
    }
}
