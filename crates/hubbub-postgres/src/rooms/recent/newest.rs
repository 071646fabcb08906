//! The newest messages of a room, without a gap, and pages of them.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use hubbub_core::invariant::saturate;
use hubbub_core::store::{Cursor, HistoryPage, HistoryQuery};
use hubbub_core::{Message, MessageRun, Timestamp};

/// Most messages cached of a room.
pub(super) const MESSAGES_MAX: usize = 256;
/// Most bytes cached of a room, unless one message alone has more.
pub(super) const BYTES_MAX: usize = 256 * 1024;
/// Batches added without a read, after which a room is no longer extended.
const UNREAD_MAX: u32 = 16;
/// Bytes of a message besides its texts.
const MESSAGE_BYTES: usize = 64;

/// Identifies what a room hides: the oldest number, and how many after it are erased. If something is hidden, either grows,
/// and the first never falls. So the greater of two is the later one, and equal ones hide the same.
pub(in crate::rooms) type VisibilityVersion = (u64, i64);

/// The newest messages of a room at a moment.
#[derive(Debug)]
pub(super) struct NewestMessages {
    head: u64,
    version: VisibilityVersion,
    /// `run` has every message of the room from this number on.
    low: u64,
    run: MessageRun,
    unread: AtomicU32,
}

impl NewestMessages {
    pub(super) fn new(head: u64, version: VisibilityVersion, low: u64, run: MessageRun) -> Self {
        Self { head, version, low, run, unread: AtomicU32::new(0) }
    }

    pub(super) fn head(&self) -> u64 {
        self.head
    }

    pub(super) fn version(&self) -> VisibilityVersion {
        self.version
    }

    /// When the newest cached message was received.
    pub(super) fn last_received_at(&self) -> Option<Timestamp> {
        Some(self.run.get(self.run.len().checked_sub(1)?)?.received_at)
    }

    pub(super) fn bytes(&self) -> u64 {
        let bytes = self.run.bytes() + (self.run.len() + 1) * MESSAGE_BYTES;
        saturate(bytes)
    }

    /// Whether it shows the room at that state, or a later one.
    pub(super) fn is_as_new_as(&self, version: VisibilityVersion, head: u64) -> bool {
        self.version >= version && self.head >= head
    }

    /// Whether it was read lately, so that extending it pays.
    pub(super) fn is_read(&self) -> bool {
        self.unread.load(Relaxed) < UNREAD_MAX
    }

    /// A page, if all of it is cached.
    pub(super) fn page(&self, query: &HistoryQuery) -> Option<HistoryPage> {
        self.unread.store(0, Relaxed);
        let mut messages = MessageRun::default();
        let mut more;
        match query.cursor {
            Cursor::After(after) => {
                let first = after.saturating_add(1);
                if first < self.low && self.low > self.version.0 {
                    return None;
                }
                more = self.fill(&mut messages, self.index_of(first).., query);
            }
            Cursor::Before(before) => {
                more = self.fill(&mut messages, (0..self.index_of(before)).rev(), query);
                // The oldest message of a room is never erased, so there is one below.
                if !more && self.low > self.version.0 {
                    if messages.len() < query.limit {
                        return None;
                    }
                    more = true;
                }
                messages.reverse();
            }
        }
        Some(HistoryPage { messages, head: self.head, oldest: self.version.0, more })
    }

    /// Adds messages to a page until it is full. Returns whether there are more.
    fn fill(
        &self,
        page: &mut MessageRun,
        indexes: impl Iterator<Item = usize>,
        query: &HistoryQuery,
    ) -> bool {
        let mut messages = indexes.map_while(|index| self.run.get(index));
        messages.any(|message| !page.push_within(&message, query.limit, query.bytes_max))
    }

    /// The index of the first message whose number is not less.
    fn index_of(&self, seq: u64) -> usize {
        let (mut low, mut high) = (0, self.run.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            match self.run.get(middle) {
                Some(message) if message.seq < seq => low = middle + 1,
                _ => high = middle,
            }
        }
        low
    }

    /// A copy with all messages that came next. `None` if these do not follow, or if something was hidden meanwhile.
    pub(super) fn extended(&self, version: VisibilityVersion, new: &[Message<'_>]) -> Option<Self> {
        let (first, last) = (new.first()?, new.last()?);
        if version != self.version || first.seq != self.head + 1 {
            return None;
        }
        let mut extended = self.joined(last.seq, new.len(), || new.iter().copied());
        *extended.unread.get_mut() = self.unread.load(Relaxed) + 1;
        Some(extended)
    }

    /// A copy with the messages fetched after its head.
    pub(super) fn with(&self, head: u64, new: &MessageRun) -> Self {
        self.joined(head, new.len(), || new.iter())
    }

    fn joined<'a, I: Iterator<Item = Message<'a>>>(
        &self,
        head: u64,
        count: usize,
        new: impl Fn() -> I,
    ) -> Self {
        let all = || {
            self.run
                .iter()
                .map(|message| (message.seq, size(&message)))
                .chain(new().map(|message| (message.seq, size(&message))))
        };
        let (mut spare, mut bytes) = (
            (self.run.len() + count).saturating_sub(MESSAGES_MAX),
            all().map(|(_, size)| size).sum::<usize>(),
        );
        // Drop messages at the front: first too many, then too large.
        let mut low = self.low;
        for (seq, size) in all() {
            if spare == 0 && bytes <= BYTES_MAX || seq == head {
                break;
            }
            spare = spare.saturating_sub(1);
            bytes -= size;
            low = seq + 1;
        }
        let mut run = MessageRun::default();
        self.run.iter().filter(|message| message.seq >= low).for_each(|message| run.push(&message));
        new().filter(|message| message.seq >= low).for_each(|message| run.push(&message));
        Self::new(head, self.version, low, run)
    }
}

fn size(message: &Message<'_>) -> usize {
    let sent = &message.sent;
    sent.text.len() + sent.room.len() + sent.user.len() + sent.id.len() + sent.username.map_or(0, str::len)
}

#[cfg(test)]
mod tests {
    use hubbub_core::{MessageType, Send};
    use proptest::prelude::*;

