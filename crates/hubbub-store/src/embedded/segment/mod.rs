//! A segment: messages sorted by (room, seq), compressed, immutable, with its own small indexes.
//!
//! Written once by [`SegmentWriter`] (a seal) or [`merge`], then read by [`Segment`]: a room's span is found by a
//! binary search over names → the block by one over (seq, time) → the block through the [`BlockCache`] → the messages
//! in it by a last binary search. An id is found by its keyed hash ([`IdHasher`]) in one page of the sorted id table, a user by name in a
//! page of the sorted table of users, and from there all the user's messages.
//!
//! ```text
//! file     = header, block*, ids, postings, users, fences, rooms, blocks, user fences, table, footer
//!            integers little-endian
//! header   = "HUBSEGMT" version:u32 crc32c:u32                                  crc over the 12 bytes before
//! block    = crc32c:u32 codec:u8 raw_bytes:u32 payload                          crc over all that follows it
//! payload  = heads_bytes:u32 uuids:u32 names_bytes:u32 head* (uuid:16 bytes)* name* text*       compressed as one
//! head     = flags:u8 seq:zz received_at:zz timestamp:zz user_bytes:u8 [username_bytes:u8] [id_bytes:u8] text_bytes:v
//!            flags: bits 0-1 message type, bit 2 has a username, bit 3 the id is a UUID and stands among the uuids
//!            zz = zigzag varint, v = varint; seq and received_at as difference to the message before in the block
//!            (0 before the first), timestamp as difference to received_at
//! name     = user, username if any, id unless it is a UUID
//! ids      = pages of 4,096 bytes: 341 × (hash:u64 ordinal:u32) crc32c:u32; the last may be shorter; sorted
//! fences   = first hash:u64 of every page of ids
//! rooms    = { name_bytes:u8 name count:v first_seq:v (last_seq-first_seq):v first_received:zz (last-first):zz }*
//! postings = pages of a stream of { ordinal:v received+type:v }*, a list for each user in the order of their names; ordinal
//!            as difference to the one expected (0, then the one before + 1), received as difference to the one before
//!            in the list (to the oldest time in rooms before the first), zigzag, shifted by the two bits of the type
//! users    = pages of a stream of { name_bytes:u8 name count:v postings_bytes:v first_received:zz (last-first):zz }*
//!            in the order of names; first_received as difference to the oldest time in rooms
//! user fences = { name_bytes:u8 name users_at:v postings_at:v }*     for every 64th user, places in the streams
//! blocks   = { stored_bytes:v messages:v first_seq:v first_received:zz }*       in file order
//! table    = { kind:u32 crc32c:u32 offset:u64 bytes:u64 items:u64 }*            a reader skips kinds it does not know;
//!            one entry is over everything before the table
//! footer   = table_offset:u64 sections:u32 table_crc32c:u32 number:u64 crc32c:u32 "HBSE"
//! ```
//!
//! A message's ordinal is its place in the file. Rooms stand in the order of their names, so room and block of an
//! ordinal follow from counts, and neither is repeated per message. Postings carry time and type, so that everything that
//! is counted about a user follows from them without reading messages. They stand in the order of ordinals rather than of
//! time: so a merge needs no memory per message, and each room of a user comes in one piece.
//!
//! Invariants
//! - A name `NNNNNNNN.seg` means complete and synced: it is written as `.tmp` and renamed.
//! - Every byte is under a checksum; a damaged one is an error with file and offset, never another message.
//! - Within a room both seq and `received_at` go up, which is why both can be searched.
//!
//! Not here: which segments there are (the manifest), what is not sealed yet (the tail).

mod block;
mod check;
mod format;
mod id_hash;
mod ids;
mod index;
mod merge;
mod merge_users;
mod open;
mod paged;
mod postings;
mod read;
mod scan;
mod user_table;
mod users;
mod uuid;
mod writer;

#[cfg(test)]
mod tests;

pub(crate) type BlockCache = crate::embedded::file::cache::BlockCache<block::MessageBlock>;

pub(crate) use crate::embedded::file::codec::Codec;
pub(crate) use id_hash::IdHasher;
pub(crate) use index::RoomEntry;
pub(crate) use merge::{MergeError, merge};
pub(crate) use open::Segment;
pub(crate) use postings::Posting;
pub(crate) use read::ReadEnd;
pub(crate) use users::UserPart;
pub(crate) use writer::SegmentWriter;

pub(crate) const SEGMENTS_DIR: &str = "segments";

/// Name of a finished segment, relative to the data directory.
pub(crate) fn segment_path(number: u64) -> String {
    format::SEGMENT.path(number)
}
