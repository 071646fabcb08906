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

use hubbub_core::invariant::cast_or_nearest;

use super::checkpoint_files::payload_path;
use super::entry::Entry;
use crate::embedded::disk::DiskFile;
use crate::embedded::error::{DoingOn, MaintainError, READING};
use crate::embedded::file::cursor::index;
use crate::embedded::journal::slot_path;
use crate::embedded::tail::Tail;

const CRC_BYTES: usize = 4;

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
        f.debug_tuple("PayloadFile").field(&self.number).finish()
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
    /// The file, if it is one of payloads.
    pub(super) fn file(&self) -> Option<&Arc<PayloadFile>> {
        if let Self::File(file) = self { Some(file) } else { None }
    }

    /// Whether it is the slot of a journal up to this one.
    pub(super) fn is_slot_up_to(&self, applied: u64) -> bool {
        match self {
            Self::Slot(tail) => tail.journal <= applied,
            Self::Journal(journal) => *journal <= applied,
            Self::File(_) => false,
        }
    }

    /// What it is called in messages to people.
    pub(super) fn path(&self) -> String {
        match self {
            Self::Slot(tail) => slot_path(tail.slot.number),
            Self::File(file) => payload_path(file.number),
            Self::Journal(journal) => format!("journal {journal}"),
        }
    }

    /// What stands there for a message: checksum, and so many bytes of group and payload.
    pub(super) fn bytes(&self, offset: u32, length: u32) -> Result<Vec<u8>, MaintainError> {
        let mut bytes = vec![0; index(length).saturating_add(CRC_BYTES)];
        let damaged = || MaintainError::Damaged { path: self.path(), offset: offset.into() };
        let file = match self {
            Self::Slot(tail) => &tail.slot.file,
            Self::File(file) => &file.file,
            Self::Journal(_) => return Err(damaged()),
        };
        file.read_exact_at(&mut bytes, offset.into()).doing(READING, &self.path())?;
        let checked = bytes.split_first_chunk();
        let is_whole = checked.is_some_and(|(crc, rest)| crc32c::crc32c(rest) == u32::from_le_bytes(*crc));
        if is_whole { Ok(bytes) } else { Err(damaged()) }
    }
}

impl Entry {
    /// What stands in a medium for it.
    pub(super) fn bytes_in(&self, medium: &Medium) -> Result<Vec<u8>, MaintainError> {
        medium.bytes(self.offset, self.bytes)
    }

    pub(super) fn stored_bytes(&self) -> u64 {
        u64::from(self.bytes) + CRC_BYTES as u64
    }
}

/// Group and payload out of the bytes they stand in.
pub(super) fn split_payload(entry: &Entry, mut bytes: Vec<u8>) -> Option<(Option<Arc<str>>, String)> {
    let end = CRC_BYTES + index(entry.group_bytes());
    let group = std::str::from_utf8(bytes.get(CRC_BYTES..end)?).ok()?;
    let group = (!group.is_empty()).then(|| Arc::from(group));
    bytes.drain(..end);
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

    /// Those that messages wait in.
    pub(super) fn used(&self) -> impl Iterator<Item = (u16, &Source)> {
        self.iter().filter(|(_, source)| source.messages > 0)
    }

    pub(super) fn files(&self) -> impl Iterator<Item = &Arc<PayloadFile>> {
        self.iter().filter_map(|(_, source)| source.medium.file())
    }

    /// The number of a new one. There are never many: a few slots, and files are merged.
    pub(super) fn add(&mut self, medium: Medium) -> u16 {
        let source = Some(Source { medium, messages: 0, bytes: 0 });
        let number = self.all.iter().position(Option::is_none).unwrap_or(self.all.len());
        match self.all.get_mut(number) {
            Some(place) => *place = source,
            None => self.all.push(source),
        }
        cast_or_nearest(number, "payloads stand in fewer than 65,535 files and slots")
    }

    /// The number of the slot that is written to.
    pub(super) fn of_tail(&mut self, tail: &Arc<Tail>) -> u16 {
        if let Some((journal, number)) = self.newest
            && journal == tail.journal
        {
            return number;
        }
        let is_it = |medium: &Medium| matches!(medium, Medium::Slot(slot) if slot.journal == tail.journal);
        let known = self.iter().find(|(_, source)| is_it(&source.medium)).map(|(number, _)| number);
        let number = known.unwrap_or_else(|| self.add(Medium::Slot(Arc::clone(tail))));
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

    /// The payload of so many messages stands where an entry says, or does not any more.
    pub(super) fn count(&mut self, entry: &Entry, messages: u64, comes: bool) {
        let Some(Some(source)) = self.all.get_mut(usize::from(entry.source)) else { return };
        let bytes = messages * entry.stored_bytes();
        if comes {
            source.messages += messages;
            source.bytes += bytes;
        } else {
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
