//! The record of an operation on queues: what it did, in numbers that a start applies without deciding again.
//!
//! ```text
//! kind u8 = 3 | what u8 | its parts in order: texts as length varint and bytes, numbers as varints, times zigzag, lists
//! as their length and the elements, ids of a list as differences to the one before (zigzag)
//! a message ends with: length of the group u8, length of the text varint, crc32c of both 4, group, text
//! ```
//!
//! Times are wall-clock microseconds; what runs out is written as a duration from `at` on, so that a start can tell both
//! how long it was meant to be and when that is.

use std::sync::Arc;

use hubbub_core::QueueRules;

use crate::embedded::file::varint::{self, take_text};
pub(crate) use crate::embedded::file::varint::{read_text, write_text};
use crate::embedded::queues::{DeadReason, WhenFull};

/// The kind byte of an operation on queues.
pub(super) const KIND_QUEUE: u8 = 3;

const PUT: u8 = 1;
const DELETE: u8 = 2;
const CLIENT: u8 = 3;
const SEND: u8 = 4;
const TAKEN: u8 = 5;
const LEASED: u8 = 6;
const RETURNED: u8 = 7;
const EXTENDED: u8 = 8;
const GONE: u8 = 9;
const DEAD: u8 = 10;
const REDRIVEN: u8 = 11;

/// Whom a message waits for, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum To {
    Anyone,
    One(u32),
    /// Every client registered then, the sender excepted.
    All,
}

/// Why a message is gone without having been taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    Acknowledged,
    Removed,
    Expired,
    /// It was the oldest of too many.
    Dropped,
}

/// One delivery on lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Leased {
    pub(crate) id: u64,
    pub(crate) delivery: u32,
    /// How long, in microseconds.
    pub(crate) lease: u64,
}

/// A message as it was taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sent<'a> {
    /// Its id, or that of the first copy.
    pub(crate) id: u64,
    pub(crate) copies: u32,
    pub(crate) queue: u32,
    pub(crate) sender: u32,
    pub(crate) to: To,
    /// By what a repeat is known: hash of its id in the queue, and of what it says.
    pub(crate) known_as: Option<([u64; 2], u32)>,
    pub(crate) at: i64,
    /// Microseconds until it may be taken.
    pub(crate) delay: u64,
    /// Microseconds until it is gone.
    pub(crate) ttl: Option<u64>,
    pub(crate) group: Option<&'a str>,
    pub(crate) text: &'a str,
}

/// An operation on queues that was decided and is to be applied as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Queued<'a> {
    /// A queue is made, or its settings change.
    Put {
        number: u32,
        name: &'a str,
        is_dead_letter: bool,
        settings: QueueRules,
    },
    Delete {
        number: u32,
    },
    Client {
        number: u32,
        name: &'a str,
        registered: bool,
        /// Copies of what was sent to everybody that stay though the client goes.
        kept: Vec<u64>,
    },
    Send(Sent<'a>),
    /// Messages were taken away.
    Taken {
        at: i64,
        ids: Vec<u64>,
    },
    Leased {
        at: i64,
        leases: Vec<Leased>,
    },
    /// A lease ended; the message waits again, after a delay in microseconds.
    Returned {
        at: i64,
        id: u64,
        delay: u64,
    },
    /// A lease ends so many microseconds after `at`.
    Extended {
        at: i64,
        id: u64,
        lease: u64,
    },
    Gone {
        at: i64,
        why: Why,
        ids: Vec<u64>,
    },
    /// A message goes to another queue, which keeps why.
    Dead {
        id: u64,
        to: u32,
        reason: DeadReason,
    },
    /// Dead letters wait again where they came from.
    Redriven {
        to: u32,
        ids: Vec<u64>,
    },
}

