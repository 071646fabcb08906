//! Encodes effects of operations on queues, in numbers that a start can apply without deciding again.
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
use hubbub_core::invariant::cast_or_nearest;
use hubbub_core::queue::{DeadReason, WhenFull};
pub(crate) use hubbub_core::rules::queues::{Effect, NewLease, NewMessage, Recipient, Removal};

use crate::embedded::file::varint::{self, take_text};
pub(crate) use crate::embedded::file::varint::{read_text, write_text};

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

/// By what a repeated message is known: a hash of its id in the queue, and one of what it says.
pub(crate) type Fingerprint = ([u64; 2], u32);

/// An effect of an operation on queues, as the journal keeps it.
pub(crate) type QueueRecord<'a> = Effect<'a, u32, Fingerprint>;

/// A message as the journal keeps it.
pub(crate) type MessageRecord<'a> = NewMessage<'a, u32, Fingerprint>;

/// Appends a record. Says how far from its end the checked part of a message begins; 0 where there is none.
pub(crate) fn write_queue(record: &QueueRecord<'_>, out: &mut Vec<u8>) -> usize {
    let mut begin = |what: u8, numbers: &[u64]| {
        out.extend_from_slice(&[KIND_QUEUE, what]);
        numbers.iter().for_each(|number| varint::write(*number, out));
    };
    match record {
        Effect::Put { number, name, is_dead_letter, settings } => {
            begin(PUT, &[(*number).into()]);
            write_text(name, out);
            varint::write((*is_dead_letter).into(), out);
            write_rules(settings, out);
        }
        Effect::Delete { number } => begin(DELETE, &[(*number).into()]),
        Effect::Client { number, name, registered, kept } => {
            begin(CLIENT, &[(*number).into()]);
            write_text(name, out);
            varint::write((*registered).into(), out);
            write_ids(kept, out);
        }
        Effect::Send(sent) => {
            begin(SEND, &[sent.id, sent.copies.into(), sent.queue.into(), sent.sender.into()]);
            return write_sent(sent, out);
        }
        Effect::Taken { at, ids } => {
            begin(TAKEN, &[varint::zigzag(*at)]);
            write_ids(ids, out);
        }
        Effect::Leased { at, leases } => {
            begin(LEASED, &[varint::zigzag(*at), leases.len() as u64]);
            for NewLease { id, delivery, lease } in leases {
                [*id, (*delivery).into(), *lease].iter().for_each(|number| varint::write(*number, out));
            }
        }
        Effect::Returned { at, id, delay } => begin(RETURNED, &[varint::zigzag(*at), *id, *delay]),
        Effect::Extended { at, id, lease } => begin(EXTENDED, &[varint::zigzag(*at), *id, *lease]),
        Effect::Gone { at, why, ids } => {
            begin(GONE, &[varint::zigzag(*at)]);
            out.push(*why as u8);
            write_ids(ids, out);
        }
        Effect::Dead { id, to, reason } => {
            begin(DEAD, &[*id, (*to).into()]);
            out.push(*reason as u8);
        }
        Effect::Redriven { to, ids } => {
            begin(REDRIVEN, &[(*to).into()]);
            write_ids(ids, out);
        }
    }
    0
}

/// Takes a record off the front of `input`; `None` when it is none.
pub(super) fn read_queue<'a>(input: &mut &'a [u8]) -> Option<QueueRecord<'a>> {
    let (&[kind, what], mut rest) = input.split_first_chunk::<2>()?;
    if kind != KIND_QUEUE {
        return None;
    }
    let from = &mut rest;
    let record = match what {
        PUT => Effect::Put {
            number: read_u32(from)?,
            name: Arc::from(read_text(from)?),
            is_dead_letter: varint::read(from)? != 0,
            settings: read_rules(from)?,
        },
        DELETE => Effect::Delete { number: read_u32(from)? },
        CLIENT => Effect::Client {
            number: read_u32(from)?,
            name: read_text(from)?,
            registered: varint::read(from)? != 0,
            kept: read_ids(from)?,
        },
        SEND => Effect::Send(read_sent(from)?),
        TAKEN => Effect::Taken { at: read_time(from)?, ids: read_ids(from)? },
        LEASED => Effect::Leased { at: read_time(from)?, leases: read_list(from, read_lease)? },
        RETURNED => {
            Effect::Returned { at: read_time(from)?, id: varint::read(from)?, delay: varint::read(from)? }
        }
        EXTENDED => {
            Effect::Extended { at: read_time(from)?, id: varint::read(from)?, lease: varint::read(from)? }
        }
        GONE => {
            Effect::Gone { at: read_time(from)?, why: read_choice(&REMOVALS, from)?, ids: read_ids(from)? }
        }
        DEAD => Effect::Dead { id: varint::read(from)?, to: read_u32(from)?, reason: read_reason(from)? },
        REDRIVEN => Effect::Redriven { to: read_u32(from)?, ids: read_ids(from)? },
        _ => return None,
    };
    *input = rest;
    Some(record)
}

