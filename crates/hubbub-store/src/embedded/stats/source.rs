//! Where counts come from: the postings of segments, the blocks of tails, and, to check both, every message.

use std::ops::Range;
use std::sync::Arc;

use hubbub_core::Message;
use hubbub_core::invariant::saturate;
use roaring::RoaringBitmap;

use super::summary::{Summary, UserHour};
use crate::embedded::error::MaintainError;
use crate::embedded::file::Patience;
use crate::embedded::journal::block::{self, HEADER_BYTES};
use crate::embedded::record::{Record, Records};
use crate::embedded::rooms::{Hidden, Room, RoomNumber};
use crate::embedded::segment::{Posting, RoomEntry, Segment, UserPart};
use crate::embedded::shared::Shared;
use crate::embedded::tail::Tail;

/// Bytes of a slot read at once; a larger block is read whole.
const READ_BYTES: u64 = 1 << 20;

pub(super) struct SegmentRoom {
    pub(super) number: RoomNumber,
    pub(super) name: Arc<str>,
    part: RoomEntry,
    visible: Visible,
}

/// Which messages of a room's part of a segment may be seen, as of when it was looked up.
enum Visible {
    All,
    None,
    /// All but some that still stand in the segment, told by their seq.
    AllBut(Hidden),
    /// The same, told by their ordinals.
    AllButThese(RoaringBitmap),
}

impl Visible {
    fn of(room: &Room, part: &RoomEntry) -> Self {
        let hidden = room.hidden();
        match hidden.visible(part.first_seq, part.last_seq) {
            _ if !room.hides_any() => Self::All,
            0 => Self::None,
            // No number is missing but those of hidden messages, so then none of those stands here.
            visible if visible == u64::from(part.count) => Self::All,
            _ => Self::AllBut(hidden),
        }
    }
}

impl SegmentRoom {
    /// `None` for a room without a number: it is gone with all its messages.
    fn of(shared: &Shared, (name, part): (&str, &RoomEntry)) -> Option<Self> {
        let rooms = shared.rooms.read();
        let number = rooms.number(name)?;
        let room = rooms.get(number)?;
        Some(Self { number, name: Arc::clone(&room.name), part: *part, visible: Visible::of(room, part) })
    }

    /// The seq of a message, as far as it follows from its place: when no seq between the room's first and last is
    /// missing.
    pub(super) fn seq(&self, ordinal: u32) -> Option<u64> {
        let is_dense = self.part.last_seq - self.part.first_seq + 1 == u64::from(self.part.count);
        let place = ordinal.saturating_sub(self.part.ordinals().start);
        is_dense.then(|| self.part.first_seq + u64::from(place))
    }

    #[inline]
    pub(super) fn hides(&self, segment: &Segment, ordinal: u32) -> Result<bool, MaintainError> {
        match &self.visible {
            Visible::All => Ok(false),
            Visible::None => Ok(true),
            Visible::AllButThese(ordinals) => Ok(ordinals.contains(ordinal)),
            Visible::AllBut(hidden) => Ok(hidden.hides(match self.seq(ordinal) {
                Some(seq) => seq,
                None => segment.with_message(ordinal, |message| message.seq)?,
            })),
        }
    }

    /// Reads where the hidden messages stand, one after another, if it does not follow from their seqs: so a block is
    /// not read again for each user who has a message in it.
    fn list_hidden(&mut self, segment: &Segment) -> Result<(), MaintainError> {
        let mut these = RoaringBitmap::new();
        if matches!(self.visible, Visible::AllBut(_)) && self.seq(self.part.ordinals().start).is_none() {
            for ordinal in self.part.ordinals() {
                if self.hides(segment, ordinal)? {
                    these.insert(ordinal);
                }
            }
            self.visible = Visible::AllButThese(these);
        }
        Ok(())
    }
}

/// The rooms of a segment, each looked up when it is met. For few messages, in the order of ordinals.
pub(super) struct RoomFinder<'a> {
    shared: &'a Shared,
    segment: &'a Segment,
    ordinals: Range<u32>,
    room: Option<SegmentRoom>,
}

impl<'a> RoomFinder<'a> {
    pub(super) fn new(shared: &'a Shared, segment: &'a Segment) -> Self {
        Self { shared, segment, ordinals: 0..0, room: None }
    }

    /// The room of an ordinal; `None` when it is gone.
    pub(super) fn find(&mut self, ordinal: u32) -> Option<&SegmentRoom> {
        if !self.ordinals.contains(&ordinal) {
            let found = self.segment.room_of(ordinal)?;
            self.ordinals = found.1.ordinals();
            self.room = SegmentRoom::of(self.shared, found);
        }
        self.room.as_ref()
    }

