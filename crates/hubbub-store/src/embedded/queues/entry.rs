//! What is kept in memory of each message, in pages that a checkpoint shares with the state that goes on.

use std::sync::Arc;

use hubbub_core::invariant::{cast_or_nearest, saturate};

use crate::embedded::file::cursor::index;

/// Entries of a page: what is copied when a message changes that a checkpoint still holds.
const PAGE: usize = 64;
const PAGE_NUMBERS: u32 = 64;

/// No time at all: what never comes.
pub(super) const NEVER: i64 = i64::MAX;

/// The payload stands nowhere any more.
pub(super) const NOWHERE: u16 = u16::MAX;

/// It is a copy of a message to everybody.
pub(super) const COPY: u8 = 1;

/// It is a further copy of one that has an id of its sender's; `known_as` says which.
pub(super) const LINKED: u8 = 2;

/// How an entry stands. Checkpoints keep the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum State {
    /// Not in use.
    #[default]
    Free = 0,
    /// May be taken, once it is the first of its group.
    Ready = 1,
    /// May not be taken before `at`.
    Delayed = 2,
    /// On lease until `at`.
    Leased = 3,
    /// Delivered too often; waits to be moved to the dead-letter queue, and does not expire any more.
    Exhausted = 4,
    /// Outlived its time; waits to be cleared away. Until then it is told of as it was, delayed until `at` or ready.
    Expired = 5,
    /// Gone, but its id is remembered.
    Gone = 6,
}

impl State {
    /// By their numbers.
    pub(super) const ALL: [Self; 7] =
        [Self::Free, Self::Ready, Self::Delayed, Self::Leased, Self::Exhausted, Self::Expired, Self::Gone];
}

/// One message. Times are microseconds of [`super::time`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) id: u64,
    /// Hash of the sender's id for it in its queue; zeros when it has none. Of a linked copy: 0 and the id of the first.
    pub(super) known_as: [u64; 2],
    /// Hash of its group; 0 when it has none.
    pub(super) group: u64,
    pub(super) sent_at: i64,
    /// End of delay or lease.
    pub(super) at: i64,
    /// End of its life, [`NEVER`] when it has none.
    pub(super) expires: i64,
    /// Hash of what it says, to tell a repeat from another message.
    pub(super) content: u32,
    /// Where the checked part stands in its source.
    pub(super) offset: u32,
    /// Bytes of group and payload.
    pub(super) bytes: u32,
    pub(super) queue: u32,
    pub(super) sender: u32,
    /// 0 = anybody.
    pub(super) receiver: u32,
    pub(super) deliveries: u32,
    pub(super) source: u16,
    pub(super) state: State,
    /// Bytes of the group's name; above them, [`COPY`] and [`LINKED`].
    pub(super) packed: u8,
}

const GROUP_BITS: u8 = 0x3F;
const FLAG_SHIFT: u32 = 6;

impl Entry {
    pub(super) const FREE: Self = Self {
        id: 0,
        known_as: [0; 2],
        group: 0,
        sent_at: 0,
        at: NEVER,
        expires: NEVER,
        content: 0,
        offset: 0,
        bytes: 0,
        queue: 0,
        sender: 0,
        receiver: 0,
        deliveries: 0,
        source: NOWHERE,
        state: State::Free,
        packed: 0,
    };

    /// Sets how long the group's name is, at most 64 bytes, and the flags.
    pub(super) fn set_packed(&mut self, group_bytes: usize, flags: u8) {
        // An entry with a group has a name of at least one byte, so one less than its length is kept.
        let length: u8 = saturate(group_bytes.saturating_sub(1));
        self.packed = length.min(GROUP_BITS) | (flags << FLAG_SHIFT);
    }

