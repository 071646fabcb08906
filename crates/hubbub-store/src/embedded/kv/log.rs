//! The file that keeps the last changes over restarts. Written at every seal of a slot with changes of keys, in place of
//! the one before.
//!
//! ```text
//! file    = "HUBKVLOG" version:u32 crc32c:u32, over what stands before it | crc32c:u32 codec:u8 raw_bytes:u32 payload
//! payload = base:v number:v { what:u8 key_bytes:v key }*      revisions follow base without gaps; compressed as one
//! ```

use std::sync::Arc;

use crc32c::{crc32c, crc32c_append};
use hubbub_core::kv::KvChanged;

use super::changes::Changes;
use super::{KV_DIR, Key, log_path};
use crate::embedded::disk::Disk;
use crate::embedded::error::{DoingOn, MaintainError};
use crate::embedded::file::block::BLOCK_RAW_BYTES_MAX;
use crate::embedded::file::varint;
use crate::embedded::file::{Codec, Cursor, DataFile, FileError, FileKind, FileWriter};
use crate::embedded::record::{code_of, from_code};

/// Logs of changes. They have no footer.
pub(crate) static CHANGE_LOG: FileKind = FileKind {
    dir: KV_DIR,
    extension: "log",
    digits: 8,
    magic: b"HUBKVLOG",
    end_magic: b"",
    version: 1,
    wrong_magic: "it does not begin as a log of changes does",
};

/// Keys of this many bytes altogether fit the one block; of more, older changes are left out.
const KEY_BYTES_MAX: usize = BLOCK_RAW_BYTES_MAX - 2 * 1024 * 1024;

/// Writes the changes up to a revision, of which the last is the one of that revision. Durable when it returns.
pub(super) fn write_log(
    disk: Arc<dyn Disk>,
    number: u64,
    changes: &Changes,
    revision: u64,
) -> Result<DataFile, MaintainError> {
    let path = log_path(number);
    let mut writer = FileWriter::create(disk, &CHANGE_LOG, number, Codec::Lz4).doing("making", &path)?;
    writer.append_block(&encode(changes, revision)).doing("writing", &path)?;
    writer.finish().doing("finishing", &path)
}

pub(crate) fn read_log(disk: &dyn Disk, number: u64) -> Result<(DataFile, Changes), FileError> {
    let mut file = DataFile::open(disk, &CHANGE_LOG, number)?;
    let begin = FileKind::HEADER_BYTES as u64;
    let stored = file.read(begin, file.bytes.saturating_sub(begin))?;
    let changes = decode(&file.unpack(&stored, begin)?)
        .ok_or_else(|| file.damaged(begin, "its changes are not such"))?;
    file.crc32c = crc32c_append(crc32c(&CHANGE_LOG.header()), &stored);
    Ok((file, changes))
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
    let base = if kept == 0 { revision } else { changes.base + skipped as u64 };
    let mut out = Vec::new();
    varint::write(base, &mut out);
    varint::write((kept - skipped) as u64, &mut out);
    for (key, what) in changes.through(revision).skip(skipped) {
        out.push(code_of(what));
        varint::write_bytes(key, &mut out);
    }
    out
}

fn decode(bytes: &[u8]) -> Option<Changes> {
    let mut from = Cursor::new(bytes);
    let mut changes = Changes::behind(from.varint()?);
    for _ in 0..from.varint()? {
        let what = from_code(from.byte()?)?;
        let key: Key = from.bytes()?.into();
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
        let writer = || -> Arc<dyn Disk> { Arc::new(disk.clone()) };
        let mut changes = Changes::behind(7);
        for (number, what) in [KvChanged::Put, KvChanged::Deleted, KvChanged::Expired].iter().enumerate() {
            changes.push(8 + number as u64, &Key::from(format!("key {number}").as_bytes()), *what);
        }
        let log = write_log(writer(), 3, &changes, 9).unwrap();
        let (read, back) = read_log(&disk, 3).unwrap();
        assert_eq!((read.bytes, read.crc32c), (log.bytes, log.crc32c));
        assert_eq!((back.base, back.head()), (7, 9));
        assert!(back.through(9).eq(changes.through(9)));
        // What is not kept any more leaves only where it ended.
        write_log(writer(), 4, &Changes::behind(50), 40).unwrap();
        assert_eq!(read_log(&disk, 4).unwrap().1.head(), 40);
        for at in 0..log.bytes {
            disk.flip(&log_path(3), at);
            assert!(read_log(&disk, 3).is_err(), "byte {at}");
            disk.flip(&log_path(3), at);
        }
    }
}
