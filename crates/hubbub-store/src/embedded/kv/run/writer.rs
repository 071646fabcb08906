//! Writing a run: blocks stream out as they fill, the indexes follow at the end.

use std::io;
use std::sync::Arc;

use hubbub_core::invariant::cast;

use super::block::{BlockBuilder, INLINE_BYTES_MAX, KeyEntry, StoredValue};
use super::footer::{Footer, KEY_RUN};
use super::index::BlockIndex;
use crate::embedded::dedup::filter::BloomFilter;
use crate::embedded::disk::Disk;
use crate::embedded::file::block::BlockLocation;
use crate::embedded::file::varint;
use crate::embedded::file::writer::invalid;
use crate::embedded::file::{Codec, FileWriter, SortedFileWriter};
use crate::embedded::kv::Version;
use crate::embedded::segment::IdHasher;

const FILTER_BITS_PER_KEY: u64 = 10;

/// Writes one run. Until [`Self::finish`] returned, it is not there.
pub(crate) struct RunWriter {
    file: FileWriter,
    hasher: IdHasher,
    block: BlockBuilder,
    /// First key of the block being filled, and the last one pushed.
    block_first: Vec<u8>,
    last_key: Vec<u8>,
    raw: Vec<u8>,
    index: BlockIndex,
    filter: BloomFilter,
    expiring: Vec<u8>,
    footer: Footer,
}

impl RunWriter {
    /// Begins run `number`, in place of an unfinished one, for up to `keys_max` keys.
    pub(crate) fn create(
        disk: Arc<dyn Disk>,
        number: u64,
        keys_max: u64,
        hasher: IdHasher,
    ) -> io::Result<Self> {
        Ok(Self {
            file: FileWriter::create(disk, &KEY_RUN, number, Codec::Lz4)?,
            hasher,
            block: BlockBuilder::default(),
            block_first: Vec::new(),
            last_key: Vec::new(),
            raw: Vec::new(),
            index: BlockIndex::default(),
            filter: BloomFilter::new(keys_max.max(1), FILTER_BITS_PER_KEY),
            expiring: Vec::new(),
            footer: Footer::default(),
        })
    }

    /// Adds a key behind all before it, with its value, which is empty when it is deleted.
    pub(crate) fn push(&mut self, key: &[u8], version: Version, value: &[u8]) -> io::Result<()> {
        if value.len() <= INLINE_BYTES_MAX {
            return self.push_entry(&KeyEntry { key, version, value: StoredValue::Inline(value) });
        }
        let location = self.file.append_block(value)?;
        self.push_entry(&KeyEntry { key, version, value: StoredValue::Outside(location) })
    }

    /// The same with a value as it stands outside the blocks of another run.
    pub(super) fn push_stored(&mut self, key: &[u8], version: Version, stored: &[u8]) -> io::Result<()> {
        let offset = self.file.append_section(stored)?.offset;
        let stored_bytes =
            cast(stored.len(), "a stored value is as long as a run says").map_err(io::Error::other)?;
        let location = BlockLocation { offset, stored_bytes };
        self.push_entry(&KeyEntry { key, version, value: StoredValue::Outside(location) })
    }

    fn push_entry(&mut self, entry: &KeyEntry<'_>) -> io::Result<()> {
        if self.footer.keys > 0 && entry.key <= self.last_key.as_slice() {
            return Err(invalid("keys must come in their order"));
        }
        let value = match entry.value {
            StoredValue::Inline(value) => value.len(),
            StoredValue::Outside(_) => 0,
        };
        if self.block.is_full_for(entry.key.len() + value) {
            self.close_block()?;
        }
        if self.block.is_empty() {
            self.block_first.clear();
            self.block_first.extend_from_slice(entry.key);
        }
        self.block.push(entry)?;
        self.last_key.clear();
        self.last_key.extend_from_slice(entry.key);
        self.filter.insert(self.hasher.hash_key(entry.key));
        self.footer.keys += 1;
        self.footer.revision = self.footer.revision.max(entry.version.revision);
        if let Some(expires) = entry.version.expires {
            self.footer.expiring_keys += 1;
            self.expiring.extend_from_slice(&expires.to_le_bytes());
            varint::write(entry.version.revision, &mut self.expiring);
            varint::write_bytes(entry.key, &mut self.expiring);
        }
        Ok(())
    }

    fn close_block(&mut self) -> io::Result<()> {
        if self.block.is_empty() {
            return Ok(());
        }
        self.block.finish_into(&mut self.raw)?;
        let location = self.file.append_block(&self.raw)?;
        self.index
            .push(&self.block_first, location)
            .ok_or_else(|| invalid("the first keys of a run's blocks are too long together"))
    }
}

impl SortedFileWriter for RunWriter {
    fn items(&self) -> u64 {
        self.footer.keys
    }

    fn finish(mut self) -> io::Result<()> {
        self.close_block()?;
        self.footer.index = self.file.append_section(&self.index.write())?;
        self.footer.filter = self.file.append_section(&self.filter.to_bytes())?;
        self.footer.expiring = self.file.append_section(&self.expiring)?;
        self.footer.body_crc = self.file.output.crc();
        self.footer.number = self.file.number;
        self.file.finish_with_footer(self.footer.fields()).map(drop)
    }

    fn file(&self) -> &FileWriter {
        &self.file
    }
}
