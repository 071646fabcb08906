//! The embedded engine: one journal, sorted immutable segments, a small manifest.
//!
//! A batch goes through the writer ([`Engine::apply`]) into the journal and is durable → its places go to a tail in
//! memory, so it can be read → a full slot is sealed into a [`segment`], its keys into a run ([`kv`]) → small ones are
//! merged, old ones dropped. A read takes one view of segments, runs and tails and goes through them. A start finds its way
//! back from the manifest and the slots.
//!
//! Invariants
//! - Acknowledged means synced, and synced bytes are never overwritten before a segment holds them.
//! - Readers never wait for a write or a sync.
//! - No byte read back is believed without its checksum.

mod backup;
mod damage;
mod dedup;
pub mod disk;
mod engine;
mod error;
mod file;
mod journal;
mod kv;
mod manifest;
mod merge;
mod options;
mod queues;
mod record;
mod recovery;
mod rooms;
mod seal;
mod segment;
mod service;
mod shared;
#[cfg(any(test, feature = "simulated-disk"))]
pub mod sim;
mod stats;
mod status;
mod tail;
mod verify;
mod view;
mod writer;

pub use backup::{RestoreError, file_crc32c, restore};
pub use disk::data_dir::{BACKUP_LIST, is_ours, make as make_dir};
pub use engine::Engine;
pub use error::{MaintainError, OpenError};
pub use file::FileError;
pub use options::{BroadcastOptions, Durability, EngineOptions, MergeOptions};
pub use rooms::Hidden;
pub use service::{Embedded, READS_AT_ONCE};
pub use verify::{DataFault, Verified, verify};