    /// The room of a message that may be seen, `None` of another.
    pub(super) fn find_visible(&mut self, ordinal: u32) -> Result<Option<&SegmentRoom>, MaintainError> {
        let segment = self.segment;
        match self.find(ordinal) {
            Some(room) if !room.hides(segment, ordinal)? => Ok(Some(room)),
            _ => Ok(None),
        }
    }
}

/// Shows `visit` each message of a user in a segment that may be seen, until it answers `false`.
pub(super) fn each_visible(
    shared: &Shared,
    segment: &Segment,
    user: &UserPart,
    mut visit: impl FnMut(&SegmentRoom, &Posting) -> Result<bool, MaintainError>,
) -> Result<(), MaintainError> {
    let (mut rooms, mut postings) = (RoomFinder::new(shared, segment), segment.postings(user));
    while let Some(posting) = postings.next()? {
        if let Some(room) = rooms.find_visible(posting.ordinal)?
            && !visit(room, &posting)?
        {
            break;
        }
    }
    Ok(())
}

/// All rooms of a segment, looked up at once. For all messages.
fn all_rooms(shared: &Shared, segment: &Segment) -> Result<Vec<SegmentRoom>, MaintainError> {
    let mut rooms: Vec<_> = segment.rooms().filter_map(|room| SegmentRoom::of(shared, room)).collect();
    rooms.iter_mut().try_for_each(|room| room.list_hidden(segment))?;
    Ok(rooms)
}

pub(super) fn hidden_changes(shared: &Shared) -> u64 {
    shared.rooms.read().hidings
}

pub(super) fn is_hidden(shared: &Shared, room: RoomNumber, seq: u64) -> bool {
    shared.rooms.read().is_hidden(room, seq)
}

/// Counts everything a segment holds, from its postings. With an error some of it is counted.
pub(super) fn add_segment(
    shared: &Shared,
    segment: &Segment,
    summary: &mut Summary,
) -> Result<(), MaintainError> {
    let rooms = all_rooms(shared, segment)?;
    let find = |ordinal: u32| {
        let behind = rooms.partition_point(|room| room.part.ordinals().start <= ordinal);
        rooms.get(behind.checked_sub(1)?).filter(|room| room.part.ordinals().contains(&ordinal))
    };
    let mut scan = segment.users();
    while let Some((name, part)) = scan.next()? {
        let user = summary.intern(name);
        let mut run: Option<(UserHour, &SegmentRoom)> = None;
        let mut result = Ok(());
        scan.postings(&part, |posting| {
            let same = run.as_ref().map(|(_, room)| *room);
            let same = same.filter(|room| room.part.ordinals().contains(&posting.ordinal));
            let Some(room) = same.or_else(|| find(posting.ordinal)) else { return };
            match room.hides(segment, posting.ordinal) {
                Ok(false) => {}
                Ok(true) => return,
                Err(error) => result = Err(error),
            }
            if let Some((run, _)) = &mut run
                && run.extend(room.number, posting.received, posting.kind)
            {
                return;
            }
            let next = UserHour::of(user, room.number, posting.received, posting.kind);
            if let Some((run, room)) = run.replace((next, room)) {
                summary.add(&run, &room.name);
            }
        })?;
        result?;
        if let Some((run, room)) = run {
            summary.add(&run, &room.name);
        }
    }
    Ok(())
}

/// Shows `visit` the messages of a slot that are durable, block by block, with their offsets, from the block that begins
/// at `position` up to `end`. Answers where the next block begins.
pub(super) fn each_message(
    shared: &Shared,
    tail: &Tail,
    mut position: u64,
    end: u64,
    mut visit: impl FnMut(u32, &Message<'_>),
) -> Result<u64, MaintainError> {
    let damaged = |offset: u64| tail.slot.damaged(offset);
    let mut buffer = Vec::new();
    let mut wanted = 0;
    while position < end {
        let step = (end - position).min(READ_BYTES).max(wanted);
        let bytes = step.min(tail.slot.bytes.saturating_sub(position));
        buffer.resize(saturate(bytes), 0);
        tail.slot.read(&mut buffer, position, Patience::Wait)?;
        let begin = position;
        while position < end
            && let Some(rest) = buffer.get(saturate(position - begin)..)
            && let Some((header, records)) = block::read(rest, shared.stats.block_seed)
        {
            if header.journal != tail.journal {
                return Err(damaged(position));
            }
            for record in Records::new(position, &header, records) {
                if let (offset, _, Record::Message(message)) = record.map_err(damaged)? {
                    visit(offset, &message);
                }
            }
            position += (HEADER_BYTES + records.len()) as u64;
        }
        wanted = 0;
        if position == begin {
            // No whole block was read: it is larger, or damaged.
            wanted = block::peek(&buffer).map_or(0, |(_, length)| (HEADER_BYTES + length) as u64);
            if wanted <= bytes || wanted > tail.slot.bytes {
                return Err(damaged(position));
            }
        }
    }
    Ok(position)
}
