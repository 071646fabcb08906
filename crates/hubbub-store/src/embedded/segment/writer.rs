//! Writing a segment: blocks stream out as they fill, the indexes follow at the end.

use std::cmp::Ordering;
use std::io;
use std::sync::Arc;

use hubbub_core::Message;
use hubbub_core::invariant::cast;

use super::block::BlockBuilder;
use super::format::{self, Footer, SEGMENT, SectionEntry, section};
use super::id_hash::IdHasher;
use super::ids::IdTableWriter;
use super::index::{BlockEntry, RoomIndex, write_blocks};
use super::user_table::{UserCollector, UserSections, UserTableWriter};
use crate::embedded::disk::Disk;
use crate::embedded::file::writer::invalid;
use crate::embedded::file::{Codec, FileWriter, Output, Section, SortedFileWriter};

/// Writes one segment.
///
/// Until [`Self::finish`] returned, the segment is not there; after a crash in between, write it again under the
/// same number.
pub(crate) struct SegmentWriter {
    file: FileWriter,
    hasher: IdHasher,
    block: BlockBuilder,
    /// Seq and time of the first message of the block being filled.
    block_first: (u64, i64),
    raw: Vec<u8>,
    messages: u32,
    rooms: RoomIndex,
    blocks: Vec<BlockEntry>,
    /// Hash and ordinal of what was pushed; empty, like the users, when the tables are written otherwise.
    ids: Vec<(u64, u32)>,
    users: UserCollector,
    /// The table of ids, its fences, and the table of users, once written.
    tables: Option<(SectionEntry, Vec<u8>, UserSections)>,
}

impl SegmentWriter {
    /// Begins segment `number`, in place of an unfinished one.
    pub(crate) fn create(
        disk: Arc<dyn Disk>,
        number: u64,
        codec: Codec,
        hasher: IdHasher,
    ) -> io::Result<Self> {
        Ok(Self {
            file: FileWriter::create(disk, &SEGMENT, number, codec)?,
            hasher,
            block: BlockBuilder::default(),
            block_first: (0, 0),
            raw: Vec::new(),
            messages: 0,
            rooms: RoomIndex::default(),
            blocks: Vec::new(),
            ids: Vec::new(),
            users: UserCollector::default(),
            tables: None,
        })
    }

    /// Adds a message. Rooms come in the order of their names' bytes, within a room seq increases and
    /// `received_at` does not decrease; anything else is `InvalidInput`. Keeps 28 bytes of memory per message.
    pub(crate) fn push(&mut self, message: &Message<'_>) -> io::Result<()> {
        let ordinal = self.push_without_indexes(message)?;
        self.ids.push((self.hasher.hash(message.sent.room, message.sent.id), ordinal));
        self.users.push(message)?;
        Ok(())
    }

    /// The same for a caller that writes the tables of ids and users; answers the message's ordinal.
    pub(super) fn push_without_indexes(&mut self, message: &Message<'_>) -> io::Result<u32> {
        let ordinal = self.messages;
        if ordinal == u32::MAX {
            return Err(invalid("a segment holds 2^32 - 1 messages at most"));
        }
        self.count(message, ordinal)?;
        let sent = &message.sent;
        let name_bytes = sent.username.map_or(0, str::len);
        if self.block.is_full_for(sent.user.len() + name_bytes + sent.id.len() + sent.text.len()) {
            self.close_block()?;
        }
        if self.block.messages == 0 {
            self.block_first = (message.seq, message.received_at.as_micros());
        }
        self.block.push(message)?;
        self.messages += 1;
        Ok(ordinal)
    }

