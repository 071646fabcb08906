//! What can be chosen about an engine.

use std::time::Duration;

use hubbub_core::invariant::saturate;

use crate::embedded::queues::QueueLimits;

/// What survives which crash once a message is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// Waits until the disk has it. Survives a crash of the process, of the operating system, and a power cut.
    #[default]
    Fsync,
    /// Hands it to the operating system and does not wait. Survives a crash of the process; the last seconds may be
    /// lost with the operating system or the power. The history gets a new epoch after every unclean end, so that
    /// clients notice.
    Os,
}

/// Merging of segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MergeOptions {
    /// More segments that can still grow than this are merged.
    pub segments_max: usize,
    /// So many become one, or fewer.
    pub fan_in: usize,
    /// No merged segment becomes larger than this. One of more than half of it grows no further.
    pub bytes_max: u64,
}

impl Default for MergeOptions {
    fn default() -> Self {
        Self { segments_max: 32, fan_in: 8, bytes_max: 2 << 30 }
    }
}

/// Ids of messages that are gone that stay in memory when a slot of the journal is sealed, by default: about
/// 3 MB.
pub(crate) const QUEUE_IDS_IN_MEMORY: usize = 50_000;
/// How the copies of messages to everybody are made: at once, or bit by bit by sweeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BroadcastOptions {
    /// Up to so many copies of one message are made at once.
    pub at_once: u32,
    /// Copies that one sweep makes, at least 1. Operations beside it wait as long as that takes.
    pub per_sweep: usize,
    /// Messages whose copies are not all made; more are refused as too many. Each costs every look for messages of a
    /// receiver some 50 ns.
    pub messages_max: usize,
    /// Copies of them that are not made; more are refused, unless they are of the only one.
    pub copies_max: u64,
}

impl Default for BroadcastOptions {
    fn default() -> Self {
        Self { at_once: 16, per_sweep: 500, messages_max: 1_000, copies_max: 8_000_000 }
    }
}

/// What can be chosen about an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineOptions {
    /// What survives which crash.
    pub durability: Durability,
    /// Size of a journal slot, at least 4 KiB and at most 2 GiB. No batch may be larger; what waits for its seal is kept indexed in memory, at about
    /// 60 bytes per message.
    pub slot_bytes: u64,
    /// Whether a room springs into being at its first message.
    pub autocreate: bool,
    /// Whether who sends to a queue or takes from one is registered by that, where the operation allows it.
    pub queues_autoregister: bool,
    /// Ids of messages that are gone, and are remembered for their time, that stay in memory when a slot of the journal is
    /// sealed. Where there are more, all of them go to a file. Between two seals memory holds those of one slot more.
    pub queue_ids_in_memory: usize,
    /// Clients of queues that may be registered at a time; 0 = none.
    pub queues_clients_max: u64,
    /// How the copies of messages to everybody are made.
    pub broadcasts: BroadcastOptions,
    /// How long messages are kept; `None` = for ever. Whole segments go, so some stay up to an eighth longer.
    pub retention: Option<Duration>,
    /// Memory for decompressed blocks of segments, and as much again for those of runs of keys.
    pub block_cache_bytes: u64,
    /// Added to each journal sync, to see what a slow disk does.
    pub sync_delay: Duration,
    /// Free space below which writes are refused, so that seals, deletion and the next start still have some.
    pub reserve_bytes: u64,
    /// When and how segments are merged.
    pub merge: MergeOptions,
    /// Time between two looks for segments that hold something deleted or erased; it is out of sight at once, and
    /// off the disk after this.
    pub scrub_interval: Duration,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            durability: Durability::Fsync,
            slot_bytes: 64 << 20,
            autocreate: true,
            queues_autoregister: true,
            queue_ids_in_memory: QUEUE_IDS_IN_MEMORY,
            queues_clients_max: 1_000_000,
            broadcasts: BroadcastOptions::default(),
            retention: None,
            block_cache_bytes: 32 << 20,
            sync_delay: Duration::ZERO,
            reserve_bytes: 256 << 20,
            merge: MergeOptions::default(),
            scrub_interval: Duration::from_secs(60),
        }
    }
}

/// Full slots waiting for their seal from which on writers are slowed down.
pub(crate) const WAITING_SLOTS_SLOW: usize = 2;

/// Full slots waiting for their seal at which writers are refused.
pub(crate) const WAITING_SLOTS_MAX: usize = 4;

/// Slots of a data directory: those waiting, the one written to, and the next.
pub(crate) const SLOTS_MAX: usize = WAITING_SLOTS_MAX + 2;

impl EngineOptions {
    pub(crate) fn queue_limits(&self) -> QueueLimits {
        QueueLimits { clients_max: self.queues_clients_max, broadcasts: self.broadcasts }
    }

    /// The same, within what the formats can hold.
    pub(crate) fn within_bounds(self) -> Self {
        Self { slot_bytes: self.slot_bytes.clamp(4 << 10, 2 << 30), ..self }
    }

    /// Messages one slot holds at most, however short they are: bounds the memory of its index. Texts of 100 bytes
    /// and more fill a slot before that.
    pub(crate) fn slot_messages_max(&self) -> usize {
        saturate::<_, usize>(self.slot_bytes / 146).max(16)
    }
}
