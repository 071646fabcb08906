//! Writing a segment: blocks stream out as they fill, the indexes follow at the end.

use std::cmp::Ordering;
use std::io;
use std::sync::Arc;

use crc32c::crc32c;

use hubbub_core::Message;

use super::block::BlockBuilder;
use super::format::{self, Footer, Section, VERSION, section};
use super::id_hash::IdHasher;
use super::id_table::IdTableWriter;
use super::index::{BlockEntry, RoomIndex, write_blocks};
use super::user_table::{UserCollector, UserSections, UserTableWriter};
use super::{SEGMENTS_DIR, segment_path, unfinished_path};
use crate::embedded::disk::Disk;
use crate::embedded::file::block::{BLOCK_RAW_BYTES_MAX, Stored};
use crate::embedded::file::codec::{Codec, Compressor};
use crate::embedded::file::output::Output;

/// Writes one segment.
///
/// Until [`Self::finish`] returned, the segment is not there; after a crash in between, write it again under the
/// same number.
pub struct SegmentWriter {
    disk: Arc<dyn Disk>,
    number: u64,
    hasher: IdHasher,
    compressor: Compressor,
    output: Output,
    block: BlockBuilder,
    /// Seq and time of the first message of the block being filled.
    block_first: (u64, i64),
    raw: Vec<u8>,
    messages: u32,
    rooms: RoomIndex,
    blocks: Vec<BlockEntry>,
    /// Hash and ordinal of what was pushed; empty when the ids are written otherwise.
    ids: Vec<(u64, u32)>,
    /// The table of ids and its fences, once written.
    id_table: Option<(Section, Vec<u8>)>,
    /// The users of what was pushed; empty when they are written otherwise.
    users: UserCollector,
    /// The table of users, once written.
    user_table: Option<UserSections>,
}

impl SegmentWriter {
    /// Begins segment `number`, in place of an unfinished one.
    pub fn create(disk: Arc<dyn Disk>, number: u64, codec: Codec, hasher: IdHasher) -> io::Result<Self> {
        let mut output = Output::new(disk.create(&unfinished_path(number))?);
        output.append(|out| out.extend_from_slice(&format::header(VERSION)))?;
        Ok(Self {
            disk,
            number,
            hasher,
            compressor: Compressor::new(codec)?,
            output,
            block: BlockBuilder::default(),
            block_first: (0, 0),
            raw: Vec::new(),
            messages: 0,
            rooms: RoomIndex::default(),
            blocks: Vec::new(),
            ids: Vec::new(),
            id_table: None,
            users: UserCollector::default(),
            user_table: None,
        })
    }

    /// Messages so far.
    pub fn messages(&self) -> u64 {
        self.messages.into()
    }

    /// Adds a message. Rooms come in the order of their names' bytes, within a room seq increases and
    /// `received_at` does not decrease; anything else is `InvalidInput`. Keeps 28 bytes of memory per message.
    pub fn push(&mut self, message: &Message<'_>) -> io::Result<()> {
        let ordinal = self.push_without_indexes(message)?;
        self.ids.push((self.hasher.hash(message.sent.room, message.sent.id), ordinal));
        self.users.push(message);
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
        if self.block.messages() == 0 {
            self.block_first = (message.seq, message.received_at.as_micros());
        }
        self.block.push(message);
        self.messages += 1;
        Ok(ordinal)
    }

    /// Ends the messages and lets `fill` write the table of ids.
    pub(super) fn write_ids<E: From<io::Error>>(
        &mut self,
        fill: impl FnOnce(&mut IdTableWriter, &mut Output) -> Result<(), E>,
    ) -> Result<(), E> {
        self.close_block()?;
        let mut table = IdTableWriter::begin(&self.output);
        fill(&mut table, &mut self.output)?;
        self.id_table = Some(table.finish(&mut self.output)?);
        Ok(())
    }

