//! The file that keeps the last changes over restarts. Written at every seal of a slot with changes of keys, in place of
//! the one before.
//!
//! ```text
//! file    = "HUBKVLOG" version:u32 crc32c:u32, over what stands before it | crc32c:u32 codec:u8 raw_bytes:u32 payload
//! payload = base:v number:v { what:u8 key_bytes:v key }*      revisions follow base without gaps; compressed as one
//! ```

use std::sync::Arc;

use crc32c::crc32c;
use hubbub_core::kv::KvChanged;

use super::changes::Changes;
use super::{KV_DIR, Key, log_path, unfinished_path};
use crate::embedded::disk::{Disk, DiskFile};
use crate::embedded::error::{DoingOn, MaintainError};
use crate::embedded::file::block::{BLOCK_RAW_BYTES_MAX, Stored};
use crate::embedded::file::codec::{Compressor, decompress};
use crate::embedded::file::cursor::{Cursor, put_varint};
use crate::embedded::segment::{Codec, SegmentError};

const MAGIC: &[u8; 8] = b"HUBKVLOG";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 16;

/// Keys of this many bytes altogether fit the one block; of more, older changes are left out.
const KEY_BYTES_MAX: usize = BLOCK_RAW_BYTES_MAX - 2 * 1024 * 1024;

/// A log on the disk.
#[derive(Clone)]
pub(crate) struct ChangeLog {
    pub(crate) number: u64,
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) bytes: u64,
    /// Checksum of the whole file.
    pub(crate) crc: u32,
}

impl std::fmt::Debug for ChangeLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChangeLog").field("number", &self.number).finish_non_exhaustive()
    }
}

impl ChangeLog {
    /// Writes the changes up to a revision, of which the last is the one of that revision. Durable when it returns.
    pub(super) fn write(
        disk: &dyn Disk,
        number: u64,
        changes: &Changes,
        revision: u64,
    ) -> Result<Self, MaintainError> {
        let path = log_path(number);
        let raw = encode(changes, revision);
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&crc32c(&bytes).to_le_bytes());
        let mut compressor = Compressor::new(Codec::Lz4).doing("writing", &path)?;
        let (codec, payload) = compressor.compress(&raw).doing("writing", &path)?;
        let raw_bytes = u32::try_from(raw.len()).unwrap_or(u32::MAX);
        Stored { codec, raw_bytes, payload }.write(&mut bytes);
        let unfinished = unfinished_path(number);
        let file = disk.create(&unfinished).doing("making", &path)?;
        file.write_all_at(&bytes, 0).and_then(|()| file.sync_data()).doing("writing", &path)?;
        disk.rename(&unfinished, &path).doing("naming", &path)?;
        disk.sync_dir(KV_DIR).doing("syncing the directory of", &path)?;
        Ok(Self { number, file, bytes: bytes.len() as u64, crc: crc32c(&bytes) })
    }

    /// Reads a log back.
    pub(crate) fn read(disk: &dyn Disk, number: u64) -> Result<(Self, Changes), SegmentError> {
        let path = log_path(number);
        let io = |source| SegmentError::Io { file: path.clone(), offset: 0, source };
        let damaged = |what| SegmentError::Damaged { file: path.clone(), offset: 0, what };
        let file = disk.open(&path).map_err(io)?;
        let mut bytes = vec![0; usize::try_from(file.len().map_err(io)?).unwrap_or(usize::MAX)];
        file.read_exact_at(&mut bytes, 0).map_err(io)?;
        let mut from = Cursor::new(&bytes);
        let (magic, version, crc) = (from.array::<8>(), from.u32(), from.u32());
        if magic.as_ref() != Some(MAGIC) || crc != bytes.get(..HEADER_BYTES - 4).map(crc32c) {
            return Err(damaged("it does not begin as a log of changes does"));
        }
        if version != Some(VERSION) {
            let found = version.unwrap_or_default();
            return Err(SegmentError::Version { file: path, found, supported: VERSION });
        }
        let changes = Stored::check(from.rest()).and_then(|stored| {
            let raw_bytes = usize::try_from(stored.raw_bytes).ok().filter(|b| *b <= BLOCK_RAW_BYTES_MAX)?;
            decode(&decompress(stored.codec, stored.payload, raw_bytes)?)
        });
        let changes = changes.ok_or_else(|| damaged("its changes do not match their checksum"))?;
        let log = Self { number, file, bytes: bytes.len() as u64, crc: crc32c(&bytes) };
        Ok((log, changes))
    }
}

fn encode(changes: &Changes, revision: u64) -> Vec<u8> {
    let kept = changes.through(revision).len();
    let mut bytes: usize = changes.through(revision).map(|(key, _)| key.len()).sum();
    let fits = |(key, _): &(&Key, KvChanged)| {
        let too_many = bytes > KEY_BYTES_MAX;
        bytes -= key.len();
        too_many
    };
    let skipped = changes.through(revision).take_while(fits).count();
    let base = if kept == 0 { revision } else { changes.base() + skipped as u64 };
    let mut out = Vec::new();
    put_varint(&mut out, base);
    put_varint(&mut out, (kept - skipped) as u64);
    for (key, what) in changes.through(revision).skip(skipped) {
        out.push(match what {
            KvChanged::Put => 0,
            KvChanged::Deleted => 1,
            KvChanged::Expired => 2,
        });
        put_varint(&mut out, key.len() as u64);
        out.extend_from_slice(key);
    }
    out
}

fn decode(bytes: &[u8]) -> Option<Changes> {
    let mut from = Cursor::new(bytes);
    let mut changes = Changes::behind(from.varint()?);
    for _ in 0..from.varint()? {
        let what = match from.byte()? {
            0 => KvChanged::Put,
            1 => KvChanged::Deleted,
            2 => KvChanged::Expired,
            _ => return None,
        };
        let length = usize::try_from(from.varint()?).ok()?;
        let key: Key = from.take(length)?.into();
        changes.push(changes.head() + 1, &key, what);
    }
    from.is_empty().then_some(changes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded::sim::SimDisk;

    #[test]
    fn a_log_comes_back_and_damage_is_seen() {
        let disk = SimDisk::new();
        disk.make_dir(KV_DIR).unwrap();
        let mut changes = Changes::behind(7);
        for (number, what) in [KvChanged::Put, KvChanged::Deleted, KvChanged::Expired].iter().enumerate() {
            changes.push(8 + number as u64, &Key::from(format!("key {number}").as_bytes()), *what);
        }
        let log = ChangeLog::write(&disk, 3, &changes, 9).unwrap();
        let (read, back) = ChangeLog::read(&disk, 3).unwrap();
        assert_eq!((read.bytes, read.crc), (log.bytes, log.crc));
        assert_eq!((back.base(), back.head()), (7, 9));
        assert!(back.through(9).eq(changes.through(9)));
        // What is not kept any more leaves only where it ended.
        ChangeLog::write(&disk, 4, &Changes::behind(50), 40).unwrap();
        assert_eq!(ChangeLog::read(&disk, 4).unwrap().1.head(), 40);
        for at in 0..log.bytes {
            disk.flip(&log_path(3), at);
            assert!(ChangeLog::read(&disk, 3).is_err(), "byte {at}");
            disk.flip(&log_path(3), at);
        }
    }
}
