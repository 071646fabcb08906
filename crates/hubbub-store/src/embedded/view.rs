//! What readers see: the segments, the runs of keys and the unsealed tails at one moment.

use std::sync::Arc;

use crate::embedded::kv::{ChangeLog, KeyRun};
use crate::embedded::rooms::RoomNumber;
use crate::embedded::segment::Segment;
use crate::embedded::tail::{SeqSpan, Tail};

/// Segments and tails that together hold every message once, and with the runs every key. Replaced as a whole, never changed.
#[derive(Debug, Default, Clone)]
pub(crate) struct View {
    /// Immutable segments, in the order of what they hold.
    pub(crate) segments: Vec<Segment>,
    /// Immutable runs of keys, oldest first.
    pub(crate) runs: Vec<KeyRun>,
    /// The last changes of keys in sealed journals.
    pub(crate) key_log: Option<ChangeLog>,
    /// Journals that are not sealed, oldest first; the last one is being written.
    pub(crate) tails: Vec<Arc<Tail>>,
}

impl View {
    /// What a room has altogether.
    pub(crate) fn span(&self, name: &str, room: RoomNumber) -> Option<SeqSpan> {
        let sealed = self.segments.iter().filter_map(|segment| {
            let span = segment.span(name)?;
            Some(SeqSpan { first_seq: span.first_seq, last_seq: span.last_seq, messages: span.count })
        });
        sealed.chain(self.tails.iter().filter_map(|tail| tail.span(room))).reduce(|all, next| SeqSpan {
            first_seq: all.first_seq.min(next.first_seq),
            last_seq: all.last_seq.max(next.last_seq),
            messages: all.messages + next.messages,
        })
    }

    /// Messages altogether.
    pub(crate) fn messages(&self) -> u64 {
        let sealed: u64 = self.segments.iter().map(|segment| segment.messages()).sum();
        sealed + self.tails.iter().map(|tail| tail.messages()).sum::<u64>()
    }
}
