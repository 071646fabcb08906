//! Writing files of remembered ids: out of memory, or several files into one.

use std::io;
use std::iter::Peekable;
use std::sync::Arc;

use crc32c::{crc32c, crc32c_append};

use super::record::SettledId;
use super::run::{BLOCK_BYTES, BLOCK_RECORDS, Footer, IdRun, Inner, header, id_run_path};
use crate::embedded::dedup::filter::BloomFilter;
use crate::embedded::disk::{Disk, DiskFile};
use crate::embedded::error::{DoingOn, MaintainError};
use crate::embedded::file::output::Output;
use crate::embedded::queues::QUEUES_DIR;
use crate::embedded::queues::time::Now;

/// Bits of the filter for each id: one in about 500 that are not there passes.
const FILTER_BITS_PER_ID: u64 = 16;

/// Ids sorted by hash.
type Sorted = Peekable<Box<dyn Iterator<Item = Result<SettledId, MaintainError>>>>;

/// Ids that are sorted and written together.
pub(super) struct Source {
    /// How many at most.
    pub(super) count: u64,
    pub(super) ids: Box<dyn Iterator<Item = Result<SettledId, MaintainError>>>,
}

/// Writes the file of a number: what the sources have, those later in the list counting before those earlier, without
/// what is over. `None`, and no file, when all of it is over. Durable when it returns, but not named by any manifest.
pub(super) fn write(
    disk: &dyn Disk,
    number: u64,
    sources: Vec<Source>,
    now: Now,
) -> Result<Option<IdRun>, MaintainError> {
    let path = id_run_path(number);
    let file = disk.create(&path).doing("making", &path)?;
    let written = write_to(&file, number, sources, now);
    if !matches!(written, Ok(Some(_))) {
        disk.remove(&path).doing("removing", &path)?;
        return written;
    }
    disk.sync_dir(QUEUES_DIR).doing("syncing the directory", QUEUES_DIR)?;
    written
}

fn write_to(
    file: &Arc<dyn DiskFile>,
    number: u64,
    sources: Vec<Source>,
    now: Now,
) -> Result<Option<IdRun>, MaintainError> {
    let path = id_run_path(number);
    let count = sources.iter().map(|source| source.count).sum::<u64>().max(1);
    let mut sources: Vec<Sorted> = sources.into_iter().map(|source| source.ids.peekable()).collect();
    let mut writer = Writer {
        output: Output::new(Arc::clone(file)),
        block: Vec::new(),
        index: Vec::new(),
        filter: BloomFilter::new(count, FILTER_BITS_PER_ID),
        footer: Footer { number, newest: i64::MIN, ..Footer::default() },
        ahead: now.wall.saturating_sub(now.at),
    };
    writer.output.append(|out| out.extend_from_slice(&header())).doing("writing", &path)?;
    while let Some(record) = next(&mut sources)? {
        if record.forget_at > now.at {
            writer.push(record).doing("writing", &path)?;
        }
    }
    if writer.footer.records == 0 { Ok(None) } else { writer.finish(file).map(Some).doing("writing", &path) }
}

/// The next id in order, as the last source that has it says.
fn next(sources: &mut [Sorted]) -> Result<Option<SettledId>, MaintainError> {
    let mut first: Option<SettledId> = None;
    for source in &mut *sources {
        match source.peek() {
            // An id that comes again, newer in a later source, takes the place of the older one.
            Some(Ok(record)) if first.is_none_or(|first| record.known_as <= first.known_as) => {
                first = Some(*record);
            }
            Some(Ok(_)) | None => {}
            Some(Err(_)) => {
                return source.next().transpose();
            }
        }
    }
    if let Some(first) = first {
        for source in sources {
            while source
                .next_if(|record| record.as_ref().is_ok_and(|record| record.known_as == first.known_as))
                .is_some()
            {}
        }
    }
    Ok(first)
}

struct Writer {
    output: Output,
    block: Vec<u8>,
    index: Vec<u8>,
    filter: BloomFilter,
    footer: Footer,
    ahead: i64,
}

impl Writer {
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
        self.block.resize(BLOCK_BYTES - 4, 0);
        let crc = crc32c(&self.block);
        self.output.append(|out| {
            out.extend_from_slice(&crc.to_le_bytes());
            out.extend_from_slice(&self.block);
        })?;
        self.footer.blocks += 1;
        self.block.clear();
        Ok(())
    }

    fn finish(mut self, file: &Arc<dyn DiskFile>) -> io::Result<IdRun> {
        self.close_block()?;
        let filter = self.filter.to_bytes();
        self.footer.filter_bytes = filter.len() as u64;
        self.footer.parts_crc = crc32c_append(crc32c(&self.index), &filter);
        self.output.append(|out| {
            out.extend_from_slice(&self.index);
            out.extend_from_slice(&filter);
        })?;
        self.footer.body_crc = self.output.crc();
        let tail = self.footer.write();
        self.output.append(|out| out.extend_from_slice(&tail))?;
        self.output.sync()?;
        let index = self.index.as_chunks::<8>().0.iter().map(|first| u64::from_le_bytes(*first)).collect();
        Ok(IdRun::new(Inner {
            number: self.footer.number,
            file: Arc::clone(file),
            bytes: self.output.position(),
            crc32c: self.output.crc(),
            footer: self.footer,
            index,
            filter: self.filter,
            ahead: self.ahead,
            forget_all_at: self.footer.newest.saturating_sub(self.ahead),
        }))
    }
}
