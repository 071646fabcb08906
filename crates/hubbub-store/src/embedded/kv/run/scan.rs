//! The entries of a run in order, from any key on.

use super::block::{Block, Entry};
use super::open::{Patience, Run};
use crate::embedded::segment::SegmentError;

/// Goes through a run, every checksum on the way verified. Reads past the cache, one block at a time.
#[derive(Debug)]
pub(crate) struct Scan {
    run: Run,
    block: Option<Block>,
    /// Place of the block to read next.
    next_block: usize,
    /// Index in the block of the entry under the cursor.
    index: usize,
}

impl Run {
    /// A scan that stands at the first key that is `from` or behind it.
    pub(crate) fn scan(&self, from: &[u8]) -> Result<Scan, SegmentError> {
        let next_block = self.index().find(from);
        let mut scan = Scan { run: self.clone(), block: None, next_block, index: 0 };
        scan.load()?;
        if let Some(block) = &scan.block {
            let found = block.search(from);
            scan.index = found.ok_or_else(|| self.damaged(0, "a block's entries are none"))?;
            scan.settle()?;
        }
        Ok(scan)
    }
}

impl Scan {
    /// The run it goes through.
    pub(crate) fn run(&self) -> &Run {
        &self.run
    }

    /// The entry under the cursor; `None` behind the last one.
    pub(crate) fn current(&self) -> Option<Entry<'_>> {
        self.block.as_ref()?.entry(self.index)
    }

    /// Moves to the next entry.
    pub(crate) fn advance(&mut self) -> Result<(), SegmentError> {
        self.index += 1;
        self.settle()
    }

    /// Goes on to the next block at the end of one.
    fn settle(&mut self) -> Result<(), SegmentError> {
        while self.block.as_ref().is_some_and(|block| self.index >= block.len()) {
            self.load()?;
        }
        match &self.block {
            Some(block) if block.entry(self.index).is_none() => Err(self
                .run
                .damaged(self.run.block_offset(self.next_block.saturating_sub(1)), "an entry is none")),
            _ => Ok(()),
        }
    }

    fn load(&mut self) -> Result<(), SegmentError> {
        self.index = 0;
        self.block = None;
        if self.next_block < self.run.index().len() {
            self.block = Some(self.run.load_block(self.next_block, Patience::Wait)?);
            self.next_block += 1;
        }
        Ok(())
    }
}