impl<'a> Queued<'a> {
    /// Appends the record. Says how far from its end the checked part of a message begins; 0 where there is none.
    pub(crate) fn write(&self, out: &mut Vec<u8>) -> usize {
        out.push(KIND_QUEUE);
        match self {
            Self::Put { number, name, is_dead_letter, settings } => {
                out.push(PUT);
                varint::write((*number).into(), out);
                write_text(name, out);
                varint::write((*is_dead_letter).into(), out);
                write_rules(settings, out);
            }
            Self::Delete { number } => {
                out.push(DELETE);
                varint::write((*number).into(), out);
            }
            Self::Client { number, name, registered, kept } => {
                out.push(CLIENT);
                varint::write((*number).into(), out);
                write_text(name, out);
                varint::write((*registered).into(), out);
                write_ids(kept, out);
            }
            Self::Send(sent) => {
                out.push(SEND);
                return write_sent(sent, out);
            }
            Self::Taken { at, ids } => {
                out.push(TAKEN);
                varint::write(varint::zigzag(*at), out);
                write_ids(ids, out);
            }
            Self::Leased { at, leases } => {
                out.push(LEASED);
                varint::write(varint::zigzag(*at), out);
                varint::write(leases.len() as u64, out);
                for leased in leases {
                    varint::write(leased.id, out);
                    varint::write(leased.delivery.into(), out);
                    varint::write(leased.lease, out);
                }
            }
            Self::Returned { at, id, delay: time } | Self::Extended { at, id, lease: time } => {
                let is_extended = matches!(self, Self::Extended { .. });
                out.push(if is_extended { EXTENDED } else { RETURNED });
                varint::write(varint::zigzag(*at), out);
                varint::write(*id, out);
                varint::write(*time, out);
            }
            Self::Gone { at, why, ids } => {
                out.push(GONE);
                varint::write(varint::zigzag(*at), out);
                out.push(match why {
                    Why::Acknowledged => 0,
                    Why::Removed => 1,
                    Why::Expired => 2,
                    Why::Dropped => 3,
                });
                write_ids(ids, out);
            }
            Self::Dead { id, to, reason } => {
                out.push(DEAD);
                varint::write(*id, out);
                varint::write((*to).into(), out);
                out.push(reason_number(*reason));
            }
            Self::Redriven { to, ids } => {
                out.push(REDRIVEN);
                varint::write((*to).into(), out);
                write_ids(ids, out);
            }
        }
        0
    }

    /// Takes an operation off the front of `input`; `None` when the bytes are not one.
    pub(super) fn read(input: &mut &'a [u8]) -> Option<Self> {
        let (&[kind, what], mut rest) = input.split_first_chunk::<2>()?;
        if kind != KIND_QUEUE {
            return None;
        }
        let from = &mut rest;
        let queued = match what {
            PUT => Self::Put {
                number: read_u32(from)?,
                name: read_text(from)?,
                is_dead_letter: varint::read(from)? != 0,
                settings: read_rules(from)?,
            },
            DELETE => Self::Delete { number: read_u32(from)? },
            CLIENT => Self::Client {
                number: read_u32(from)?,
                name: read_text(from)?,
                registered: varint::read(from)? != 0,
                kept: read_ids(from)?,
            },
            SEND => Self::Send(read_sent(from)?),
            TAKEN => Self::Taken { at: read_time(from)?, ids: read_ids(from)? },
            LEASED => {
                let (at, mut leases) = (read_time(from)?, Vec::new());
                for _ in 0..varint::read(from)? {
                    let (id, delivery) = (varint::read(from)?, read_u32(from)?);
                    leases.push(Leased { id, delivery, lease: varint::read(from)? });
                }
                Self::Leased { at, leases }
            }
            RETURNED => {
                Self::Returned { at: read_time(from)?, id: varint::read(from)?, delay: varint::read(from)? }
            }
            EXTENDED => {
                Self::Extended { at: read_time(from)?, id: varint::read(from)?, lease: varint::read(from)? }
            }
            GONE => {
                let at = read_time(from)?;
                let why = match read_byte(from)? {
                    0 => Why::Acknowledged,
                    1 => Why::Removed,
                    2 => Why::Expired,
                    3 => Why::Dropped,
                    _ => return None,
                };
                Self::Gone { at, why, ids: read_ids(from)? }
            }
            DEAD => Self::Dead {
                id: varint::read(from)?,
                to: read_u32(from)?,
                reason: reason_of(read_byte(from)?)?,
            },
            REDRIVEN => Self::Redriven { to: read_u32(from)?, ids: read_ids(from)? },
            _ => return None,
        };
        *input = rest;
        Some(queued)
    }
}

impl Sent<'_> {
    /// Bytes at the end of the record that its checksum is for, with the checksum.
    pub(crate) fn checked_bytes(&self) -> u64 {
        (size_of::<u32>() + self.group.map_or(0, str::len) + self.text.len()) as u64
    }
}

