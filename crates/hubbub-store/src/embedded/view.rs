//! What readers see: the segments, the runs of keys and the unsealed tails at one moment.

use std::sync::Arc;

use crate::embedded::file::DataFile;
use crate::embedded::kv::KeyRun;
use crate::embedded::rooms::RoomNumber;
use crate::embedded::segment::Segment;
use crate::embedded::tail::Tail;

/// Segments and tails that together hold every message once, and with the runs every key. Replaced as a whole, never changed.
#[derive(Debug, Default, Clone)]
pub(crate) struct View {
    /// Immutable segments, in the order of what they hold.
    pub(crate) segments: Vec<Segment>,
    /// Immutable runs of keys, oldest first.
    pub(crate) runs: Vec<KeyRun>,
    /// The last changes of keys in sealed journals.
    pub(crate) key_log: Option<DataFile>,
    /// Journals that are not sealed, oldest first; the last one is being written.
    pub(crate) tails: Vec<Arc<Tail>>,
}

impl View {
    /// Seq of a room's newest message; 0 when it has none.
    pub(crate) fn last_seq(&self, name: &str, room: RoomNumber) -> u64 {
        let sealed = self.segments.iter().filter_map(|segment| Some(segment.room(name)?.last_seq));
        sealed.chain(self.tails.iter().filter_map(|tail| tail.last_seq(room))).max().unwrap_or(0)
    }

    pub(crate) fn messages(&self) -> u64 {
        let sealed: u64 = self.segments.iter().map(|segment| segment.messages()).sum();
        sealed + self.tails.iter().map(|tail| tail.messages()).sum::<u64>()
    }
}
