//! Keys and values: newest ones in the journal with an index in memory, the rest in sorted immutable runs.
//!
//! A change is decided by the newest version of its key ([`lookup`]), takes the store's next revision and goes into the
//! journal → its place goes to the index of the slot's tail ([`tail`]) → the seal of the slot writes the newest version
//! of each key into a [`run`], and the changes kept for those who watch into a log ([`log`]) → neighbouring runs are
//! merged ([`compact`]). A read looks into the tails, newest first, then into the runs, newest first, and takes the
//! first version it meets; deleted keys leave a version that says so until no older run is left.
//!
//! Keys that run out stand in memory in the order of their times ([`state`]), 100 to 150 bytes for each with a short
//! name; reads, lists and conditions leave them out by the clock alone ([`Version::is_seen`]), and sweeps delete them once
//! that is proven ([`hubbub_core::Clock::proven`]).

pub(crate) mod changes;
mod list;
mod log;
mod lookup;
pub(crate) mod run;
mod service;
pub(crate) mod state;
pub(crate) mod tail;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use hubbub_core::Timestamp;
use hubbub_core::kv::has_expired;

pub(crate) use crate::embedded::file::Patience;
use crate::embedded::file::varint;
pub(crate) use log::read_log;
pub(crate) use run::{KEY_RUN, KeyRun, count_keys};
pub(crate) use state::{Keys, OpenedKeys};

pub(crate) const KV_DIR: &str = "kv";

pub(crate) fn run_path(number: u64) -> String {
    KEY_RUN.path(number)
}

pub(crate) fn log_path(number: u64) -> String {
    log::CHANGE_LOG.path(number)
}

/// What there is of a key somewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) revision: u64,
    /// When it runs out, by the wall clock in microseconds.
    pub(crate) expires: Option<i64>,
    /// Whether it says that the key is not there.
    pub(crate) deleted: bool,
    pub(crate) value_bytes: u32,
}

impl Version {
    /// Whether readers see the key at this time, and conditions meet it.
    pub(crate) fn is_seen(&self, now: i64) -> bool {
        let time = Timestamp::from_micros;
        !self.deleted && !has_expired(self.expires.map(time), time(now))
    }
}

/// A key, shared by everything in memory that names it.
pub(crate) type Key = Arc<[u8]>;

/// What the manifest says about keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct KeyCatalog {
    pub(crate) next_number: u64,
    /// Runs that count, oldest first.
    pub(crate) runs: Vec<u64>,
    /// The log of changes that counts; 0 = none.
    pub(crate) log: u64,
    /// Revision of the last change in sealed journals.
    pub(crate) revision: u64,
    /// Keys there are up to there.
    pub(crate) keys: u64,
}

impl KeyCatalog {
    pub(crate) fn paths(&self) -> impl Iterator<Item = String> {
        let log = (self.log != 0).then(|| log_path(self.log));
        self.runs.iter().map(|number| run_path(*number)).chain(log)
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        varint::write(self.next_number, out);
        varint::write_list(&self.runs, out);
        for number in [self.log, self.revision, self.keys] {
            varint::write(number, out);
        }
    }

    pub(crate) fn read(input: &mut &[u8]) -> Option<Self> {
        Some(Self {
            next_number: varint::read(input)?,
            runs: varint::read_list(input)?,
            log: varint::read(input)?,
            revision: varint::read(input)?,
            keys: varint::read(input)?,
        })
    }
}
