//! The entries of a run in order, from any key on.

use super::block::{KeyBlock, KeyEntry};
use super::merge::KeySource;
use super::open::{KeyRun, UNREADABLE_ENTRY};
use crate::embedded::file::FileError;
use crate::embedded::file::Patience;

/// Goes through a run, every checksum on the way verified. Reads past the cache, one block at a time.
#[derive(Debug)]
pub(crate) struct KeyScan {
    pub(super) run: KeyRun,
    block: Option<KeyBlock>,
    next_block: usize,
    /// Place behind the last block to be read.
    end: usize,
    index: usize,
}

impl KeyRun {
    /// A scan that stands at the first key that is `from` or behind it.
    pub(crate) fn scan(&self, from: &[u8]) -> Result<KeyScan, FileError> {
        let mut scan = KeyScan::new(self, &[]);
        scan.seek(from)?;
        Ok(scan)
    }
}

impl KeyScan {
    /// A scan that stands nowhere before [`Self::seek`], and reads no block behind the keys that begin with `prefix`.
    pub(crate) fn new(run: &KeyRun, prefix: &[u8]) -> Self {
        let end = run.inner.index.end_of(prefix);
        Self { run: run.clone(), block: None, next_block: 0, end, index: 0 }
    }

    /// The entry under the cursor; `None` behind the last one.
    pub(crate) fn current(&self) -> Option<KeyEntry<'_>> {
        self.block.as_ref()?.entry(self.index)
    }

    /// Goes to the first key that is `from` or behind it.
    pub(crate) fn seek(&mut self, from: &[u8]) -> Result<(), FileError> {
        self.next_block = self.run.inner.index.find(from);
        self.load()?;
        if let Some(block) = &self.block {
            let found = block.search(from);
            self.index = found.ok_or_else(|| self.run.inner.file.damaged(0, UNREADABLE_ENTRY))?;
            self.settle()?;
        }
        Ok(())
    }

    /// After a block could not be read: the first key behind it. `None` = there is none, or every block could be read.
    pub(crate) fn behind_damage(&self) -> Option<&[u8]> {
        let (behind, index) = (self.next_block + 1, &self.run.inner.index);
        let has_failed = self.block.is_none() && self.next_block < self.end;
        (has_failed && behind < index.len()).then(|| index.first_key(behind))
    }

    /// Goes on to the next block at the end of one.
    fn settle(&mut self) -> Result<(), FileError> {
        while self.block.as_ref().is_some_and(|block| self.index >= block.len()) {
            self.load()?;
        }
        match &self.block {
            Some(block) if block.entry(self.index).is_none() => {
                let offset = self.run.inner.index.offset(self.next_block.saturating_sub(1));
                Err(self.run.inner.file.damaged(offset, UNREADABLE_ENTRY))
            }
            _ => Ok(()),
        }
    }

    fn load(&mut self) -> Result<(), FileError> {
        self.index = 0;
        self.block = None;
        if self.next_block < self.end {
            self.block = Some(self.run.load_block(self.next_block, Patience::Wait)?);
            self.next_block += 1;
        }
        Ok(())
    }
}

impl KeySource for KeyScan {
    fn key(&self) -> Option<&[u8]> {
        self.current().map(|entry| entry.key)
    }

    fn advance(&mut self) -> Result<(), FileError> {
        self.index += 1;
        self.settle()
    }
}
