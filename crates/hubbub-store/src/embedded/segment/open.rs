//! Opening a segment, and getting checked bytes, blocks and messages out of its file.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crc32c::{crc32c, crc32c_append};

use hubbub_core::{Message, Timestamp};

use super::BlockCache;
use super::block::Block;
use super::format::{self, FOOTER_BYTES, Fault, Footer, HEADER_BYTES, Section, VERSION, section};
use super::id_table::{PAGE_ENTRIES, ids_bytes};
use super::index::{BlockEntry, RoomEntry, RoomIndex, read_blocks};
use super::paged::Paged;
use super::segment_path;
use super::users::UserFences;
use crate::embedded::disk::{Disk, DiskFile};
use crate::embedded::file::block::{BLOCK_RAW_BYTES_MAX, Stored};
use crate::embedded::file::codec::decompress;
use crate::embedded::file::error::SegmentError;

/// A room's part of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoomSpan<'a> {
    /// The room.
    pub room: &'a str,
    /// Seq of its first message here.
    pub first_seq: u64,
    /// Seq of its last message here.
    pub last_seq: u64,
    /// Messages it has here.
    pub count: u64,
    /// When the first of them was received.
    pub first_received: Timestamp,
    /// When the last of them was received.
    pub last_received: Timestamp,
}

/// An open segment. Cheap to clone; reads from many threads at once. Removing the file does not disturb it.
#[derive(Clone)]
pub struct Segment {
    inner: Arc<Inner>,
}

struct Inner {
    file: Arc<dyn DiskFile>,
    path: String,
    number: u64,
    bytes: u64,
    body: Section,
    crc: u32,
    messages: u32,
    rooms: RoomIndex,
    blocks: Vec<BlockEntry>,
    ids: Range<u64>,
    fences: Vec<u64>,
    users: Paged,
    postings: Paged,
    user_fences: UserFences,
    user_count: u64,
    cache: Arc<BlockCache>,
    owner: u64,
}