    pub(super) fn flags(&self) -> u8 {
        self.packed >> FLAG_SHIFT
    }

    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags() & flag != 0
    }

    pub(super) fn group_bytes(&self) -> u32 {
        if self.group == 0 { 0 } else { u32::from(self.packed & GROUP_BITS) + 1 }
    }

    pub(super) fn payload_bytes(&self) -> u64 {
        u64::from(self.bytes.saturating_sub(self.group_bytes()))
    }

    /// Whether it waits in a queue in whatever way.
    pub(super) fn is_alive(&self) -> bool {
        !matches!(self.state, State::Free | State::Gone)
    }

    pub(super) fn is_in_group(&self) -> bool {
        self.group != 0 && self.is_alive() && self.state != State::Expired
    }

    /// Whether it may only be taken in order with another one.
    pub(super) fn is_grouped_with(&self, other: &Self) -> bool {
        let place = |entry: &Self| (entry.queue, entry.receiver, entry.group);
        self.group != 0 && place(self) == place(other)
    }

    pub(super) fn is_known(&self) -> bool {
        self.known_as != [0; 2] && !self.has(LINKED)
    }
}

type Page = [Entry; PAGE];

/// Entries by number. Cloning shares all pages.
#[derive(Debug, Clone, Default)]
pub(super) struct Slab {
    pages: Vec<Arc<Page>>,
    free: Vec<u32>,
}

impl Slab {
    /// The entry of a number; a free one when there is none.
    pub(super) fn get(&self, number: u32) -> Entry {
        let (page, place) = split(number);
        self.pages.get(page).and_then(|page| page.get(place)).copied().unwrap_or(Entry::FREE)
    }

    pub(super) fn edit(&mut self, number: u32, change: impl FnOnce(&mut Entry)) {
        let (page, place) = split(number);
        if let Some(entry) = self.pages.get_mut(page).and_then(|page| Arc::make_mut(page).get_mut(place)) {
            change(entry);
        }
    }

    /// Keeps an entry and says its number.
    pub(super) fn add(&mut self, entry: Entry) -> u32 {
        if self.free.is_empty() {
            let first: u32 = cast_or_nearest(self.pages.len() * PAGE, "fewer than 2^32 messages wait");
            self.pages.push(Arc::new([Entry::FREE; PAGE]));
            self.free.extend((first..first.saturating_add(PAGE_NUMBERS)).rev());
        }
        let number = self.free.pop().unwrap_or(u32::MAX);
        self.edit(number, |place| *place = entry);
        number
    }

    pub(super) fn remove(&mut self, number: u32) {
        self.edit(number, |entry| *entry = Entry::FREE);
        self.free.push(number);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Entry)> {
        (0..).zip(self.pages.iter().flat_map(|page| page.iter())).filter(|(_, one)| one.state != State::Free)
    }

    /// The pages alone, to be looked through without a lock.
    pub(super) fn shared(&self) -> Self {
        Self { pages: self.pages.clone(), free: Vec::new() }
    }
}

fn split(number: u32) -> (usize, usize) {
    (index(number) / PAGE, index(number) % PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_as_small_as_promised() {
        assert_eq!(size_of::<Entry>(), 88);
    }

    #[test]
    fn a_shared_page_does_not_change() {
        let mut slab = Slab::default();
        let numbers: Vec<u32> =
            (0..200).map(|id| slab.add(Entry { id, state: State::Ready, ..Entry::FREE })).collect();
        let shared = slab.shared();
        slab.edit(numbers[7], |entry| entry.id = 1_000);
        slab.remove(numbers[8]);
        assert_eq!((slab.get(numbers[7]).id, shared.get(numbers[7]).id), (1_000, 7));
        assert_eq!((slab.iter().count(), shared.iter().count()), (199, 200));
        assert_eq!(slab.add(Entry { id: 9_999, state: State::Ready, ..Entry::FREE }), numbers[8]);
    }

    #[test]
    fn length_of_the_group_and_flags_do_not_meet() {
        for (bytes, flags) in [(0, 0), (1, COPY), (64, COPY | LINKED), (33, LINKED)] {
            let mut entry = Entry { group: u64::from(bytes > 0), ..Entry::FREE };
            entry.set_packed(bytes, flags);
            assert_eq!((entry.group_bytes() as usize, entry.flags()), (bytes, flags));
        }
    }
}
