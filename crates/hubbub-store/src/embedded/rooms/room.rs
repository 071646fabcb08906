//! One room: its numbers, what of them is hidden, and who is in it.

use std::collections::HashMap;
use std::sync::Arc;

use hubbub_core::Timestamp;
use hubbub_core::rules::rooms::{RoomState, is_caught_up};
use roaring::RoaringTreemap;

use super::users::UserNumber;
use crate::embedded::tail::hash::MixState;

/// A room. One that was deleted stays, so that no number comes twice.
#[derive(Debug, Clone)]
pub(crate) struct Room {
    pub(crate) name: Arc<str>,
    pub(crate) exists: bool,
    /// Highest number given; 0 = none.
    pub(crate) head: u64,
    /// When that was, in microseconds; `i64::MIN` = never.
    pub(crate) last_received: i64,
    /// Everything up to here is deleted.
    pub(crate) low_watermark: u64,
    /// Up to here some were deleted or erased; what is hidden above and not in `erased` has only expired. Not kept across starts:
    /// after one this is the low watermark.
    pub(crate) deleted_through: u64,
    /// Numbers above the low watermark whose messages are erased; `None` = none.
    pub(crate) erased: Option<Arc<RoaringTreemap>>,
    pub(crate) title: Option<Box<str>>,
    pub(crate) members_only: bool,
    /// How long messages are kept, in seconds; 0 = as those of other rooms.
    pub(crate) retention_s: u64,
    /// Read marks of the members. None is beyond the head.
    pub(crate) members: HashMap<UserNumber, u64, MixState>,
    /// The members whose marks stand at the head: those alone can move theirs by a message. In a busy room that is
    /// nobody or the last sender, so a message costs no search for its sender.
    pub(super) at_head: Vec<UserNumber>,
}

/// What readers must not see of a room.
#[derive(Debug, Clone, Default)]
pub struct Hidden {
    pub(crate) low_watermark: u64,
    /// Later messages are durable, and the room does not say so yet. Whoever saw one could not go on from there.
    pub(crate) head: u64,
    pub(crate) erased: Option<Arc<RoaringTreemap>>,
}

impl Hidden {
    pub(crate) fn hides(&self, seq: u64) -> bool {
        seq <= self.low_watermark || self.erased.as_ref().is_some_and(|erased| erased.contains(seq))
    }

    /// How many messages of `first..=last` are not hidden.
    pub(crate) fn visible(&self, first: u64, last: u64) -> u64 {
        let below = first.saturating_sub(1).max(self.low_watermark);
        let erased =
            self.erased.as_ref().map_or(0, |erased| erased.rank(last).saturating_sub(erased.rank(below)));
        last.saturating_sub(below).saturating_sub(erased)
    }
}

impl Room {
    pub(super) fn new(name: Arc<str>) -> Self {
        Self {
            name,
            exists: false,
            head: 0,
            last_received: i64::MIN,
            low_watermark: 0,
            deleted_through: 0,
            erased: None,
            title: None,
            members_only: false,
            retention_s: 0,
            members: HashMap::default(),
            at_head: Vec::new(),
        }
    }

    /// What decisions depend on.
    pub(crate) fn state(&self) -> RoomState {
        RoomState {
            exists: self.exists,
            members_only: self.members_only,
            head: self.head,
            last_received: Timestamp::from_micros(self.last_received),
        }
    }

    /// Sets a member's mark, which is nowhere else; `None` = no member any more.
    pub(super) fn set_mark(&mut self, user: UserNumber, mark: Option<u64>) -> Option<u64> {
        self.at_head.retain(|other| *other != user);
        if mark.is_some_and(|mark| is_caught_up(mark, self.head)) {
            self.at_head.push(user);
        }
        match mark {
            Some(mark) => self.members.insert(user, mark),
            None => self.members.remove(&user),
        }
    }

    pub(crate) fn hides_any(&self) -> bool {
        self.low_watermark > 0 || self.erased.is_some()
    }

    pub(crate) fn hidden(&self) -> Hidden {
        Hidden { low_watermark: self.low_watermark, head: self.head, erased: self.erased.clone() }
    }

    pub(crate) fn messages(&self) -> u64 {
        let erased = self.erased.as_ref().map_or(0, |erased| erased.len());
        self.head.saturating_sub(self.low_watermark).saturating_sub(erased)
    }

    /// Seq of the oldest message kept; `head + 1` when none is.
    pub(crate) fn oldest(&self) -> u64 {
        self.low_watermark + 1
    }

    pub(crate) fn unread(&self, mark: u64) -> u64 {
        let base = mark.max(self.low_watermark);
        let erased = self.erased.as_ref().map_or(0, |erased| erased.len().saturating_sub(erased.rank(base)));
        self.head.saturating_sub(base).saturating_sub(erased)
    }

    /// Hides everything up to `seq`, which counts as expired where nothing else says otherwise.
    pub(super) fn raise_low_watermark(&mut self, seq: u64) {
        if seq > self.low_watermark {
            self.low_watermark = seq.min(self.head);
            self.absorb_erased();
        }
    }

    /// How many messages of `first..=last` have expired and were neither deleted nor erased. A segment with that span holds all of
    /// them: when it is written anew it begins behind them.
    pub(crate) fn expired(&self, first: u64, last: u64) -> u64 {
        let before = first.saturating_sub(1).max(self.deleted_through);
        last.min(self.low_watermark).saturating_sub(before)
    }

    pub(super) fn erase(&mut self, seqs: &mut dyn Iterator<Item = u64>) {
        let (low_watermark, head) = (self.low_watermark, self.head);
        let erased = Arc::make_mut(self.erased.get_or_insert_default());
        seqs.filter(|seq| *seq > low_watermark && *seq <= head).for_each(|seq| {
            erased.insert(seq);
        });
        self.absorb_erased();
    }

    /// Restores the invariant that the number above the low watermark is not erased.
    fn absorb_erased(&mut self) {
        let Some(shared) = &mut self.erased else { return };
        let erased = Arc::make_mut(shared);
        let below = erased.rank(self.low_watermark);
        let last = below.checked_sub(1).and_then(|place| erased.select(place));
        self.deleted_through = self.deleted_through.max(last.unwrap_or(0));
        erased.remove_range(..=self.low_watermark);
        while erased.min() == Some(self.low_watermark + 1) {
            // The run of erased numbers that begins above the low watermark, found by bisection on ranks.
            let (mut low, mut high) = (self.low_watermark + 1, self.head);
            while low < high {
                let middle = low + (high - low).div_ceil(2);
                if erased.rank(middle) == middle - self.low_watermark {
                    low = middle
                } else {
                    high = middle - 1
                }
            }
            (self.low_watermark, self.deleted_through) = (low, low);
            erased.remove_range(..=self.low_watermark);
        }
        if erased.is_empty() {
            self.erased = None;
        }
    }
}