    /// Ends the messages and lets the table of ids be filled, then that of users.
    pub(super) fn write_tables<E: From<io::Error>>(
        &mut self,
        fill_ids: impl FnOnce(&mut IdTableWriter, &mut Output) -> Result<(), E>,
        fill_users: impl FnOnce(&mut UserTableWriter, &mut Output) -> Result<(), E>,
    ) -> Result<(), E> {
        self.close_block()?;
        let output = &mut self.file.output;
        let mut ids = IdTableWriter::begin(output);
        fill_ids(&mut ids, output)?;
        let (ids, fences) = ids.finish(output)?;
        let mut users = UserTableWriter::begin(output, self.rooms.base_time());
        fill_users(&mut users, output)?;
        self.tables = Some((ids, fences, users.finish(output)?));
        Ok(())
    }

    /// Adds the message to the room index and refuses what is out of order.
    fn count(&mut self, message: &Message<'_>, ordinal: u32) -> io::Result<()> {
        let (room, received) = (message.sent.room, message.received_at.as_micros());
        let order = self.rooms.last_name().map_or(Ordering::Less, |last| last.cmp(room));
        if let (Ordering::Equal, Some(entry)) = (order, self.rooms.last_mut()) {
            if message.seq <= entry.last_seq || received < entry.last_received {
                return Err(invalid("the messages of a room must come in the order of their seq and time"));
            }
            entry.count += 1;
            (entry.last_seq, entry.last_received) = (message.seq, received);
            return Ok(());
        }
        if order.is_gt() {
            return Err(invalid("rooms must come in the order of their names"));
        }
        self.rooms
            .push(room, ordinal, message.seq, received)
            .ok_or_else(|| invalid("the names of a segment's rooms are too long"))
    }

    fn close_block(&mut self) -> io::Result<()> {
        let messages = self.block.messages;
        if messages == 0 {
            return Ok(());
        }
        self.block.finish_into(&mut self.raw)?;
        let location = self.file.append_block(&self.raw)?;
        let (first_seq, first_received) = self.block_first;
        let first_ordinal = self.messages.saturating_sub(messages);
        self.blocks.push(BlockEntry {
            offset: location.offset,
            first_seq,
            first_received,
            first_ordinal,
            stored_bytes: location.stored_bytes,
        });
        Ok(())
    }

    fn write_section(&mut self, kind: u32, bytes: &[u8], items: u64) -> io::Result<SectionEntry> {
        Ok(SectionEntry { kind, place: self.file.append_section(bytes)?, items })
    }
}

impl SortedFileWriter for SegmentWriter {
    fn items(&self) -> u64 {
        self.messages.into()
    }

    fn finish(mut self) -> io::Result<()> {
        if self.tables.is_none() {
            let (mut ids, users) = (std::mem::take(&mut self.ids), std::mem::take(&mut self.users));
            ids.sort_unstable();
            self.write_tables(
                |table, output| {
                    ids.iter().try_for_each(|(hash, ordinal)| table.push(*hash, *ordinal, output))
                },
                |table, output| users.write(table, output),
            )?;
        }
        let (ids, fences, users) = self.tables.take().ok_or_else(|| invalid("a segment needs its tables"))?;
        let (rooms, blocks) = (self.rooms.write(), write_blocks(&self.blocks, self.messages));
        let indexes = [
            self.write_section(section::FENCES, &fences, fences.len() as u64 / 8)?,
            self.write_section(section::ROOMS, &rooms, self.rooms.len() as u64)?,
            self.write_section(section::BLOCKS, &blocks, self.blocks.len() as u64)?,
            self.write_section(section::USER_FENCES, &users.fences, users.fence_count)?,
        ];
        let body = Section { offset: 0, bytes: self.file.output.position(), crc: self.file.output.crc() };
        let body = SectionEntry { kind: section::BODY, place: body, items: 0 };
        let sections = [&[ids, users.postings, users.users], indexes.as_slice(), &[body]].concat();
        let table = self.file.append_section(&format::table(&sections))?;
        let footer = Footer {
            table_offset: table.offset,
            sections: cast(sections.len(), "a segment has a few sections").map_err(io::Error::other)?,
            table_crc: table.crc,
            number: self.file.number,
        };
        self.file.finish_with_footer(footer.fields()).map(drop)
    }

    fn file(&self) -> &FileWriter {
        &self.file
    }
}