impl Segment {
    /// Opens segment `number` and checks everything but blocks, ids and users, which are checked as they are read. Decoded
    /// blocks are kept in `cache`. Indexes take about 32 bytes of memory per block, 8 per 341 ids, 50 per room, 30 per 64 users.
    pub fn open(disk: &dyn Disk, number: u64, cache: Arc<BlockCache>) -> Result<Self, SegmentError> {
        let path = segment_path(number);
        let io = |source| SegmentError::Io { file: path.clone(), offset: 0, source };
        let file = disk.open(&path).map_err(io)?;
        let bytes = file.len().map_err(io)?;
        let parts = Parts { file: &*file, path: &path, bytes };
        parts.check_header()?;
        let (sections, end) = parts.sections(number)?;

        let (at, found) = parts.section(&sections, section::ROOMS)?;
        let rooms = RoomIndex::read(&found)
            .ok_or_else(|| parts.damaged(at.offset, "the index of rooms is not one"))?;
        let (blocks_at, found) = parts.section(&sections, section::BLOCKS)?;
        let (blocks, messages, blocks_end) = read_blocks(&found, HEADER_BYTES as u64)
            .ok_or_else(|| parts.damaged(blocks_at.offset, "the index of blocks is not one"))?;
        let (_, found) = parts.section(&sections, section::FENCES)?;
        let (exact, _) = found.as_chunks::<8>();
        let fences: Vec<u64> = exact.iter().map(|hash| u64::from_le_bytes(*hash)).collect();
        let ids = parts.find(&sections, section::IDS)?;
        let body = parts.find(&sections, section::BODY)?;

        let (at, found) = parts.section(&sections, section::USER_FENCES)?;
        let user_fences = UserFences::read(&found)
            .ok_or_else(|| parts.damaged(at.offset, "the index of users is not one"))?;
        let (users, postings) =
            (parts.find(&sections, section::USERS)?, parts.find(&sections, section::POSTINGS)?);
        let user_count = users.items;
        let (Some(users), Some(all_postings)) = (Paged::of(&users), Paged::of(&postings)) else {
            return Err(parts.damaged(users.offset, "the pages of users are cut"));
        };

        let fits = blocks_end == ids.offset
            && postings.items == u64::from(messages)
            && rooms.entries().last().map_or(0, RoomEntry::end) == messages
            && ids.bytes == ids_bytes(messages.into())
            && body.bytes + end.len() as u64 == bytes
            && fences.len() as u64 == u64::from(messages).div_ceil(PAGE_ENTRIES as u64);
        if !fits {
            return Err(parts.damaged(blocks_at.offset, "the indexes do not fit each other"));
        }
        let ids = ids.offset..ids.offset + ids.bytes;
        let owner = cache.new_owner();
        let crc = crc32c_append(body.crc, &end);
        let inner = Inner {
            file,
            path,
            number,
            bytes,
            body,
            crc,
            messages,
            rooms,
            blocks,
            ids,
            fences,
            users,
            postings: all_postings,
            user_fences,
            user_count,
            cache,
            owner,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Its number, part of its file name.
    pub fn number(&self) -> u64 {
        self.inner.number
    }

    /// Length of the file.
    pub fn bytes(&self) -> u64 {
        self.inner.bytes
    }

    /// Checksum of the whole file, as it was written.
    pub fn crc32c(&self) -> u32 {
        self.inner.crc
    }

    /// The open file.
    pub(crate) fn file(&self) -> &Arc<dyn DiskFile> {
        &self.inner.file
    }

    /// How many messages it holds.
    pub fn messages(&self) -> u64 {
        self.inner.messages.into()
    }

    /// How many users have messages in it.
    pub fn user_count(&self) -> u64 {
        self.inner.user_count
    }

    /// When its oldest and its newest message were received; `None` when it holds none.
    pub fn times(&self) -> Option<(Timestamp, Timestamp)> {
        self.inner.rooms.times()
    }

    /// Its rooms in the order of their names.
    pub fn rooms(&self) -> impl Iterator<Item = RoomSpan<'_>> {
        self.inner.rooms.entries().iter().map(|entry| self.room_span(entry))
    }

    /// A room's part, `None` when it has none here.
    pub fn span(&self, room: &str) -> Option<RoomSpan<'_>> {
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

    pub(super) fn blocks(&self) -> &[BlockEntry] {
        &self.inner.blocks
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

    pub(super) fn fences(&self) -> &[u64] {
        &self.inner.fences
    }

    pub(super) fn ids_range(&self) -> &Range<u64> {
        &self.inner.ids
    }

    pub(super) fn users_paged(&self) -> Paged {
        self.inner.users
    }

    pub(super) fn postings_paged(&self) -> Paged {
        self.inner.postings
    }

    pub(super) fn user_fences(&self) -> &UserFences {
        &self.inner.user_fences
    }

    /// The time to which those in postings are differences.
    pub(super) fn base_time(&self) -> i64 {
        self.inner.rooms.base_time()
    }

    pub(super) fn message_count(&self) -> u32 {
        self.inner.messages
    }

    pub(super) fn room_entry(&self, place: usize) -> Option<&RoomEntry> {
        self.inner.rooms.entries().get(place)
    }

    pub(super) fn body(&self) -> &Section {
        &self.inner.body
    }

    pub(super) fn damaged(&self, offset: u64, what: &'static str) -> SegmentError {
        SegmentError::Damaged { file: self.inner.path.clone(), offset, what }
    }

    pub(super) fn read(&self, offset: u64, bytes: usize) -> Result<Vec<u8>, SegmentError> {
        let mut buffer = vec![0; bytes];
        match self.inner.file.read_exact_at(&mut buffer, offset) {
            Ok(()) => Ok(buffer),
            Err(source) => Err(SegmentError::Io { file: self.inner.path.clone(), offset, source }),
        }
    }

    /// The block at `place`, from the cache or put into it.
    pub(super) fn block(&self, place: usize) -> Result<Arc<Block>, SegmentError> {
        let key = u32::try_from(place).unwrap_or(u32::MAX);
        if let Some(block) = self.inner.cache.get(self.inner.owner, key) {
            return Ok(block);
        }
        let block = Arc::new(self.load_block(place)?);
        self.inner.cache.insert(self.inner.owner, key, Arc::clone(&block));
        Ok(block)
    }

    /// The block at `place`, past the cache.
    pub(super) fn load_block(&self, place: usize) -> Result<Block, SegmentError> {
        let entry = self.inner.blocks.get(place);
        let entry = entry.ok_or_else(|| self.damaged(0, "there is no such block"))?;
        let stored = self.read(entry.offset, usize::try_from(entry.stored_bytes).unwrap_or(usize::MAX))?;
        let block = Stored::check(&stored).and_then(|stored| {
            let raw_bytes = usize::try_from(stored.raw_bytes).ok().filter(|b| *b <= BLOCK_RAW_BYTES_MAX)?;
            let raw = decompress(stored.codec, stored.payload, raw_bytes)?;
            Block::decode(&raw, self.ordinals(place).len())
        });
        block.ok_or_else(|| self.damaged(entry.offset, "a block does not match its checksum or its index"))
    }

    /// Shows `visit` the message with this ordinal.
    pub(crate) fn with_message<T>(
        &self,
        ordinal: u32,
        visit: impl FnOnce(&Message<'_>) -> T,
    ) -> Result<T, SegmentError> {
        let place = self.block_of(ordinal);
        let block = self.block(place)?;
        let index = ordinal.saturating_sub(self.ordinals(place).start);
        let room = self.inner.rooms.of_ordinal(ordinal).map_or("", |entry| self.inner.rooms.name(entry));
        let message = block.message(usize::try_from(index).unwrap_or(usize::MAX), room);
        let offset = self.inner.blocks.get(place).map_or(0, |entry| entry.offset);
        Ok(visit(&message.ok_or_else(|| self.damaged(offset, "a message does not fit its block"))?))
    }
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Segment").field("path", &self.inner.path).finish_non_exhaustive()
    }
}

/// The file while it is being opened.
struct Parts<'a> {
    file: &'a dyn DiskFile,
    path: &'a str,
    bytes: u64,
}

impl Parts<'_> {
    fn damaged(&self, offset: u64, what: &'static str) -> SegmentError {
        SegmentError::Damaged { file: self.path.to_owned(), offset, what }
    }

