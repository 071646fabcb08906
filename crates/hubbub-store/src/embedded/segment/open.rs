//! Opening a segment, and getting checked bytes, blocks and messages out of its file.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crc32c::crc32c_append;

use hubbub_core::{Message, Timestamp};

use super::BlockCache;
use super::block::MessageBlock;
use super::format::{self, FOOTER_BYTES, Footer, SEGMENT, SectionEntry, section};
use super::id_table::{PAGE_ENTRIES, ids_bytes};
use super::index::{BlockEntry, RoomEntry, RoomIndex, read_blocks};
use super::paged::Paged;
use super::users::UserFences;
use crate::embedded::disk::{Disk, DiskFile};
use crate::embedded::file::cursor::index;
use crate::embedded::file::reader::read_u64s;
use crate::embedded::file::{CachedBlocks, DataFile, FileError, FileKind, Section};

/// A room's part of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RoomSpan<'a> {
    /// The room.
    pub(crate) room: &'a str,
    /// Seq of its first message here.
    pub(crate) first_seq: u64,
    /// Seq of its last message here.
    pub(crate) last_seq: u64,
    /// Messages it has here.
    pub(crate) count: u64,
    /// When the first of them was received.
    pub(crate) first_received: Timestamp,
    /// When the last of them was received.
    pub(crate) last_received: Timestamp,
}

/// An open segment. Cheap to clone; reads from many threads at once. Removing the file does not disturb it.
#[derive(Clone)]
pub(crate) struct Segment {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) file: DataFile,
    pub(super) number: u64,
    pub(super) body: SectionEntry,
    pub(super) crc: u32,
    pub(super) messages: u32,
    pub(super) rooms: RoomIndex,
    pub(super) blocks: Vec<BlockEntry>,
    pub(super) ids: Range<u64>,
    pub(super) fences: Vec<u64>,
    pub(super) users: Paged,
    pub(super) postings: Paged,
    pub(super) user_fences: UserFences,
    pub(super) user_count: u64,
    pub(super) cached: CachedBlocks<MessageBlock>,
}

