//! A run: the newest version of each of its keys, sorted by key, compressed, immutable.
//!
//! Written once by [`RunWriter`] (a seal or a merge), then read by [`KeyRun`]: the filter says whether a key may be there
//! → the block by a binary search over the first key of each → the entry by one in the block.
//!
//! ```text
//! file    = header, (block | value)*, index, filter, expiring, footer           integers little-endian
//! header  = "HUBKVRUN" version:u32 crc32c:u32                                   crc over the 12 bytes before
//! block   = crc32c:u32 codec:u8 raw_bytes:u32 payload                           crc over all that follows it
//! payload = entry* (start:u16)* entries:u16                                     compressed as one
//! entry   = flags:u8 key_bytes:v revision:v value_bytes:v [runs_out:i64] [value_at:v stored_bytes:v] key [value]
//!           flags: bit 0 deleted, bit 1 runs out, bit 2 the value stands outside the block     v = varint
//! value   = like a block, its payload a value longer than 1 KiB
//! index   = { key_bytes:v key offset:v stored_bytes:v }*     for each block its first key; offset as difference
//! filter  = lines of 64 bytes; see `super::super::filter`; 10 bits for each key
//! expiring= { runs_out:i64 revision:v key_bytes:v key }*     every key that runs out
//! footer  = see [`footer`]
//! ```
//!
//! A value longer than 1 KiB stands outside, so that looking for a key, or listing keys, reads 4 KiB for each block.
//! In memory an open run takes 10 bits per key for its filter, and for each block 24 bytes and its first key: about 2.5
//! bytes for each key of 20 bytes with a value of 100.
//!
//! Invariants
//! - A name `NNNNNNNN.run` means complete and synced: it is written as `.tmp` and renamed.
//! - Every byte is under a checksum; a damaged one is an error with file and offset, never another value.

mod block;
mod check;
mod footer;
mod index;
mod merge;
mod open;
mod scan;
mod writer;

#[cfg(test)]
mod tests;

pub(crate) use block::KeyBlock;
pub(crate) use footer::KEY_RUN;
pub(crate) use merge::{KeySource, count_keys, first_key, merge, pass};
pub(crate) use open::KeyRun;
pub(crate) use scan::KeyScan;
pub(crate) use writer::RunWriter;