    fn read(&self, offset: u64, bytes: u64) -> Result<Vec<u8>, SegmentError> {
        if offset.checked_add(bytes).is_none_or(|end| end > self.bytes) {
            return Err(self.damaged(self.bytes, "the file is too short"));
        }
        let mut buffer = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)];
        match self.file.read_exact_at(&mut buffer, offset) {
            Ok(()) => Ok(buffer),
            Err(source) => Err(SegmentError::Io { file: self.path.to_owned(), offset, source }),
        }
    }

    fn check_header(&self) -> Result<(), SegmentError> {
        let found = self.read(0, HEADER_BYTES as u64)?;
        match format::check_header(&found) {
            Ok(()) => Ok(()),
            Err(Fault::Damaged(what)) => Err(self.damaged(0, what)),
            Err(Fault::Version(found)) => {
                Err(SegmentError::Version { file: self.path.to_owned(), found, supported: VERSION })
            }
        }
    }

    /// The table of sections, and the end of the file as it is, from the table on.
    fn sections(&self, number: u64) -> Result<(Vec<Section>, Vec<u8>), SegmentError> {
        let at = self.bytes.saturating_sub(FOOTER_BYTES as u64);
        let last = self.read(at, FOOTER_BYTES as u64)?;
        let footer =
            Footer::read(&last).ok_or_else(|| self.damaged(at, "it does not end as a segment does"))?;
        if footer.number != number {
            return Err(self.damaged(at, "it is another segment than its name says"));
        }
        let mut table = self.read(footer.table_offset, footer.table_bytes())?;
        if crc32c(&table) != footer.table_crc {
            return Err(
                self.damaged(footer.table_offset, "the checksum of the table of sections does not match")
            );
        }
        let sections = format::read_table(&table)
            .ok_or_else(|| self.damaged(footer.table_offset, "the table of sections is cut"))?;
        table.extend_from_slice(&last);
        Ok((sections, table))
    }

    fn find(&self, sections: &[Section], kind: u32) -> Result<Section, SegmentError> {
        let found = sections.iter().find(|section| section.kind == kind);
        found.copied().ok_or_else(|| self.damaged(self.bytes, "a section is missing"))
    }

    fn section(&self, sections: &[Section], kind: u32) -> Result<(Section, Vec<u8>), SegmentError> {
        let section = self.find(sections, kind)?;
        let found = self.read(section.offset, section.bytes)?;
        if crc32c(&found) != section.crc {
            return Err(self.damaged(section.offset, "the checksum of an index does not match"));
        }
        Ok((section, found))
    }
}
