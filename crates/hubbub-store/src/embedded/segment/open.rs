//! Opening a segment, and getting checked bytes, blocks and messages out of its file.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crc32c::crc32c_append;

use hubbub_core::{Message, Timestamp};

use super::BlockCache;
use super::block::MessageBlock;
use super::format::{self, FOOTER_BYTES, Footer, SEGMENT, SectionEntry, section};
use super::ids::{ENTRY_BYTES, PAGE_ENTRIES};
use super::index::{BlockEntry, RoomEntry, RoomIndex, read_blocks};
use super::paged::Paged;
use super::users::UserFences;
use crate::embedded::disk::Disk;
use crate::embedded::file::cursor::index;
use crate::embedded::file::reader::read_u64s;
use crate::embedded::file::{CachedBlocks, DataFile, FileError, FileKind, Section};

/// An open segment. Cheap to clone; reads from many threads at once. Removing the file does not disturb it.
#[derive(Clone)]
pub(crate) struct Segment {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) file: DataFile,
    pub(super) body: Section,
    pub(super) messages: u32,
    pub(super) rooms: RoomIndex,
    pub(super) blocks: Vec<BlockEntry>,
    pub(super) ids: Paged,
    pub(super) fences: Vec<u64>,
    pub(super) users: Paged,
    pub(super) postings: Paged,
    pub(super) user_fences: UserFences,
    pub(super) user_count: u64,
    cached: CachedBlocks<MessageBlock>,
}

impl Segment {
    /// Opens segment `number` and checks everything but blocks, ids and users, which are checked as they are read. Decoded
    /// blocks are kept in `cache`. Indexes take about 32 bytes of memory per block, 8 per 341 ids, 50 per room, 30 per 64 users.
    pub(crate) fn open(disk: &dyn Disk, number: u64, cache: Arc<BlockCache>) -> Result<Self, FileError> {
        let mut file = DataFile::open(disk, &SEGMENT, number)?;
        let (sections, end) = read_sections(&file)?;
        let sections = Sections { file: &file, entries: &sections };

        let (at, found) = sections.read(section::ROOMS)?;
        let rooms =
            RoomIndex::read(&found).ok_or_else(|| file.damaged(at, "the index of rooms is not one"))?;
        let (blocks_at, found) = sections.read(section::BLOCKS)?;
        let (blocks, messages, blocks_end) = read_blocks(&found, FileKind::HEADER_BYTES as u64)
            .ok_or_else(|| file.damaged(blocks_at, "the index of blocks is not one"))?;
        let fences = read_u64s(&sections.read(section::FENCES)?.1);
        let body = sections.find(section::BODY)?.place;
        let (at, found) = sections.read(section::USER_FENCES)?;
        let user_fences =
            UserFences::read(&found).ok_or_else(|| file.damaged(at, "the index of users is not one"))?;
        let ids = sections.paged(section::IDS, "the checksum of a page of ids does not match")?;
        let wrong_crc = "the checksum of a page of users does not match";
        let users = sections.paged(section::USERS, wrong_crc)?;
        let postings = sections.paged(section::POSTINGS, wrong_crc)?;

        let count = u64::from(messages);
        let fits = blocks_end == ids.offset
            && sections.find(section::POSTINGS)?.items == count
            && rooms.end() == messages
            && ids.bytes() == count * ENTRY_BYTES as u64
            && body.bytes + end.len() as u64 == file.bytes
            && fences.len() as u64 == count.div_ceil(PAGE_ENTRIES);
        if !fits {
            return Err(file.damaged(blocks_at, "the indexes do not fit each other"));
        }
        let user_count = sections.find(section::USERS)?.items;
        file.crc32c = crc32c_append(body.crc, &end);
        let inner = Inner {
            file,
            body,
            messages,
            rooms,
            blocks,
            ids,
            fences,
            users,
            postings,
            user_fences,
            user_count,
            cached: CachedBlocks::new(cache),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    pub(crate) fn file(&self) -> &DataFile {
        &self.inner.file
    }

    pub(crate) fn number(&self) -> u64 {
        self.inner.file.number
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.inner.file.bytes
    }

    pub(crate) fn messages(&self) -> u64 {
        self.inner.messages.into()
    }

    pub(crate) fn user_count(&self) -> u64 {
        self.inner.user_count
    }

    /// When its oldest and its newest message were received; `None` when it holds none.
    pub(crate) fn times(&self) -> Option<(Timestamp, Timestamp)> {
        self.inner.rooms.times()
    }

    pub(crate) fn rooms(&self) -> impl Iterator<Item = (&str, &RoomEntry)> {
        self.inner.rooms.all()
    }

    pub(crate) fn room(&self, room: &str) -> Option<&RoomEntry> {
        self.inner.rooms.find(room)
    }

    pub(crate) fn room_of(&self, ordinal: u32) -> Option<(&str, &RoomEntry)> {
        self.inner.rooms.of_ordinal(ordinal).filter(|(_, entry)| ordinal < entry.end())
    }

    pub(super) fn block_of(&self, ordinal: u32) -> usize {
        let behind = self.inner.blocks.partition_point(|block| block.first_ordinal <= ordinal);
        behind.saturating_sub(1)
    }

    pub(super) fn ordinals(&self, place: usize) -> Range<u32> {
        let first =
            |place: usize| self.inner.blocks.get(place).map_or(self.inner.messages, |b| b.first_ordinal);
        first(place)..first(place + 1)
    }

    /// The block at `place`, from the cache or put into it.
    pub(super) fn block(&self, place: usize) -> Result<Arc<MessageBlock>, FileError> {
        self.inner.cached.get_or_load(place, || self.load_block(place))
    }

    /// The block at `place`, past the cache.
    pub(super) fn load_block(&self, place: usize) -> Result<MessageBlock, FileError> {
        let file = &self.inner.file;
        let entry = self.inner.blocks.get(place);
        let entry = entry.ok_or_else(|| file.damaged(0, "there is no such block"))?;
        let stored = file.read(entry.offset, entry.stored_bytes.into())?;
        MessageBlock::decode(&file.unpack(&stored, entry.offset)?, self.ordinals(place).len())
            .ok_or_else(|| file.damaged(entry.offset, "a block does not match its index"))
    }

    pub(super) fn message<'a>(
        &self,
        place: usize,
        block: &'a MessageBlock,
        index: usize,
        room: &'a str,
    ) -> Result<Message<'a>, FileError> {
        let offset = || self.inner.blocks.get(place).map_or(0, |entry| entry.offset);
        let what = "a message does not fit its block";
        block.message(index, room).ok_or_else(|| self.inner.file.damaged(offset(), what))
    }