fn write_sent(sent: &Sent<'_>, out: &mut Vec<u8>) -> usize {
    varint::write(sent.id, out);
    varint::write(sent.copies.into(), out);
    varint::write(sent.queue.into(), out);
    varint::write(sent.sender.into(), out);
    match sent.to {
        To::Anyone => out.push(0),
        To::One(client) => {
            out.push(1);
            varint::write(client.into(), out);
        }
        To::All => out.push(2),
    }
    out.push(sent.known_as.is_some().into());
    if let Some((id, content)) = sent.known_as {
        id.iter().for_each(|half| out.extend_from_slice(&half.to_le_bytes()));
        out.extend_from_slice(&content.to_le_bytes());
    }
    varint::write(varint::zigzag(sent.at), out);
    varint::write(sent.delay, out);
    varint::write(sent.ttl.map_or(0, |ttl| ttl.saturating_add(1)), out);
    // Names of groups are at most 64 bytes long, as checked when the message was made.
    let group = sent.group.unwrap_or_default();
    out.push(u8::try_from(group.len()).unwrap_or(u8::MAX));
    varint::write(sent.text.len() as u64, out);
    let crc = crc32c::crc32c_append(crc32c::crc32c(group.as_bytes()), sent.text.as_bytes());
    out.extend_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(group.as_bytes());
    out.extend_from_slice(sent.text.as_bytes());
    usize::try_from(sent.checked_bytes()).unwrap_or(usize::MAX)
}

fn read_sent<'a>(from: &mut &'a [u8]) -> Option<Sent<'a>> {
    let (id, copies) = (varint::read(from)?, read_u32(from)?);
    let (queue, sender) = (read_u32(from)?, read_u32(from)?);
    let to = match read_byte(from)? {
        0 => To::Anyone,
        1 => To::One(read_u32(from)?),
        2 => To::All,
        _ => return None,
    };
    let known_as = match read_byte(from)? {
        0 => None,
        1 => {
            let mut half = || {
                let (bytes, rest) = from.split_first_chunk::<8>()?;
                *from = rest;
                Some(u64::from_le_bytes(*bytes))
            };
            let id = [half()?, half()?];
            Some((id, take_u32(from)?))
        }
        _ => return None,
    };
    let at = read_time(from)?;
    let (delay, ttl) = (varint::read(from)?, varint::read(from)?.checked_sub(1));
    let (group, text) = (u64::from(read_byte(from)?), varint::read(from)?);
    let _crc = take_u32(from)?;
    let group = take_text(from, group)?;
    let group = (!group.is_empty()).then_some(group);
    let text = take_text(from, text)?;
    Some(Sent { id, copies, queue, sender, to, known_as, at, delay, ttl, group, text })
}

/// As it is written in records and checkpoints.
pub(crate) const fn reason_number(reason: DeadReason) -> u8 {
    match reason {
        DeadReason::Rejected => 0,
        DeadReason::LeaseExpired => 1,
    }
}

/// The inverse of [`reason_number`].
pub(crate) const fn reason_of(number: u8) -> Option<DeadReason> {
    match number {
        0 => Some(DeadReason::Rejected),
        1 => Some(DeadReason::LeaseExpired),
        _ => None,
    }
}

/// Appends what is set of a queue.
pub(crate) fn write_rules(rules: &QueueRules, out: &mut Vec<u8>) {
    for number in [
        rules.lease_ms,
        rules.deliveries_max.into(),
        rules.ttl_ms,
        rules.messages_max,
        rules.bytes_max,
        (rules.when_full == WhenFull::DropOldest).into(),
        rules.backoff_ms,
        rules.backoff_max_ms,
    ] {
        varint::write(number, out);
    }
    write_text(&rules.dead_letter, out);
}

/// The inverse of [`write_rules`].
pub(crate) fn read_rules(from: &mut &[u8]) -> Option<QueueRules> {
    Some(QueueRules {
        lease_ms: varint::read(from)?,
        deliveries_max: read_u32(from)?,
        ttl_ms: varint::read(from)?,
        messages_max: varint::read(from)?,
        bytes_max: varint::read(from)?,
        when_full: if varint::read(from)? == 0 { WhenFull::Refuse } else { WhenFull::DropOldest },
        backoff_ms: varint::read(from)?,
        backoff_max_ms: varint::read(from)?,
        dead_letter: Arc::from(read_text(from)?),
    })
}

fn write_ids(ids: &[u64], out: &mut Vec<u8>) {
    varint::write(ids.len() as u64, out);
    let mut before = 0_u64;
    for id in ids {
        varint::write(varint::zigzag(id.wrapping_sub(before).cast_signed()), out);
        before = *id;
    }
}

fn read_ids(from: &mut &[u8]) -> Option<Vec<u64>> {
    let (mut ids, mut id) = (Vec::new(), 0_u64);
    for _ in 0..varint::read(from)? {
        id = id.wrapping_add(varint::unzigzag(varint::read(from)?).cast_unsigned());
        ids.push(id);
    }
    Some(ids)
}

