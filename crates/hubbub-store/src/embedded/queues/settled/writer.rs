//! Writing files of remembered ids: out of memory, or several files into one.

use std::io;
use std::iter::Peekable;
use std::sync::Arc;

use crc32c::{crc32c, crc32c_append};

use super::record::SettledId;
use super::run::{BLOCK_BYTES, BLOCK_RECORDS, Footer, ID_RUN, IdRun, PADDING};
use crate::embedded::dedup::filter::BloomFilter;
use crate::embedded::disk::Disk;
use crate::embedded::error::{DoingOn, MaintainError};
use crate::embedded::file::{Codec, FileWriter, SortedFileWriter, write_sorted};
use crate::embedded::queues::time::Now;

/// Bits of the filter for each id: one in about 500 that are not there passes.
const FILTER_BITS_PER_ID: u64 = 16;

/// Ids sorted by hash.
type Sorted = Box<dyn Iterator<Item = Result<SettledId, MaintainError>>>;

/// Writes the file of a number: what the sources have, up to `count` ids, without what is over. Sources later in the
/// list count before those earlier. `None`, and no file, when all of it is over. Durable when it returns, but not named
/// by any manifest.
pub(super) fn write(
    disk: &Arc<dyn Disk>,
    number: u64,
    sources: impl Iterator<Item = Sorted>,
    count: u64,
    now: Now,
) -> Result<Option<IdRun>, MaintainError> {
    let path = ID_RUN.path(number);
    let mut sources: Vec<_> = sources.map(Iterator::peekable).collect();
    let is_written = write_sorted(&path, RunWriter::create(disk, number, count, now), |writer| {
        while let Some(record) = next(&mut sources)? {
            if record.forget_at > now.at {
                writer.push(record).doing("writing", &path)?;
            }
        }
        Ok(())
    });
    if is_written.is_err() {
        // The next attempt writes another number, so on a full disk each would leave something.
        for left in [ID_RUN.unfinished_path(number), path] {
            let _ = disk.remove(&left);
        }
    }
    if is_written? { Ok(Some(IdRun::open(&**disk, number, now)?)) } else { Ok(None) }
}

/// The next id in order, as the last source that has it says.
fn next(sources: &mut [Peekable<Sorted>]) -> Result<Option<SettledId>, MaintainError> {
    let mut first: Option<SettledId> = None;
    for source in &mut *sources {
        if let Some(error) = source.next_if(Result::is_err) {
            return error.map(Some);
        }
        // An id that comes again, newer in a later source, takes the place of the older one.
        let record = source.peek().and_then(|record| record.as_ref().ok());
        first = record
            .filter(|record| first.is_none_or(|first| record.known_as <= first.known_as))
            .copied()
            .or(first);
    }
    let is_first = |record: &Result<SettledId, _>| {
        record.as_ref().ok().map(|record| record.known_as) == first.map(|first| first.known_as)
    };
    for source in sources {
        while source.next_if(is_first).is_some() {}
    }
    Ok(first)
}

struct RunWriter {
    file: FileWriter,
    block: Vec<u8>,
    index: Vec<u8>,
    filter: BloomFilter,
    footer: Footer,
    ahead: i64,
}

impl RunWriter {
    fn create(disk: &Arc<dyn Disk>, number: u64, count: u64, now: Now) -> io::Result<Self> {
        // The codec is for compressed blocks, which these files have none of.
        let mut file = FileWriter::create(Arc::clone(disk), &ID_RUN, number, Codec::Lz4)?;
        file.append_section(&PADDING)?;
        Ok(Self {
            file,
            block: Vec::new(),
            index: Vec::new(),
            filter: BloomFilter::new(count.max(1), FILTER_BITS_PER_ID),
            footer: Footer { number, newest: i64::MIN, ..Footer::default() },
            ahead: now.wall.saturating_sub(now.at),
        })
    }

    fn push(&mut self, record: SettledId) -> io::Result<()> {
        if self.footer.records.is_multiple_of(BLOCK_RECORDS as u64) {
            self.close_block()?;
            self.index.extend_from_slice(&record.known_as[0].to_le_bytes());
        }
        let forget_at = record.forget_at.saturating_add(self.ahead);
        SettledId { forget_at, ..record }.write(&mut self.block);
        self.filter.insert(record.known_as[0]);
        self.footer.newest = self.footer.newest.max(forget_at);
        self.footer.records += 1;
        Ok(())
    }

    fn close_block(&mut self) -> io::Result<()> {
        if self.block.is_empty() {
            return Ok(());
        }
        self.block.resize(BLOCK_BYTES - size_of::<u32>(), 0);
        self.file.append_section(&crc32c(&self.block).to_le_bytes())?;
        self.file.append_section(&self.block)?;
        self.footer.blocks += 1;
        self.block.clear();
        Ok(())
    }
}

impl SortedFileWriter for RunWriter {
    fn items(&self) -> u64 {
        self.footer.records
    }

    fn finish(mut self) -> io::Result<()> {
        self.close_block()?;
        let filter = self.filter.to_bytes();
        self.footer.filter_bytes = filter.len() as u64;
        self.footer.parts_crc = crc32c_append(crc32c(&self.index), &filter);
        self.file.append_section(&self.index)?;
        self.file.append_section(&filter)?;
        self.footer.body_crc = self.file.output.crc();
        self.file.finish_with_footer(self.footer.fields()).map(drop)
    }

    fn file(&self) -> &FileWriter {
        &self.file
    }
}
