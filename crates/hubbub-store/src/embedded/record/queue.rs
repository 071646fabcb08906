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
    out.push(KIND_QUEUE);
    match record {
        Effect::Put { number, name, is_dead_letter, settings } => {
            out.push(PUT);
            varint::write((*number).into(), out);
            write_text(name, out);
            varint::write((*is_dead_letter).into(), out);
            write_rules(settings, out);
        }
        Effect::Delete { number } => {
            out.push(DELETE);
            varint::write((*number).into(), out);
        }
        Effect::Client { number, name, registered, kept } => {
            out.push(CLIENT);
            varint::write((*number).into(), out);
            write_text(name, out);
            varint::write((*registered).into(), out);
            write_ids(kept, out);
        }
        Effect::Send(sent) => {
            out.push(SEND);
            return write_sent(sent, out);
        }
        Effect::Taken { at, ids } => {
            out.push(TAKEN);
            varint::write(varint::zigzag(*at), out);
            write_ids(ids, out);
        }
        Effect::Leased { at, leases } => {
            out.push(LEASED);
            varint::write(varint::zigzag(*at), out);
            write_leases(leases, out);
        }
        Effect::Returned { at, id, delay } => write_lease_change(RETURNED, (*at, *id, *delay), out),
        Effect::Extended { at, id, lease } => write_lease_change(EXTENDED, (*at, *id, *lease), out),
        Effect::Gone { at, why, ids } => {
            out.push(GONE);
            varint::write(varint::zigzag(*at), out);
            out.push(removal_number(*why));
            write_ids(ids, out);
        }
        Effect::Dead { id, to, reason } => {
            out.push(DEAD);
            varint::write(*id, out);
            varint::write((*to).into(), out);
            out.push(reason_number(*reason));
        }
        Effect::Redriven { to, ids } => {
            out.push(REDRIVEN);
            varint::write((*to).into(), out);
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
        LEASED => Effect::Leased { at: read_time(from)?, leases: read_leases(from)? },
        RETURNED => {
            Effect::Returned { at: read_time(from)?, id: varint::read(from)?, delay: varint::read(from)? }
        }
        EXTENDED => {
            Effect::Extended { at: read_time(from)?, id: varint::read(from)?, lease: varint::read(from)? }
        }
        GONE => {
            let at = read_time(from)?;
            let why = removal_of(read_byte(from)?)?;
            Effect::Gone { at, why, ids: read_ids(from)? }
        }
        DEAD => {
            let (id, to) = (varint::read(from)?, read_u32(from)?);
            Effect::Dead { id, to, reason: reason_of(read_byte(from)?)? }
        }
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

fn write_leases(leases: &[NewLease], out: &mut Vec<u8>) {
    varint::write(leases.len() as u64, out);
    for lease in leases {
        varint::write(lease.id, out);
        varint::write(lease.delivery.into(), out);
        varint::write(lease.lease, out);
    }
}

fn read_leases(from: &mut &[u8]) -> Option<Vec<NewLease>> {
    let mut leases = Vec::new();
    for _ in 0..varint::read(from)? {
        let (id, delivery) = (varint::read(from)?, read_u32(from)?);
        leases.push(NewLease { id, delivery, lease: varint::read(from)? });
    }
    Some(leases)
}

fn write_lease_change(what: u8, (at, id, duration): (i64, u64, u64), out: &mut Vec<u8>) {
    out.push(what);
    varint::write(varint::zigzag(at), out);
    varint::write(id, out);
    varint::write(duration, out);
}

const fn removal_number(why: Removal) -> u8 {
    match why {
        Removal::Acknowledged => 0,
        Removal::Removed => 1,
        Removal::Expired => 2,
        Removal::Dropped => 3,
    }
}

const fn removal_of(number: u8) -> Option<Removal> {
    match number {
        0 => Some(Removal::Acknowledged),
        1 => Some(Removal::Removed),
        2 => Some(Removal::Expired),
        3 => Some(Removal::Dropped),
        _ => None,
    }
}

fn write_sent(sent: &MessageRecord<'_>, out: &mut Vec<u8>) -> usize {
    varint::write(sent.id, out);
    varint::write(sent.copies.into(), out);
    varint::write(sent.queue.into(), out);
    varint::write(sent.sender.into(), out);
    match sent.to {
        Recipient::Anyone => out.push(0),
        Recipient::One(client) => {
            out.push(1);
            varint::write(client.into(), out);
        }
        Recipient::All => out.push(2),
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
    Some(NewMessage { id, copies, queue, sender, to, known_as, at, delay, ttl, group, text })
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
mod tests;