impl Segment {
    /// Opens segment `number` and checks everything but blocks, ids and users, which are checked as they are read. Decoded
    /// blocks are kept in `cache`. Indexes take about 32 bytes of memory per block, 8 per 341 ids, 50 per room, 30 per 64 users.
    pub(crate) fn open(disk: &dyn Disk, number: u64, cache: Arc<BlockCache>) -> Result<Self, FileError> {
        let file = DataFile::open(disk, &SEGMENT, number)?;
        let (sections, end) = read_sections(&file, number)?;
        let sections = Sections { file: &file, entries: &sections };

        let (at, found) = sections.read(section::ROOMS)?;
        let rooms = RoomIndex::read(&found)
            .ok_or_else(|| file.damaged(at.offset, "the index of rooms is not one"))?;
        let (blocks_at, found) = sections.read(section::BLOCKS)?;
        let (blocks, messages, blocks_end) = read_blocks(&found, FileKind::HEADER_BYTES as u64)
            .ok_or_else(|| file.damaged(blocks_at.offset, "the index of blocks is not one"))?;
        let fences = read_u64s(&sections.read(section::FENCES)?.1);
        let ids = sections.find(section::IDS)?;
        let body = sections.find(section::BODY)?;

        let (at, found) = sections.read(section::USER_FENCES)?;
        let user_fences = UserFences::read(&found)
            .ok_or_else(|| file.damaged(at.offset, "the index of users is not one"))?;
        let (users, postings) = (sections.find(section::USERS)?, sections.find(section::POSTINGS)?);
        let user_count = users.items;
        let (Some(users), Some(all_postings)) = (Paged::of(&users), Paged::of(&postings)) else {
            return Err(file.damaged(users.offset, "the pages of users are cut"));
        };

        let fits = blocks_end == ids.offset
            && postings.items == u64::from(messages)
            && rooms.entries().last().map_or(0, RoomEntry::end) == messages
            && ids.bytes == ids_bytes(messages.into())
            && body.bytes + end.len() as u64 == file.bytes()
            && fences.len() as u64 == u64::from(messages).div_ceil(PAGE_ENTRIES as u64);
        if !fits {
            return Err(file.damaged(blocks_at.offset, "the indexes do not fit each other"));
        }
        let inner = Inner {
            number,
            body,
            crc: crc32c_append(body.crc, &end),
            messages,
            rooms,
            blocks,
            ids: ids.offset..ids.offset + ids.bytes,
            fences,
            users,
            postings: all_postings,
            user_fences,
            user_count,
            cached: CachedBlocks::new(cache),
            file,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Its number, part of its file name.
    pub(crate) fn number(&self) -> u64 {
        self.inner.number
    }

    /// Length of the file.
    pub(crate) fn bytes(&self) -> u64 {
        self.inner.file.bytes()
    }

    /// Checksum of the whole file, as it was written.
    pub(crate) fn crc32c(&self) -> u32 {
        self.inner.crc
    }

    /// The open file.
    pub(crate) fn file(&self) -> &Arc<dyn DiskFile> {
        self.inner.file.handle()
    }

    /// How many messages it holds.
    pub(crate) fn messages(&self) -> u64 {
        self.inner.messages.into()
    }

    /// How many users have messages in it.
    pub(crate) fn user_count(&self) -> u64 {
        self.inner.user_count
    }

    /// When its oldest and its newest message were received; `None` when it holds none.
    pub(crate) fn times(&self) -> Option<(Timestamp, Timestamp)> {
        self.inner.rooms.times()
    }

    /// Its rooms in the order of their names.
    pub(crate) fn rooms(&self) -> impl Iterator<Item = RoomSpan<'_>> {
        self.inner.rooms.entries().iter().map(|entry| self.room_span(entry))
    }

    /// A room's part, `None` when it has none here.
    pub(crate) fn span(&self, room: &str) -> Option<RoomSpan<'_>> {
        self.room(room).map(|entry| self.room_span(entry))
    }

    /// The room of the message with this ordinal, and the ordinals of all its messages.
    pub(crate) fn room_of(&self, ordinal: u32) -> Option<(RoomSpan<'_>, Range<u32>)> {
        let entry = self.inner.rooms.of_ordinal(ordinal).filter(|entry| ordinal < entry.end())?;
        Some((self.room_span(entry), entry.first_ordinal..entry.end()))
    }

