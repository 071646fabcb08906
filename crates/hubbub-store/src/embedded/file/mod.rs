//! What all immutable files of the store share: header, footer, blocks, checksums, compression, writing and reading.
//!
//! ```text
//! file    = header, (block | section)*, footer                        integers little-endian
//! header  = magic:8 bytes version:u32 crc32c:u32                      crc over the 12 bytes before
//! block   = crc32c:u32 codec:u8 raw_bytes:u32 payload                 crc over all that follows it
//! section = bytes with a checksum in the footer or in pages
//! footer  = fields of the kind of file, crc32c:u32 over them, end magic:4 bytes
//! ```
//!
//! A [`FileKind`] says which files these are. [`FileWriter`] writes one under another name and renames it when all of it
//! is synced, so a finished name means a complete file. [`DataFile`] reads one back; what is not as it was written is a
//! [`FileError`] with file and offset.

pub(crate) mod block;
pub(crate) mod cache;
pub(crate) mod codec;
pub(crate) mod cursor;
pub(crate) mod error;
pub(crate) mod kind;
pub(crate) mod output;
pub(crate) mod reader;
pub(crate) mod varint;
pub(crate) mod writer;

pub(crate) use cache::{BlockCache, Cached, CachedBlocks};
pub(crate) use codec::Codec;
pub(crate) use cursor::Cursor;
pub use error::FileError;
pub(crate) use kind::FileKind;
pub(crate) use output::Output;
pub(crate) use reader::{DataFile, Patience, Section};
pub(crate) use writer::{FileWriter, SortedFileWriter, write_sorted};