    /// Lets `fill` write the table of users, behind that of ids.
    pub(super) fn write_users<E: From<io::Error>>(
        &mut self,
        fill: impl FnOnce(&mut UserTableWriter, &mut Output) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut table = UserTableWriter::begin(&self.output, self.rooms.base_time());
        fill(&mut table, &mut self.output)?;
        self.user_table = Some(table.finish(&mut self.output)?);
        Ok(())
    }

    /// Writes the indexes, syncs everything and gives the segment its name. Durable when it returns.
    pub fn finish(mut self) -> io::Result<()> {
        if self.id_table.is_none() {
            self.write_collected_ids()?;
            let users = std::mem::take(&mut self.users);
            self.write_users(|table, output| users.write(table, output))?;
        }
        let (ids, fences) =
            self.id_table.take().ok_or_else(|| invalid("a segment needs its table of ids"))?;
        let users = self.user_table.take().ok_or_else(|| invalid("a segment needs its table of users"))?;
        let user_fences = usize::try_from(users.fence_count).unwrap_or(usize::MAX);
        let (rooms, blocks) = (self.rooms.write(), write_blocks(&self.blocks, self.messages));
        let sections = [
            ids,
            users.postings,
            users.users,
            self.write_section(section::FENCES, &fences, fences.len() / 8)?,
            self.write_section(section::ROOMS, &rooms, self.rooms.len())?,
            self.write_section(section::BLOCKS, &blocks, self.blocks.len())?,
            self.write_section(section::USER_FENCES, &users.fences, user_fences)?,
            Section {
                kind: section::BODY,
                crc: self.output.crc(),
                offset: 0,
                bytes: self.output.position(),
                items: 0,
            },
        ];
        let table = format::table(&sections);
        let footer = Footer {
            table_offset: self.output.position(),
            sections: u32::try_from(sections.len()).unwrap_or(u32::MAX),
            table_crc: crc32c(&table),
            number: self.number,
        };
        self.output.append(|out| out.extend_from_slice(&table))?;
        self.output.append(|out| out.extend_from_slice(&footer.write()))?;
        self.output.sync()?;
        self.disk.rename(&unfinished_path(self.number), &segment_path(self.number))?;
        self.disk.sync_dir(SEGMENTS_DIR)
    }

    /// Gives up and removes what was written.
    pub fn discard(self) -> io::Result<()> {
        self.disk.remove(&unfinished_path(self.number))
    }

    fn write_collected_ids(&mut self) -> io::Result<()> {
        let mut ids = std::mem::take(&mut self.ids);
        ids.sort_unstable();
        self.write_ids(|table, output| {
            ids.iter().try_for_each(|(hash, ordinal)| table.push(*hash, *ordinal, output))
        })
    }

    /// Enters the message into the room index and refuses what is out of order.
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
        let messages = self.block.messages();
        if messages == 0 {
            return Ok(());
        }
        self.block.finish_into(&mut self.raw);
        if self.raw.len() > BLOCK_RAW_BYTES_MAX {
            return Err(invalid("a message must fit a block of 64 MiB"));
        }
        let (codec, payload) = self.compressor.compress(&self.raw)?;
        let raw_bytes = u32::try_from(self.raw.len()).unwrap_or(u32::MAX);
        let (first_seq, first_received) = self.block_first;
        self.blocks.push(BlockEntry {
            offset: self.output.position(),
            first_seq,
            first_received,
            first_ordinal: self.messages.saturating_sub(messages),
            stored_bytes: u32::try_from(payload.len() + Stored::HEADER_BYTES).unwrap_or(u32::MAX),
        });
        self.output.append(|out| Stored { codec, raw_bytes, payload }.write(out))
    }

    fn write_section(&mut self, kind: u32, bytes: &[u8], items: usize) -> io::Result<Section> {
        let offset = self.output.position();
        self.output.append(|out| out.extend_from_slice(bytes))?;
        Ok(Section { kind, crc: crc32c(bytes), offset, bytes: bytes.len() as u64, items: items as u64 })
    }
}

fn invalid(rule: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, rule)
}