    fn room_span(&self, entry: &RoomEntry) -> RoomSpan<'_> {
        RoomSpan {
            room: self.inner.rooms.name(entry),
            first_seq: entry.first_seq,
            last_seq: entry.last_seq,
            count: entry.count.into(),
            first_received: Timestamp::from_micros(entry.first_received),
            last_received: Timestamp::from_micros(entry.last_received),
        }
    }

    pub(super) fn room(&self, room: &str) -> Option<&RoomEntry> {
        self.inner.rooms.find(room)
    }

    /// Name and ordinals of the room at `place` in the order of names.
    pub(super) fn room_at(&self, place: usize) -> Option<(&str, Range<u32>)> {
        let entry = self.inner.rooms.entries().get(place)?;
        Some((self.inner.rooms.name(entry), entry.first_ordinal..entry.end()))
    }

    /// Place of the block that holds the message with this ordinal.
    pub(super) fn block_of(&self, ordinal: u32) -> usize {
        let behind = self.inner.blocks.partition_point(|block| block.first_ordinal <= ordinal);
        behind.saturating_sub(1)
    }

    /// Ordinals of the messages of the block at `place`.
    pub(super) fn ordinals(&self, place: usize) -> Range<u32> {
        let first =
            |place: usize| self.inner.blocks.get(place).map_or(self.inner.messages, |b| b.first_ordinal);
        first(place)..first(place + 1)
    }

    /// The time to which those in postings are differences.
    pub(super) fn base_time(&self) -> i64 {
        self.inner.rooms.base_time()
    }

    pub(super) fn room_entry(&self, place: usize) -> Option<&RoomEntry> {
        self.inner.rooms.entries().get(place)
    }

    pub(super) fn damaged(&self, offset: u64, what: &'static str) -> FileError {
        self.inner.file.damaged(offset, what)
    }

    pub(super) fn read(&self, offset: u64, bytes: u64) -> Result<Vec<u8>, FileError> {
        self.inner.file.read(offset, bytes)
    }

    /// The block at `place`, from the cache or put into it.
    pub(super) fn block(&self, place: usize) -> Result<Arc<MessageBlock>, FileError> {
        self.inner.cached.get_or_load(place, || self.load_block(place))
    }

    /// The block at `place`, past the cache.
    pub(super) fn load_block(&self, place: usize) -> Result<MessageBlock, FileError> {
        let entry = self.inner.blocks.get(place);
        let entry = entry.ok_or_else(|| self.damaged(0, "there is no such block"))?;
        let stored = self.read(entry.offset, entry.stored_bytes.into())?;
        let raw = self.inner.file.unpack(&stored, entry.offset)?;
        MessageBlock::decode(&raw, self.ordinals(place).len())
            .ok_or_else(|| self.damaged(entry.offset, "a block does not match its index"))
    }

    /// Shows `visit` the message with this ordinal.
    pub(crate) fn with_message<T>(
        &self,
        ordinal: u32,
        visit: impl FnOnce(&Message<'_>) -> T,
    ) -> Result<T, FileError> {
        let place = self.block_of(ordinal);
        let block = self.block(place)?;
        let at = index(ordinal.saturating_sub(self.ordinals(place).start));
        let room = self.inner.rooms.of_ordinal(ordinal).map_or("", |entry| self.inner.rooms.name(entry));
        let message = block.message(at, room);
        let offset = self.inner.blocks.get(place).map_or(0, |entry| entry.offset);
        Ok(visit(&message.ok_or_else(|| self.damaged(offset, "a message does not fit its block"))?))
    }
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Segment").field(&self.inner.file).finish()
    }
}

/// The table of sections, and the end of the file as it is, from the table on.
fn read_sections(file: &DataFile, number: u64) -> Result<(Vec<SectionEntry>, Vec<u8>), FileError> {
    let (at, last) = file.read_footer(FOOTER_BYTES)?;
    let footer = Footer::read(&last).ok_or_else(|| file.damaged(at, "it does not end as a segment does"))?;
    if footer.number != number {
        return Err(file.damaged(at, "it is another segment than its name says"));
    }
    let table = Section { offset: footer.table_offset, bytes: footer.table_bytes(), crc: footer.table_crc };
    let mut end = file.read_section(&table, "the checksum of the table of sections does not match")?;
    let sections = format::read_table(&end)
        .ok_or_else(|| file.damaged(footer.table_offset, "the table of sections is cut"))?;
    end.extend_from_slice(&last);
    Ok((sections, end))
}

/// The sections of a file that is being opened.
struct Sections<'a> {
    file: &'a DataFile,
    entries: &'a [SectionEntry],
}

impl Sections<'_> {
    fn find(&self, kind: u32) -> Result<SectionEntry, FileError> {
        let found = self.entries.iter().find(|section| section.kind == kind);
        found.copied().ok_or_else(|| self.file.damaged(self.file.bytes(), "a section is missing"))
    }

    fn read(&self, kind: u32) -> Result<(SectionEntry, Vec<u8>), FileError> {
        let entry = self.find(kind)?;
        let section = Section { offset: entry.offset, bytes: entry.bytes, crc: entry.crc };
        Ok((entry, self.file.read_section(&section, "the checksum of an index does not match")?))
    }
}
