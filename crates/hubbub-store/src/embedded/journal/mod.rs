//! The journal: where everything becomes durable.
//!
//! A batch is encoded into one block ([`block`]), written with one `pwrite` into a slot ([`slot`]) and made durable
//! with one data sync. Slots are files of a fixed size, filled with zeros once and then reused for ever: overwriting
//! them changes no metadata of the file system, which is what makes a sync cheap. So nothing on this path creates,
//! grows, renames or removes a file or syncs a directory; the next slot is prepared in the background.
//!
//! Every use of a slot is a journal of its own, with a number that never comes again. [`scan`] reads slots back after
//! a start and decides what of them counts, [`check`] does before a seal. [`end`] records which batch is the last one that must be
//! there.

pub(crate) mod block;
pub(crate) mod check;
pub(crate) mod end;
pub(crate) mod scan;
pub(crate) mod slot;

pub(crate) const JOURNAL_DIR: &str = "journal";

pub(crate) fn slot_path(number: u32) -> String {
    format!("{JOURNAL_DIR}/slot-{number}")
}

pub(crate) fn slot_number(name: &str) -> Option<u32> {
    name.strip_prefix("slot-")?.parse().ok()
}
