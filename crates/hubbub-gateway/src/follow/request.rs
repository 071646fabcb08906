//! From where somebody wants to follow a room.

use crate::problem::Reset;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    Live,
    /// Behind a seq; 0 = with the oldest.
    After(u64),
    Last(usize),
    /// Behind a read mark, or with the oldest message if the next one is no longer kept.
    Mark(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Audience {
    Readers,
    /// Only whoever is a member of it now.
    Members,
}

/// Where to go on when the cursor cannot be honoured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnReset {
    Replay,
    Live,
}

impl OnReset {
    pub(crate) const RULE: &str = "must be replay or live";

    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text {
            "replay" => Some(Self::Replay),
            "live" => Some(Self::Live),
            _ => None,
        }
    }

    /// Behind which seq it goes on at the room's position.
    pub(super) fn cursor(self, at: &Reset) -> u64 {
        match self {
            Self::Replay => at.oldest.saturating_sub(1),
            Self::Live => at.head,
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct FollowRequest {
    pub(crate) start: Start,
    pub(crate) epoch: Option<String>,
    pub(crate) on_reset: OnReset,
    pub(crate) audience: Audience,
}

impl FollowRequest {
    /// Whether the cursor cannot be honoured at the room's position.
    pub(super) fn is_reset(&self, at: &Reset) -> bool {
        let is_foreign = self.epoch.as_ref().is_some_and(|given| **given != *at.epoch);
        match self.start {
            // "From the oldest" has a meaning in every epoch.
            Start::After(0) | Start::Mark(_) => false,
            Start::After(after) => is_foreign || after > at.head || after + 1 < at.oldest,
            Start::Live | Start::Last(_) => is_foreign,
        }
    }

    /// Whether the client has everything before its start. One that begins with the oldest message has nothing.
    pub(super) fn has_cursor(&self, is_reset: bool) -> bool {
        match (is_reset, self.on_reset, self.start) {
            (true, on_reset, _) => on_reset == OnReset::Live,
            (false, _, Start::After(after)) => after > 0,
            (false, _, Start::Live | Start::Last(_)) => true,
            (false, _, Start::Mark(_)) => false,
        }
    }

    /// Behind which seq it begins at the room's position. `None` where the last messages follow, which have their own.
    pub(super) fn cursor(&self, at: &Reset, is_reset: bool) -> Option<u64> {
        match self.start {
            _ if is_reset => Some(self.on_reset.cursor(at)),
            Start::After(after) | Start::Mark(after) => Some(after),
            Start::Last(_) if at.head >= at.oldest => None,
            Start::Live | Start::Last(_) => Some(at.head),
        }
    }
}