pub(crate) fn read_u32(from: &mut &[u8]) -> Option<u32> {
    u32::try_from(varint::read(from)?).ok()
}

pub(crate) fn read_time(from: &mut &[u8]) -> Option<i64> {
    varint::read(from).map(varint::unzigzag)
}

pub(crate) fn read_byte(from: &mut &[u8]) -> Option<u8> {
    let (byte, rest) = from.split_first()?;
    *from = rest;
    Some(*byte)
}

pub(crate) fn take_u32(from: &mut &[u8]) -> Option<u32> {
    let (bytes, rest) = from.split_first_chunk::<4>()?;
    *from = rest;
    Some(u32::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded::record::{self, Record};
    use proptest::prelude::*;

    fn settings(numbers: [u64; 6], name: &str) -> QueueRules {
        let [lease_ms, deliveries_max, ttl_ms, messages_max, backoff_ms, backoff_max_ms] = numbers;
        QueueRules {
            lease_ms,
            deliveries_max: u32::try_from(deliveries_max >> 32).unwrap(),
            dead_letter: name.into(),
            ttl_ms,
            messages_max,
            bytes_max: lease_ms,
            when_full: if ttl_ms.is_multiple_of(2) { WhenFull::Refuse } else { WhenFull::DropOldest },
            backoff_ms,
            backoff_max_ms,
        }
    }

    proptest! {
        #[test]
        fn operations_come_back(
            name in "[a-z]{1,64}",
            group in proptest::option::of("[a-z]{1,64}"),
            text in "\\PC{0,200}",
            number: u32,
            at in -4_000_000_000_000_000_i64..4_000_000_000_000_000,
            ids in proptest::collection::vec(any::<u64>(), 0..9),
            numbers: [u64; 6],
            known_as: Option<([u64; 2], u32)>,
            ttl in proptest::option::of(0..u64::MAX),
        ) {
            let id = numbers[0];
            let lease = |id: &u64| Leased { id: *id, delivery: number, lease: numbers[1] };
            let leases = ids.iter().map(lease).collect();
            let sent = |to| Queued::Send(Sent {
                id, copies: number, queue: number, sender: number, to, known_as, at, delay: numbers[2], ttl,
                group: group.as_deref(), text: &text,
            });
            for queued in [
                Queued::Put { number, name: &name, is_dead_letter: true, settings: settings(numbers, &name) },
                Queued::Delete { number },
                Queued::Client { number, name: &name, registered: false, kept: ids.clone() },
                sent(To::Anyone),
                sent(To::One(number)),
                sent(To::All),
                Queued::Taken { at, ids: ids.clone() },
                Queued::Leased { at, leases },
                Queued::Returned { at, id, delay: numbers[3] },
                Queued::Extended { at, id, lease: numbers[3] },
                Queued::Gone { at, why: Why::Acknowledged, ids: ids.clone() },
                Queued::Gone { at, why: Why::Removed, ids: ids.clone() },
                Queued::Gone { at, why: Why::Expired, ids: ids.clone() },
                Queued::Gone { at, why: Why::Dropped, ids: ids.clone() },
                Queued::Dead { id, to: number, reason: DeadReason::Rejected },
                Queued::Dead { id, to: number, reason: DeadReason::LeaseExpired },
                Queued::Redriven { to: number, ids: ids.clone() },
            ] {
                let mut bytes = Vec::new();
                let checked = queued.write(&mut bytes);
                if let Queued::Send(sent) = &queued {
                    let (crc, rest) = bytes[bytes.len() - checked..].split_first_chunk::<4>().unwrap();
                    prop_assert_eq!(crc32c::crc32c(rest), u32::from_le_bytes(*crc));
                    prop_assert!(rest.ends_with(sent.text.as_bytes()));
                } else {
                    prop_assert_eq!(checked, 0);
                }
                bytes.push(9);
                let mut input = bytes.as_slice();
                prop_assert_eq!(record::read(&mut input), Some(Record::Queue(queued)));
                prop_assert_eq!(input, &[9]);
                prop_assert_eq!(Queued::read(&mut &bytes[..bytes.len() - 2]), None);
            }
        }

        #[test]
        fn any_bytes_are_read_without_panic(what in 0_u8..13, bytes in proptest::collection::vec(any::<u8>(), 0..99)) {
            let mut queued = vec![KIND_QUEUE, what];
            queued.extend_from_slice(&bytes);
            let _ = record::read(&mut queued.as_slice());
        }
    }
}
