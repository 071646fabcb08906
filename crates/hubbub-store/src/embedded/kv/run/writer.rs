//! Writing a run: blocks stream out as they fill, the indexes follow at the end.

use std::io;
use std::sync::Arc;

use crc32c::crc32c;

use super::block::{BlockBuilder, Entry, INLINE_BYTES_MAX, Value};
use super::footer::{self, Footer, Part};
use super::index::Index;
use crate::embedded::dedup::filter::Tier;
use crate::embedded::disk::Disk;
use crate::embedded::file::block::Stored;
use crate::embedded::file::codec::Compressor;
use crate::embedded::file::cursor::put_varint;
use crate::embedded::file::output::Output;
use crate::embedded::kv::{KV_DIR, Version, run_path, unfinished_path};
use crate::embedded::segment::{Codec, IdHasher};

const FILTER_BITS_PER_KEY: u64 = 10;

/// Writes one run. Until [`Self::finish`] returned, it is not there.
pub(crate) struct RunWriter {
    disk: Arc<dyn Disk>,
    hasher: IdHasher,
    compressor: Compressor,
    output: Output,
    block: BlockBuilder,
    /// First key of the block being filled, and the last one pushed.
    block_first: Vec<u8>,
    last_key: Vec<u8>,
    raw: Vec<u8>,
    index: Index,
    filter: Tier,
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
        let mut output = Output::new(disk.create(&unfinished_path(number))?);
        output.append(|out| out.extend_from_slice(&footer::header()))?;
        Ok(Self {
            disk,
            hasher,
            compressor: Compressor::new(Codec::Lz4)?,
            output,
            block: BlockBuilder::default(),
            block_first: Vec::new(),
            last_key: Vec::new(),
            raw: Vec::new(),
            index: Index::default(),
            filter: Tier::new(keys_max.max(1), FILTER_BITS_PER_KEY),
            expiring: Vec::new(),
            footer: Footer { number, ..Footer::default() },
        })
    }

    /// Entries so far.
    pub(crate) fn keys(&self) -> u64 {
        self.footer.keys
    }

    /// Adds a key behind all before it, with its value, which is empty when it is deleted.
    pub(crate) fn push(&mut self, key: &[u8], version: Version, value: &[u8]) -> io::Result<()> {
        if value.len() <= INLINE_BYTES_MAX {
            return self.push_entry(&Entry { key, version, value: Value::Here(value) });
        }
        let raw_bytes = u32::try_from(value.len()).map_err(|_| invalid("a value must be below 4 GiB"))?;
        let (codec, payload) = self.compressor.compress(value)?;
        let offset = self.output.position();
        self.output.append(|out| Stored { codec, raw_bytes, payload }.write(out))?;
        let stored_bytes = u32::try_from(self.output.position() - offset).unwrap_or(u32::MAX);
        self.push_entry(&Entry { key, version, value: Value::At { offset, stored_bytes } })
    }

    /// The same with a value as it stands outside the blocks of another run.
    pub(super) fn push_stored(&mut self, key: &[u8], version: Version, stored: &[u8]) -> io::Result<()> {
        let offset = self.output.position();
        self.output.append(|out| out.extend_from_slice(stored))?;
        let stored_bytes = u32::try_from(stored.len()).unwrap_or(u32::MAX);
        self.push_entry(&Entry { key, version, value: Value::At { offset, stored_bytes } })
    }

    fn push_entry(&mut self, entry: &Entry<'_>) -> io::Result<()> {
        if self.footer.keys > 0 && entry.key <= self.last_key.as_slice() {
            return Err(invalid("keys must come in their order"));
        }
        let value = match entry.value {
            Value::Here(value) => value.len(),
            Value::At { .. } => 0,
        };
        if self.block.is_full_for(entry.key.len() + value) {
            self.close_block()?;
        }
        if self.block.is_empty() {
            self.block_first.clear();
            self.block_first.extend_from_slice(entry.key);
        }
        self.block.push(entry);
        self.last_key.clear();
        self.last_key.extend_from_slice(entry.key);
        self.filter.insert(self.hasher.hash_key(entry.key));
        self.footer.keys += 1;
        self.footer.revision = self.footer.revision.max(entry.version.revision);
        if let Some(expires) = entry.version.expires {
            self.footer.expiring_keys += 1;
            self.expiring.extend_from_slice(&expires.to_le_bytes());
            put_varint(&mut self.expiring, entry.version.revision);
            put_varint(&mut self.expiring, entry.key.len() as u64);
            self.expiring.extend_from_slice(entry.key);
        }
        Ok(())
    }

    /// Writes the indexes, syncs everything and gives the run its name. Durable when it returns.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.close_block()?;
        let (index, filter) = (self.index.write(), self.filter.to_bytes());
        let expiring = std::mem::take(&mut self.expiring);
        self.footer.index = self.write_part(&index)?;
        self.footer.filter = self.write_part(&filter)?;
        self.footer.expiring = self.write_part(&expiring)?;
        self.footer.body_crc = self.output.crc();
        let footer = self.footer.write();
        self.output.append(|out| out.extend_from_slice(&footer))?;
        self.output.sync()?;
        let number = self.footer.number;
        self.disk.rename(&unfinished_path(number), &run_path(number))?;
        self.disk.sync_dir(KV_DIR)
    }

    /// Gives up and removes what was written.
    pub(crate) fn discard(self) -> io::Result<()> {
        self.disk.remove(&unfinished_path(self.footer.number))
    }

    fn close_block(&mut self) -> io::Result<()> {
        if self.block.is_empty() {
            return Ok(());
        }
        self.block.finish_into(&mut self.raw);
        let offset = self.output.position();
        let raw_bytes = u32::try_from(self.raw.len()).unwrap_or(u32::MAX);
        let (codec, payload) = self.compressor.compress(&self.raw)?;
        self.output.append(|out| Stored { codec, raw_bytes, payload }.write(out))?;
        let stored_bytes = u32::try_from(self.output.position() - offset).unwrap_or(u32::MAX);
        self.index
            .push(&self.block_first, offset, stored_bytes)
            .ok_or_else(|| invalid("the first keys of a run's blocks are too long together"))
    }

    fn write_part(&mut self, bytes: &[u8]) -> io::Result<Part> {
        let offset = self.output.position();
        self.output.append(|out| out.extend_from_slice(bytes))?;
        Ok(Part { offset, bytes: bytes.len() as u64, crc: crc32c(bytes) })
    }
}

fn invalid(rule: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, rule)
}
