//! A change of rooms, as it was decided: by an operation, or by age.
//!
//! ```text
//! kind u8 = 2 | what u8 | its parts in order: texts as length varint and bytes, numbers as varints, what may be
//! missing as 0 or value + 1 (a text as 0 or length + 1)
//! ```

use hubbub_core::invariant::broken;
use hubbub_core::{Change, RoomChange, RoomSettings};

use crate::embedded::file::varint::{self, read_text, write_text};

pub(super) const KIND_CHANGE: u8 = 2;

const PUT_ROOM: u8 = 1;
const DELETE_ROOM: u8 = 2;
const ADD_MEMBER: u8 = 3;
const REMOVE_MEMBER: u8 = 4;
const MARK_READ: u8 = 5;
const ERASE: u8 = 6;
const EXPIRE: u8 = 7;

/// Bytes that one number of an erasure or expiry takes at most, a room of its own included.
pub(crate) const SEQ_BYTES_MAX: usize = 64 + 3 * varint::VARINT_BYTES_MAX;

/// A change of rooms in the journal. It was decided and is to be applied as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ChangeRecord<'a> {
    Room(Change<'a>),
    Erasure {
        user: &'a str,
        /// Whether nothing of the user is left, so that memberships end too.
        is_last: bool,
        /// Rooms and, ascending, numbers of messages in them.
        seqs: Vec<(&'a str, Vec<u64>)>,
    },
    /// Rooms, and up to which number their messages are too old. By the clock and the settings of that time: a later start
    /// may have others, and shows nothing again whose id may be used anew.
    Expiry(Vec<(&'a str, u64)>),
}

impl<'a> ChangeRecord<'a> {
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Room(change) => write_room_change(change, out),
            Self::Erasure { user, is_last, seqs } => {
                out.extend_from_slice(&[KIND_CHANGE, ERASE]);
                write_text(user, out);
                varint::write((*is_last).into(), out);
                write_seqs(seqs, out);
            }
            Self::Expiry(rooms) => {
                out.extend_from_slice(&[KIND_CHANGE, EXPIRE]);
                varint::write(rooms.len() as u64, out);
                for (room, through) in rooms {
                    write_text(room, out);
                    varint::write(*through, out);
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
        let record = match what {
            ERASE => Self::Erasure {
                user: read_text(&mut rest)?,
                is_last: varint::read(&mut rest)? != 0,
                seqs: read_seqs(&mut rest)?,
            },
            EXPIRE => Self::Expiry(read_expiry(&mut rest)?),
            what => Self::Room(read_room_change(what, &mut rest)?),
        };
        *input = rest;
        Some(record)
    }
}

/// The author is kept for a new room only, whose first member it becomes.
fn write_room_change(change: &Change<'_>, out: &mut Vec<u8>) {
    let what = match change.what {
        RoomChange::PutRoom { .. } => PUT_ROOM,
        RoomChange::DeleteRoom { .. } => DELETE_ROOM,
        RoomChange::AddMember { .. } => ADD_MEMBER,
        RoomChange::RemoveMember { .. } => REMOVE_MEMBER,
        RoomChange::MarkRead { .. } => MARK_READ,
        RoomChange::EraseUser { .. } => {
            broken("an erasure has a record of its own");
            return;
        }
        RoomChange::ExpireMessages { .. } => {
            broken("an expiry has a record of its own");
            return;
        }
    };
    out.extend_from_slice(&[KIND_CHANGE, what]);
    write_text(change.room().unwrap_or_default(), out);
    match change.what {
        RoomChange::PutRoom { settings, .. } => {
            write_optional_text(change.by, out);
            write_optional_text(settings.title, out);
            write_optional(settings.members_only.map(u64::from), out);
            write_optional(settings.retention_s, out);
        }
        RoomChange::DeleteRoom { .. } | RoomChange::EraseUser { .. } | RoomChange::ExpireMessages { .. } => {}
        RoomChange::AddMember { user, .. } | RoomChange::RemoveMember { user, .. } => write_text(user, out),
        RoomChange::MarkRead { user, seq, .. } => {
            write_text(user, out);
            varint::write(seq, out);
        }
    }
}

fn read_room_change<'a>(what: u8, from: &mut &'a [u8]) -> Option<Change<'a>> {
    let room = read_text(from)?;
    let mut by = None;
    let what = match what {
        PUT_ROOM => {
            by = read_optional_text(from)?;
            let title = read_optional_text(from)?;
            let members_only = read_optional(from)?.map(|flag| flag != 0);
            let settings = RoomSettings { title, members_only, retention_s: read_optional(from)? };
            RoomChange::PutRoom { room, settings }
        }
        DELETE_ROOM => RoomChange::DeleteRoom { room },
        ADD_MEMBER => RoomChange::AddMember { room, user: read_text(from)? },
        REMOVE_MEMBER => RoomChange::RemoveMember { room, user: read_text(from)? },
        MARK_READ => RoomChange::MarkRead { room, user: read_text(from)?, seq: varint::read(from)? },
        _ => return None,
    };
    Some(Change { by, what })
}

fn write_seqs(rooms: &[(&str, Vec<u64>)], out: &mut Vec<u8>) {
    varint::write(rooms.len() as u64, out);
    for (room, seqs) in rooms {
        write_text(room, out);
        varint::write(seqs.len() as u64, out);
        let mut before = 0;
        for seq in seqs {
            varint::write(seq.wrapping_sub(before), out);
            before = *seq;
        }
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

fn read_expiry<'a>(from: &mut &'a [u8]) -> Option<Vec<(&'a str, u64)>> {
    let mut rooms = Vec::new();
    for _ in 0..varint::read(from)? {
        rooms.push((read_text(from)?, varint::read(from)?));
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

    fn of_room<'a>(by: Option<&'a str>, what: RoomChange<'a>) -> ChangeRecord<'a> {
        ChangeRecord::Room(Change { by, what })
    }

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
            let settings = RoomSettings { title: title.as_deref(), members_only: flag, retention_s: number.map(u64::from) };
            let seqs = seqs.into_iter().map(|seqs| (room, seqs.into_iter().collect())).collect::<Vec<_>>();
            let numbers: usize = seqs.iter().map(|(_, seqs): &(_, Vec<u64>)| seqs.len()).sum();
            let erase_bytes_max = (numbers + seqs.len()) * SEQ_BYTES_MAX + 100;
            for record in [
                of_room(flag.map(|_| "founder"), RoomChange::PutRoom { room, settings }),
                of_room(None, RoomChange::DeleteRoom { room }),
                of_room(None, RoomChange::AddMember { room, user }),
                of_room(None, RoomChange::RemoveMember { room, user }),
                of_room(None, RoomChange::MarkRead { room, user, seq: u64::MAX }),
                ChangeRecord::Erasure { user, is_last: flag.is_some(), seqs: seqs.clone() },
                ChangeRecord::Expiry(seqs.iter().map(|(room, seqs)| (*room, seqs.len() as u64)).collect()),
            ] {
                let mut bytes = Vec::new();
                record.write(&mut bytes);
                let has_seqs = !matches!(record, ChangeRecord::Room(_));
                prop_assert!(!has_seqs || bytes.len() <= erase_bytes_max);
                bytes.push(9);
                let mut input = bytes.as_slice();
                prop_assert_eq!(super::super::read(&mut input), Some(super::super::Record::Change(record)));
                prop_assert_eq!(input, &[9]);
                prop_assert_eq!(ChangeRecord::read(&mut &bytes[..bytes.len() - 2]), None);
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