/// Bytes at the end of a message's record that its checksum is for, with the checksum.
pub(crate) fn checked_bytes(sent: &MessageRecord<'_>) -> usize {
    size_of::<u32>() + sent.group.map_or(0, str::len) + sent.text.len()
}

/// A list behind its length.
fn read_list<T>(from: &mut &[u8], mut read: impl FnMut(&mut &[u8]) -> Option<T>) -> Option<Vec<T>> {
    (0..varint::read(from)?).map(|_| read(from)).collect()
}

fn read_lease(from: &mut &[u8]) -> Option<NewLease> {
    Some(NewLease { id: varint::read(from)?, delivery: read_u32(from)?, lease: varint::read(from)? })
}

const REMOVALS: [Removal; 4] = [Removal::Acknowledged, Removal::Removed, Removal::Expired, Removal::Dropped];

const REASONS: [DeadReason; 2] = [DeadReason::Rejected, DeadReason::LeaseExpired];

/// One of `all`, by the number it is written as in records and checkpoints.
pub(crate) fn read_choice<T: Copy>(all: &[T], from: &mut &[u8]) -> Option<T> {
    all.get(usize::from(read_byte(from)?)).copied()
}

pub(crate) fn read_reason(from: &mut &[u8]) -> Option<DeadReason> {
    read_choice(&REASONS, from)
}

pub(crate) fn write_fingerprint((id, content): &Fingerprint, out: &mut Vec<u8>) {
    id.iter().for_each(|half| out.extend_from_slice(&half.to_le_bytes()));
    out.extend_from_slice(&content.to_le_bytes());
}

pub(crate) fn read_fingerprint(from: &mut &[u8]) -> Option<Fingerprint> {
    Some(([read_u64(from)?, read_u64(from)?], u32::from_le_bytes(take_array(from)?)))
}

fn write_sent(sent: &MessageRecord<'_>, out: &mut Vec<u8>) -> usize {
    match sent.to {
        Recipient::Anyone => out.push(0),
        Recipient::One(client) => {
            out.push(1);
            varint::write(client.into(), out);
        }
        Recipient::All => out.push(2),
    }
    out.push(sent.known_as.is_some().into());
    if let Some(known_as) = &sent.known_as {
        write_fingerprint(known_as, out);
    }
    varint::write(varint::zigzag(sent.at), out);
    varint::write(sent.delay, out);
    varint::write(sent.ttl.map_or(0, |ttl| ttl.saturating_add(1)), out);
    let group = sent.group.unwrap_or_default();
    out.push(cast_or_nearest(group.len(), "the name of a group has 64 bytes at most"));
    varint::write(sent.text.len() as u64, out);
    let crc = crc32c::crc32c_append(crc32c::crc32c(group.as_bytes()), sent.text.as_bytes());
    out.extend_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(group.as_bytes());
    out.extend_from_slice(sent.text.as_bytes());
    checked_bytes(sent)
}

fn read_sent<'a>(from: &mut &'a [u8]) -> Option<MessageRecord<'a>> {
    let (id, copies) = (varint::read(from)?, read_u32(from)?);
    let (queue, sender) = (read_u32(from)?, read_u32(from)?);
    let to = match read_byte(from)? {
        0 => Recipient::Anyone,
        1 => Recipient::One(read_u32(from)?),
        2 => Recipient::All,
        _ => return None,
    };
    let known_as = match read_byte(from)? {
        0 => None,
        1 => Some(read_fingerprint(from)?),
        _ => return None,
    };
    let at = read_time(from)?;
    let (delay, ttl) = (varint::read(from)?, varint::read(from)?.checked_sub(1));
    let (group, text) = (u64::from(read_byte(from)?), varint::read(from)?);
    let _crc: [u8; 4] = take_array(from)?;
    let group = take_text(from, group)?;
    let group = (!group.is_empty()).then_some(group);
    let text = take_text(from, text)?;
    Some(NewMessage { id, copies, queue, sender, to, known_as, at, delay, ttl, group, text })
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
    let mut id = 0_u64;
    read_list(from, |from| {
        id = id.wrapping_add(varint::unzigzag(varint::read(from)?).cast_unsigned());
        Some(id)
    })
}

pub(crate) fn read_u32(from: &mut &[u8]) -> Option<u32> {
    u32::try_from(varint::read(from)?).ok()
}

pub(crate) fn read_time(from: &mut &[u8]) -> Option<i64> {
    varint::read(from).map(varint::unzigzag)
}

pub(crate) fn read_byte(from: &mut &[u8]) -> Option<u8> {
    take_array(from).map(|[byte]| byte)
}

/// A number of eight bytes.
pub(crate) fn read_u64(from: &mut &[u8]) -> Option<u64> {
    take_array(from).map(u64::from_le_bytes)
}

fn take_array<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(*bytes)
}

#[cfg(test)]
mod tests;
