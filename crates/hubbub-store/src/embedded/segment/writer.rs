//! Writing a segment: blocks stream out as they fill, the indexes follow at the end.

use std::io;
use std::sync::Arc;

use crc32c::crc32c;

use hubbub_core::Message;

use super::block::BlockBuilder;
use super::bytes::Cursor;
use super::codec::{Codec, Compressor};
use super::format::{self, Footer, Section, VERSION, section};
use super::id_hash::IdHasher;
use super::ids::{PAGE_ENTRIES, write_page};
use super::index::{BlockEntry, RoomIndex, write_blocks};
use super::{SEGMENTS_DIR, segment_path, unfinished_path};
use crate::embedded::disk::{Disk, DiskFile};

/// Bytes collected before they are handed to the operating system.
const WRITE_BYTES: usize = 256 * 1024;

/// Bytes after which they are synced, so that no long sync stands in the journal's way.
const SYNC_BYTES: u64 = 4 * 1024 * 1024;

/// No block is larger before compression: a text of 16 MiB with everything that belongs to it fits easily.
pub(super) const BLOCK_RAW_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A block as it stands in the file, its checksum verified.
pub(super) struct Stored<'a> {
    pub(super) codec: u8,
    pub(super) raw_bytes: u32,
    pub(super) payload: &'a [u8],
}

impl<'a> Stored<'a> {
    /// Bytes of checksum, codec and length before the payload.
    const HEADER_BYTES: usize = 9;

    fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        out.push(self.codec);
        out.extend_from_slice(&self.raw_bytes.to_le_bytes());
        out.extend_from_slice(self.payload);
        let crc = out.get(start + 4..).map_or(0, crc32c);
        if let Some(place) = out.get_mut(start..start + 4) {
            place.copy_from_slice(&crc.to_le_bytes());
        }
    }

    pub(super) fn check(bytes: &'a [u8]) -> Option<Self> {
        let mut cursor = Cursor::new(bytes);
        if cursor.u32()? != crc32c(cursor.rest()) {
            return None;
        }
        Some(Self { codec: cursor.byte()?, raw_bytes: cursor.u32()?, payload: cursor.rest() })
    }
}

/// Writes one segment. Keeps 16 bytes of memory per message until it is finished.
///
/// Until [`Self::finish`] returned, the segment is not there; after a crash in between, write it again under the
/// same number.
pub struct SegmentWriter {
    disk: Arc<dyn Disk>,
    file: Arc<dyn DiskFile>,
    number: u64,
    hasher: IdHasher,
    compressor: Compressor,
    block: BlockBuilder,
    raw: Vec<u8>,
    rooms: RoomIndex,
    blocks: Vec<BlockEntry>,
    ids: Vec<(u64, u32)>,
    /// Seq and time of the first message of the block being filled.
    block_first: (u64, i64),
    pending: Vec<u8>,
    written: u64,
    unsynced: u64,
}

impl SegmentWriter {
    /// Begins segment `number`, in place of an unfinished one.
    pub fn create(disk: Arc<dyn Disk>, number: u64, codec: Codec, hasher: IdHasher) -> io::Result<Self> {
        let file = disk.create(&unfinished_path(number))?;
        Ok(Self {
            disk,
            file,
            number,
            hasher,
            compressor: Compressor::new(codec)?,
            block: BlockBuilder::default(),
            raw: Vec::new(),
            rooms: RoomIndex::default(),
            blocks: Vec::new(),
            ids: Vec::new(),
            block_first: (0, 0),
            pending: format::header(VERSION),
            written: 0,
            unsynced: 0,
        })
    }

    /// Messages so far.
    pub fn messages(&self) -> u64 {
        self.ids.len() as u64
    }

    /// Adds a message. Rooms come in the order of their names' bytes, within a room seq increases and
    /// `received_at` does not decrease; anything else is `InvalidInput`.
    pub fn push(&mut self, message: &Message<'_>) -> io::Result<()> {
        let ordinal =
            u32::try_from(self.ids.len()).map_err(|_| invalid("a segment holds 2^32 messages at most"))?;
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
        self.ids.push((self.hasher.hash(sent.room, sent.id), ordinal));
        Ok(())
    }