    use super::*;

    fn message(seq: u64, text: &str) -> Message<'_> {
        let timestamp = Timestamp::from_micros(7);
        let sent =
            Send { room: "r", user: "u", id: "m", username: None, text, kind: MessageType::Text, timestamp };
        Message { seq, received_at: Timestamp::from_micros(i64::try_from(seq).unwrap()), sent }
    }

    fn run(seqs: &[u64], text: &str) -> MessageRun {
        let mut run = MessageRun::default();
        seqs.iter().for_each(|seq| run.push(&message(*seq, text)));
        run
    }

    fn query(cursor: Cursor, limit: usize, bytes_max: usize) -> HistoryQuery {
        HistoryQuery { cursor, from: None, to: None, limit, bytes_max }
    }

    /// The page as it is cut from all messages.
    fn expected(kept: &[u64], query: &HistoryQuery, text: usize) -> (Vec<u64>, bool) {
        let mut window: Vec<u64> = match query.cursor {
            Cursor::After(after) => kept.iter().copied().filter(|seq| *seq > after).collect(),
            Cursor::Before(before) => kept.iter().rev().copied().filter(|seq| *seq < before).collect(),
        };
        let fit = (query.bytes_max / text).max(1).min(query.limit);
        let more = window.len() > fit;
        window.truncate(fit);
        if matches!(query.cursor, Cursor::Before(_)) {
            window.reverse();
        }
        (window, more)
    }

    proptest! {
        #[test]
        fn a_page_is_right_or_none(
            erased in proptest::collection::btree_set(2_u64..40, 0..20),
            low in 1_u64..40,
            cursor in 0_u64..45,
            (is_after, limit, bytes) in (any::<bool>(), 1_usize..20, 0_usize..40),
        ) {
            let kept: Vec<u64> = (1..=40).filter(|seq| !erased.contains(seq)).collect();
            let within: Vec<u64> = kept.iter().copied().filter(|seq| *seq >= low).collect();
            let newest = NewestMessages::new(40, (1, 0), low, run(&within, "abc"));
            let cursor = if is_after { Cursor::After(cursor) } else { Cursor::Before(cursor) };
            let query = query(cursor, limit, bytes);
            if let Some(page) = newest.page(&query) {
                let seqs: Vec<u64> = page.messages.iter().map(|message| message.seq).collect();
                prop_assert_eq!((seqs, page.more), expected(&kept, &query, 3));
            } else {
                prop_assert!(low > 1);
            }
        }

        #[test]
        fn what_is_added_leaves_no_gap(parts in proptest::collection::vec(1_usize..200, 1..8), text in 0_usize..4_000) {
            let text = "x".repeat(text);
            let mut newest = NewestMessages::new(0, (1, 0), 1, MessageRun::default());
            for count in parts {
                let first = newest.head() + 1;
                let new: Vec<_> = (0..count as u64).map(|n| message(first + n, &text)).collect();
                newest = newest.extended((1, 0), &new).unwrap();
                let seqs: Vec<u64> = newest.run.iter().map(|message| message.seq).collect();
                prop_assert_eq!(seqs, (newest.low..=newest.head()).collect::<Vec<_>>());
                prop_assert!(newest.run.len() <= MESSAGES_MAX && newest.run.bytes() <= BYTES_MAX);
                prop_assert!(newest.low <= newest.head());
            }
            prop_assert!(newest.extended((1, 1), &[message(newest.head() + 1, "")]).is_none());
            prop_assert!(newest.extended((1, 0), &[message(newest.head() + 2, "")]).is_none());
        }
    }

    #[test]
    fn the_newest_are_found_without_asking() {
        let newest = NewestMessages::new(40, (1, 0), 21, run(&(21..=40).collect::<Vec<_>>(), "abc"));
        assert!(newest.page(&query(Cursor::Before(u64::MAX), 20, usize::MAX)).unwrap().more);
        assert!(newest.page(&query(Cursor::Before(u64::MAX), 21, usize::MAX)).is_none());
        assert_eq!(newest.page(&query(Cursor::After(20), 50, usize::MAX)).unwrap().messages.len(), 20);
        assert!(newest.page(&query(Cursor::After(19), 50, usize::MAX)).is_none());
        assert!(
            newest.is_as_new_as((1, 0), 40)
                && !newest.is_as_new_as((1, 0), 41)
                && !newest.is_as_new_as((1, 1), 1)
        );
    }
}
