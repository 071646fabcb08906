//! Where payloads stand: in slots of the journal that are not sealed yet, and in files of payloads.
//!
//! A payload stands behind the name of its group and a checksum over both, in a record of the journal or in a file, which
//! is nothing but one after another:
//!
//! ```text
//! crc32c 4 | group | payload
//! ```

use std::fmt;
use std::sync::Arc;

use super::checkpoint_files::payload_path;
use super::entry::{Entry, NOWHERE};
use crate::embedded::disk::DiskFile;
use crate::embedded::error::{DoingOn, MaintainError, READING};
use crate::embedded::journal::slot_path;
use crate::embedded::tail::Tail;

/// Bytes of the checksum.
pub(super) const CRC_BYTES: u32 = 4;

/// A file of payloads, immutable.
pub(crate) struct PayloadFile {
    pub(crate) number: u64,
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) bytes: u64,
    /// Of the whole file.
    pub(crate) crc32c: u32,
}

impl fmt::Debug for PayloadFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PayloadFile")
            .field("number", &self.number)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

/// What payloads can stand in.
#[derive(Debug, Clone)]
pub(super) enum Medium {
    /// A slot, held so that it is not overwritten.
    Slot(Arc<Tail>),
    File(Arc<PayloadFile>),
    /// The slot of this journal, which the start under way has not come to yet.
    Journal(u64),
}

impl Medium {
    pub(super) fn file(&self) -> Option<&Arc<dyn DiskFile>> {
        match self {
            Self::Slot(tail) => Some(&tail.slot.file),
            Self::File(text) => Some(&text.file),
            Self::Journal(_) => None,
        }
    }

    /// What it is called in messages to people.
    pub(super) fn path(&self) -> String {
        match self {
            Self::Slot(tail) => slot_path(tail.slot.number),
            Self::File(text) => payload_path(text.number),
            Self::Journal(journal) => format!("journal {journal}"),
        }
    }

    /// What stands there for a message: checksum, and so many bytes of group and payload.
    pub(super) fn bytes(&self, offset: u32, length: u32) -> Result<Vec<u8>, MaintainError> {
        let length = u64::from(length) + u64::from(CRC_BYTES);
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
        let damaged = || MaintainError::Damaged { path: self.path(), offset: offset.into() };
        let file = self.file().ok_or_else(damaged)?;
        file.read_exact_at(&mut bytes, offset.into()).doing(READING, &self.path())?;
        if is_whole(&bytes) { Ok(bytes) } else { Err(damaged()) }
    }
}

/// Whether the checksum at the beginning fits what follows.
fn is_whole(bytes: &[u8]) -> bool {
    bytes.split_first_chunk::<4>().is_some_and(|(crc, rest)| crc32c::crc32c(rest) == u32::from_le_bytes(*crc))
}

impl Entry {
    /// What stands in a medium for it.
    pub(super) fn bytes_in(&self, medium: &Medium) -> Result<Vec<u8>, MaintainError> {
        medium.bytes(self.offset, self.bytes)
    }
}

/// Group and payload out of the bytes they stand in.
pub(super) fn split_payload(entry: &Entry, mut bytes: Vec<u8>) -> Option<(Option<Arc<str>>, String)> {
    let group_bytes = usize::try_from(entry.group_bytes()).ok()?;
    let begin = usize::try_from(CRC_BYTES).ok()?;
    let group = bytes.get(begin..begin + group_bytes)?;
    let group = if group.is_empty() { None } else { Some(Arc::from(std::str::from_utf8(group).ok()?)) };
    bytes.drain(..begin + group_bytes);
    Some((group, String::from_utf8(bytes).ok()?))
}

/// One place that payloads stand in, and how much of it is still waited for.
#[derive(Debug, Clone)]
pub(super) struct Source {
    pub(super) medium: Medium,
    /// Messages whose payloads stand there.
    pub(super) messages: u64,
    /// Bytes of those payloads; one that several copies share counts for each.
    pub(super) bytes: u64,
}

/// All of them, by number.
#[derive(Debug, Clone, Default)]
pub(super) struct Sources {
    all: Vec<Option<Source>>,
    /// The newest journal that has a number here.
    newest: Option<(u64, u16)>,
}

impl Sources {
    pub(super) fn get(&self, number: u16) -> Option<&Source> {
        self.all.get(usize::from(number))?.as_ref()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u16, &Source)> {
        (0..).zip(&self.all).filter_map(|(number, source)| Some((number, source.as_ref()?)))
    }

    /// The number of a new one. There are never many: a few slots, and files are merged.
    pub(super) fn add(&mut self, medium: Medium) -> u16 {
        let source = Some(Source { medium, messages: 0, bytes: 0 });
        if let Some(free) = self.all.iter_mut().position(|source| source.is_none()) {
            if let Some(place) = self.all.get_mut(free) {
                *place = source;
            }
            return u16::try_from(free).unwrap_or(NOWHERE);
        }
        self.all.push(source);
        u16::try_from(self.all.len() - 1).unwrap_or(NOWHERE)
    }

    /// The number of the slot that is written to.
    pub(super) fn of_tail(&mut self, tail: &Arc<Tail>) -> u16 {
        if let Some((journal, number)) = self.newest
            && journal == tail.journal
        {
            return number;
        }
        let known = self.iter().find(|(_, source)| match &source.medium {
            Medium::Slot(known) => known.journal == tail.journal,
            Medium::Journal(_) | Medium::File(_) => false,
        });
        let number = known.map(|(number, _)| number);
        let number = number.unwrap_or_else(|| self.add(Medium::Slot(Arc::clone(tail))));
        self.newest = Some((tail.journal, number));
        number
    }

    /// What was said to stand in a journal stands in this slot.
    pub(super) fn adopt(&mut self, tail: &Arc<Tail>) {
        for source in self.all.iter_mut().flatten() {
            if matches!(&source.medium, Medium::Journal(journal) if *journal == tail.journal) {
                source.medium = Medium::Slot(Arc::clone(tail));
            }
        }
    }

    /// A message's payload stands there.
    pub(super) fn enter(&mut self, entry: &Entry) {
        self.enter_many(entry, 1);
    }

    /// The payload of so many messages stands there.
    pub(super) fn enter_many(&mut self, entry: &Entry, messages: u64) {
        if let Some(Some(source)) = self.all.get_mut(usize::from(entry.source)) {
            source.messages += messages;
            source.bytes += messages * (u64::from(entry.bytes) + u64::from(CRC_BYTES));
        }
    }

    /// It does not any more.
    pub(super) fn leave(&mut self, entry: &Entry) {
        self.leave_many(entry, 1);
    }

    /// So many do not any more.
    pub(super) fn leave_many(&mut self, entry: &Entry, messages: u64) {
        if let Some(Some(source)) = self.all.get_mut(usize::from(entry.source)) {
            let bytes = messages * (u64::from(entry.bytes) + u64::from(CRC_BYTES));
            source.messages = source.messages.saturating_sub(messages);
            source.bytes = source.bytes.saturating_sub(bytes);
        }
    }

    /// Lets go of those that are chosen, and gives them back.
    pub(super) fn remove(&mut self, is_chosen: impl Fn(&Source) -> bool) -> Vec<Source> {
        let mut gone = Vec::new();
        for (number, place) in (0..).zip(&mut self.all) {
            if place.as_ref().is_some_and(&is_chosen) {
                self.newest = self.newest.filter(|(_, newest)| *newest != number);
                gone.extend(place.take());
            }
        }
        gone
    }
}