    /// Writes the indexes, syncs everything and gives the segment its name. Durable when it returns.
    pub fn finish(mut self) -> io::Result<()> {
        self.close_block()?;
        let messages = u32::try_from(self.ids.len()).unwrap_or(u32::MAX);
        let blocks = write_blocks(&self.blocks, messages);
        let rooms = self.rooms.write();
        let sections = [
            self.write_section(section::ROOMS, &rooms, self.rooms.len())?,
            self.write_section(section::BLOCKS, &blocks, self.blocks.len())?,
            self.write_ids()?,
            self.write_fences()?,
        ];
        let table = format::table(&sections);
        let footer = Footer {
            table_offset: self.position(),
            sections: u32::try_from(sections.len()).unwrap_or(u32::MAX),
            table_crc: crc32c(&table),
            number: self.number,
        };
        self.write(&table)?;
        self.write(&footer.write())?;
        self.flush()?;
        self.file.sync_data()?;
        self.disk.rename(&unfinished_path(self.number), &segment_path(self.number))?;
        self.disk.sync_dir(SEGMENTS_DIR)
    }

    /// Gives up and removes what was written.
    pub fn discard(self) -> io::Result<()> {
        self.disk.remove(&unfinished_path(self.number))
    }

    /// Enters the message into the room index and refuses what is out of order.
    fn count(&mut self, message: &Message<'_>, ordinal: u32) -> io::Result<()> {
        let (room, received) = (message.sent.room, message.received_at.as_micros());
        let order = self.rooms.last_name().map_or(std::cmp::Ordering::Less, |last| last.cmp(room));
        if let (std::cmp::Ordering::Equal, Some(entry)) = (order, self.rooms.last_mut()) {
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
        let stored_bytes = u32::try_from(payload.len() + Stored::HEADER_BYTES).unwrap_or(u32::MAX);
        let offset = self.written + self.pending.len() as u64;
        Stored { codec, raw_bytes, payload }.write(&mut self.pending);

        let (first_seq, first_received) = self.block_first;
        let first_ordinal = u32::try_from(self.ids.len()).unwrap_or(u32::MAX) - messages;
        self.blocks.push(BlockEntry { offset, first_seq, first_received, first_ordinal, stored_bytes });
        self.flush_when_full()
    }

    fn write_section(&mut self, kind: u32, bytes: &[u8], items: usize) -> io::Result<Section> {
        let offset = self.position();
        self.write(bytes)?;
        Ok(Section { kind, crc: crc32c(bytes), offset, bytes: bytes.len() as u64, items: items as u64 })
    }

    fn write_ids(&mut self) -> io::Result<Section> {
        let offset = self.position();
        let mut ids = std::mem::take(&mut self.ids);
        ids.sort_unstable();
        for page in ids.chunks(PAGE_ENTRIES) {
            write_page(page, &mut self.pending);
            self.flush_when_full()?;
        }
        self.ids = ids;
        let bytes = self.position() - offset;
        Ok(Section { kind: section::IDS, crc: 0, offset, bytes, items: self.ids.len() as u64 })
    }

    fn write_fences(&mut self) -> io::Result<Section> {
        let firsts = self.ids.chunks(PAGE_ENTRIES).filter_map(|page| page.first());
        let fences: Vec<u8> = firsts.flat_map(|(hash, _)| hash.to_le_bytes()).collect();
        self.write_section(section::FENCES, &fences, fences.len() / 8)
    }

    fn position(&self) -> u64 {
        self.written + self.pending.len() as u64
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.pending.extend_from_slice(bytes);
        self.flush_when_full()
    }

    fn flush_when_full(&mut self) -> io::Result<()> {
        if self.pending.len() >= WRITE_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_all_at(&self.pending, self.written)?;
        let bytes = self.pending.len() as u64;
        self.written += bytes;
        self.unsynced += bytes;
        self.pending.clear();
        if self.unsynced >= SYNC_BYTES {
            self.file.sync_data()?;
            self.unsynced = 0;
        }
        Ok(())
    }
}

fn invalid(rule: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, rule)
}
