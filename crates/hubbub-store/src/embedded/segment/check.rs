//! Verifies a segment by reading every byte of it.

use std::hash::Hasher;

use crc32c::crc32c_append;

use super::block::MessageBlock;
use super::id_hash::IdHasher;
use super::ids::{entries, entry};
use super::index::RoomEntry;
use super::open::Segment;
use super::paged::PAYLOAD_LENGTH;
use super::postings::Posting;
use crate::embedded::file::FileError;
use crate::embedded::tail::hash::Mix;

const STEP_BYTES: u64 = 1 << 20;

const OUT_OF_ORDER: &str = "a message is out of order, or not where the index says";

struct SegmentCheck<'a> {
    segment: &'a Segment,
    hasher: &'a IdHasher,
    fault: &'a mut dyn FnMut(FileError),
    faults: u64,
    /// Place of the room that the next message belongs to.
    room: usize,
    /// The message before, unless it could not be read.
    before: Option<(u64, i64)>,
    /// Sum over all (hash, ordinal) that there should be. Equal sums mean equal tables, whatever the order.
    expected_ids: u64,
    /// The same over all (user, ordinal, time, type).
    expected_users: u64,
}

impl Segment {
    /// Reads everything: each block, the order of messages, whether they are where the indexes say, the tables of ids
    /// and users against the messages, and the checksum of the whole. Reports to `fault` whatever is wrong, and goes on behind it.
    /// The hasher is the one the segment was written with.
    pub(crate) fn check(&self, hasher: &IdHasher, fault: &mut dyn FnMut(FileError)) {
        let mut check = SegmentCheck {
            segment: self,
            hasher,
            fault,
            faults: 0,
            room: 0,
            before: None,
            expected_ids: 0,
            expected_users: 0,
        };
        check.blocks();
        let found_ids = check.ids();
        let found_users = check.users();
        if check.faults > 0 {
            return;
        }
        if found_ids != check.expected_ids {
            check.damaged(self.inner.ids.offset, "the table of ids does not belong to the messages");
        }
        if found_users != Some(check.expected_users) {
            check.damaged(self.inner.postings.offset, "the table of users does not belong to the messages");
        }
        if check.faults == 0 {
            check.body();
        }
    }
}

impl SegmentCheck<'_> {
    fn report(&mut self, error: FileError) {
        self.faults += 1;
        (self.fault)(error);
    }

    fn damaged(&mut self, offset: u64, what: &'static str) {
        self.report(self.segment.inner.file.damaged(offset, what));
    }

    fn blocks(&mut self) {
        for place in 0..self.segment.inner.blocks.len() {
            let error = match self.segment.load_block(place) {
                Ok(block) if self.block(place, &block).is_some() => continue,
                Ok(_) => {
                    let offset = self.segment.inner.blocks.get(place).map_or(0, |block| block.offset);
                    self.segment.inner.file.damaged(offset, OUT_OF_ORDER)
                }
                Err(error) => error,
            };
            self.report(error);
            self.before = None;
        }
    }

    /// `None` when a message is not what the indexes say.
    fn block(&mut self, place: usize, block: &MessageBlock) -> Option<()> {
        let (index, rooms) = (*self.segment.inner.blocks.get(place)?, &self.segment.inner.rooms);
        for (at, ordinal) in self.segment.ordinals(place).enumerate() {
            while rooms.get(self.room).is_some_and(|(_, room)| ordinal >= room.end()) {
                self.room += 1;
                self.before = None;
            }
            let (name, room) = rooms.get(self.room)?;
            let message = block.message(at, name)?;
            let this = (message.seq, message.received_at.as_micros());
            let is_first = at > 0 || this == (index.first_seq, index.first_received);
            (is_first && fits_room(ordinal, this, self.before, room)).then_some(())?;
            self.before = Some(this);
            let hash = self.hasher.hash(name, message.sent.id);
            self.expected_ids = self.expected_ids.wrapping_add(mix(hash, ordinal));
            let posting = Posting { ordinal, received: this.1, kind: message.sent.kind };
            let sum = mix_posting(self.hasher.hash(message.sent.user, ""), &posting);
            self.expected_users = self.expected_users.wrapping_add(sum);
        }
        Some(())
    }

    /// The sum over what the table of ids holds.
    fn ids(&mut self) -> u64 {
        let (mut sum, mut last) = (0_u64, (0, 0));
        for (page, fence) in self.segment.inner.fences.iter().enumerate() {
            let mut reader = self.segment.id_page(page);
            let (mut begin, mut in_order) = (None, true);
            match reader.peek(PAYLOAD_LENGTH) {
                Ok(page) => {
                    for (hash, ordinal) in entries(page).iter().map(entry) {
                        begin = begin.or(Some(hash));
                        in_order &= (hash, ordinal) >= last;
                        last = (hash, ordinal);
                        sum = sum.wrapping_add(mix(hash, ordinal));
                    }
                }
                Err(error) => {
                    self.report(error);
                    continue;
                }
            }
            if !in_order || begin != Some(*fence) {
                let error = self.segment.id_page(page).damaged("the table of ids is out of order");
                self.report(error);
            }
        }
        sum
    }

    /// The sum over what the table of users holds; `None` when it cannot be read.
    fn users(&mut self) -> Option<u64> {
        let (mut scan, mut sum) = (self.segment.users(), 0_u64);
        let result = loop {
            let (hash, part) = match scan.next() {
                Ok(Some((name, part))) => (self.hasher.hash(name, ""), part),
                Ok(None) => break Ok(sum),
                Err(error) => break Err(error),
            };
            let each = |posting| sum = sum.wrapping_add(mix_posting(hash, &posting));
            if let Err(error) = scan.postings(&part, each) {
                break Err(error);
            }
        };
        result.map_err(|error| self.report(error)).ok()
    }

    /// Parts that this version does not know have no other checksum than that of the whole.
    fn body(&mut self) {
        let body = self.segment.inner.body;
        let (mut at, mut crc) = (0, 0);
        while at < body.bytes {
            let step = (body.bytes - at).min(STEP_BYTES);
            match self.segment.inner.file.read(at, step) {
                Ok(bytes) => crc = crc32c_append(crc, &bytes),
                Err(error) => return self.report(error),
            }
            at += step;
        }
        if crc != body.crc {
            self.damaged(
                self.segment.inner.postings.offset,
                "the checksum of the whole does not match, though those of its parts do",
            );
        }
    }
}

/// Whether a message follows the one before and stands in its room as the room's index says.
fn fits_room(ordinal: u32, this: (u64, i64), before: Option<(u64, i64)>, room: &RoomEntry) -> bool {
    let first = ordinal > room.first_ordinal || this == (room.first_seq, room.first_received);
    let last = ordinal + 1 < room.end() || this == (room.last_seq, room.last_received);
    let order = before.is_none_or(|before| this.0 > before.0 && this.1 >= before.1);
    first && last && order
}

fn mix(hash: u64, ordinal: u32) -> u64 {
    let mut mix = Mix::default();
    mix.write_u64(hash);
    mix.write_u32(ordinal);
    mix.finish()
}

fn mix_posting(hash: u64, posting: &Posting) -> u64 {
    let mut mix = Mix::default();
    mix.write_u64(hash);
    mix.write_u32(posting.ordinal);
    mix.write_u64(posting.received.cast_unsigned());
    mix.write_u64(posting.kind as u64);
    mix.finish()
}