    pub(crate) fn with_message<T>(
        &self,
        ordinal: u32,
        visit: impl FnOnce(&Message<'_>) -> T,
    ) -> Result<T, FileError> {
        let place = self.block_of(ordinal);
        let block = self.block(place)?;
        let at = index(ordinal.saturating_sub(self.ordinals(place).start));
        let room = self.inner.rooms.of_ordinal(ordinal).map_or("", |(name, _)| name);
        Ok(visit(&self.message(place, &block, at, room)?))
    }
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Segment").field(&self.inner.file).finish()
    }
}

/// The table of sections, and the end of the file as it is, from the table on.
fn read_sections(file: &DataFile) -> Result<(Vec<SectionEntry>, Vec<u8>), FileError> {
    let (at, last) = file.read_footer(FOOTER_BYTES)?;
    let footer = Footer::read(&last).ok_or_else(|| file.damaged(at, "it does not end as a segment does"))?;
    if footer.number != file.number {
        return Err(file.damaged(at, "it is another segment than its name says"));
    }
    let table = Section { offset: footer.table_offset, bytes: footer.table_bytes(), crc: footer.table_crc };
    let mut end = file.read_section(&table, "the checksum of the table of sections does not match")?;
    let sections = format::read_table(&end)
        .ok_or_else(|| file.damaged(footer.table_offset, "the table of sections is cut"))?;
    end.extend_from_slice(&last);
    Ok((sections, end))
}

struct Sections<'a> {
    file: &'a DataFile,
    entries: &'a [SectionEntry],
}

impl Sections<'_> {
    fn find(&self, kind: u32) -> Result<&SectionEntry, FileError> {
        let found = self.entries.iter().find(|section| section.kind == kind);
        found.ok_or_else(|| self.file.damaged(self.file.bytes, "a section is missing"))
    }

    fn read(&self, kind: u32) -> Result<(u64, Vec<u8>), FileError> {
        let place = self.find(kind)?.place;
        Ok((place.offset, self.file.read_section(&place, "the checksum of an index does not match")?))
    }

    fn paged(&self, kind: u32, wrong_crc: &'static str) -> Result<Paged, FileError> {
        let place = &self.find(kind)?.place;
        Paged::of(place, wrong_crc)
            .ok_or_else(|| self.file.damaged(place.offset, "the pages of a table are cut"))
    }
}
