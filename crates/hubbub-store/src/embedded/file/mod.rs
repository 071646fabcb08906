//! What the immutable sorted files share: bytes, checksums, compression, writing, reading, caching.

pub(crate) mod block;
pub(crate) mod cache;
pub(crate) mod codec;
pub(crate) mod cursor;
pub(crate) mod error;
pub(crate) mod output;
pub(crate) mod varint;
