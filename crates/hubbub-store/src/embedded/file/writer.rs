//! Writing a file: under another name until all of it is synced, so that it is there whole or not at all.

use std::io;
use std::sync::Arc;

use crc32c::crc32c;

use super::block::{self, BlockLocation};
use super::codec::Compressor;
use super::{Codec, DataFile, FileKind, Output, Section};
use crate::embedded::disk::Disk;
use crate::embedded::error::{DoingOn, MaintainError};

/// Writes one file. After a crash before [`Self::finish`] returned, write it again under the same number.
pub(crate) struct FileWriter {
    disk: Arc<dyn Disk>,
    kind: &'static FileKind,
    pub(crate) number: u64,
    compressor: Compressor,
    pub(crate) output: Output,
}

impl FileWriter {
    /// Begins file `number` of a kind, in place of an unfinished one.
    pub(crate) fn create(
        disk: Arc<dyn Disk>,
        kind: &'static FileKind,
        number: u64,
        codec: Codec,
    ) -> io::Result<Self> {
        let mut output = Output::new(disk.create(&kind.unfinished_path(number))?);
        output.append(|out| out.extend_from_slice(&kind.header()))?;
        Ok(Self { disk, kind, number, compressor: Compressor::new(codec)?, output })
    }

    pub(crate) fn append_block(&mut self, raw: &[u8]) -> io::Result<BlockLocation> {
        block::append(raw, &mut self.compressor, &mut self.output)
    }

    pub(crate) fn append_section(&mut self, bytes: &[u8]) -> io::Result<Section> {
        let offset = self.output.position();
        self.output.append(|out| out.extend_from_slice(bytes))?;
        Ok(Section { offset, bytes: bytes.len() as u64, crc: crc32c(bytes) })
    }

    /// Appends a footer with these fields, then does what [`Self::finish`] does.
    pub(crate) fn finish_with_footer(mut self, mut fields: Vec<u8>) -> io::Result<DataFile> {
        self.kind.finish_footer(&mut fields);
        self.output.append(|out| out.extend_from_slice(&fields))?;
        self.finish()
    }

    /// Syncs everything and gives the file its name. Durable when it returns.
    pub(crate) fn finish(mut self) -> io::Result<DataFile> {
        self.output.sync()?;
        let (bytes, crc32c) = (self.output.position(), self.output.crc());
        self.disk.rename(&self.kind.unfinished_path(self.number), &self.kind.path(self.number))?;
        self.disk.sync_dir(self.kind.dir)?;
        Ok(DataFile { kind: self.kind, number: self.number, file: self.output.into_file(), bytes, crc32c })
    }

    /// What there is of it until it has its name.
    fn unfinished(&self) -> Unfinished {
        Unfinished { disk: Arc::clone(&self.disk), path: self.kind.unfinished_path(self.number) }
    }
}

/// A file that does not have its name yet.
struct Unfinished {
    disk: Arc<dyn Disk>,
    path: String,
}

impl Unfinished {
    fn remove(&self) -> io::Result<()> {
        self.disk.remove(&self.path)
    }
}

pub(crate) trait SortedFileWriter {
    /// Messages or keys so far.
    fn items(&self) -> u64;
    /// Writes the indexes and makes the file durable under its name.
    fn finish(self) -> io::Result<()>;
    /// The file that is being written.
    fn file(&self) -> &FileWriter;
}

/// Writes a file with what `fill` adds, whole or not at all. `false`, and no file, when that is nothing.
pub(crate) fn write_sorted<W: SortedFileWriter>(
    path: &str,
    writer: io::Result<W>,
    fill: impl FnOnce(&mut W) -> Result<(), MaintainError>,
) -> Result<bool, MaintainError> {
    let mut writer = writer.doing("making", path)?;
    let unfinished = writer.file().unfinished();
    let filled = fill(&mut writer);
    if filled.is_ok() && writer.items() == 0 {
        unfinished.remove().doing("removing", path)?;
        return Ok(false);
    }
    let finished = filled.and_then(|()| writer.finish().doing("finishing", path));
    if finished.is_err() {
        // Its space may be what the next attempt, which writes the same file, is missing. There is none where the file has its name.
        let _ = unfinished.remove();
    }
    finished.map(|()| true)
}

/// That a caller broke a rule of the format.
pub(crate) fn invalid(rule: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, rule)
}
