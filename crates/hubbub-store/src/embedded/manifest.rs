//! What the engine knows besides messages, in one small file that is replaced as a whole.
//!
//! ```text
//! magic 8 | crc32c 4, over all that follows | version 4 | epoch key, id key, block seed, applied journal, next segment
//! | flags | segments: count, number each | keys: next run, runs: count, number each, log, revision, count
//! | queues: snapshot, texts: count, number each, ids: count, number each | proven time: 0 or microseconds + 1
//! | segments with times ahead of their clock: count, number and microseconds each (varints)
//! | rooms, as [`super::rooms`] writes them
//! ```
//!
//! Replaced by: write `MANIFEST.tmp`, sync it, rename it, sync the directory. After a crash either the old or the new
//! one is there, whole. It is read once, at start.

use std::collections::BTreeMap;

use hubbub_core::Timestamp;
use hubbub_core::invariant::saturate;

use crate::embedded::disk::{Disk, read_whole, write_whole};
use crate::embedded::error::{DoingOn, MaintainError, OpenError};
use crate::embedded::file::{Cursor, varint};
use crate::embedded::kv::KeyCatalog;
use crate::embedded::queues::Files;

pub(crate) const MANIFEST: &str = "MANIFEST";
const MANIFEST_TMP: &str = "MANIFEST.tmp";
const MAGIC: [u8; 8] = *b"HubMani\n";
const HEADER_BYTES: usize = 12;

/// Version written, and the only one read.
const VERSION: u32 = 4;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) epoch: u64,
    /// Key of the id hashes in segments and filters.
    pub(crate) id_key: [u64; 2],
    /// Where checksums of journal blocks start.
    pub(crate) block_seed: u32,
    /// Journals up to this one are in segments; their slots are free.
    pub(crate) applied: u64,
    pub(crate) next_segment: u64,
    /// Open for writing without waiting for the disk; still set at the next start when it did not end in order.
    pub(crate) unsynced: bool,
    /// Segments that count, in the order of what they hold.
    pub(crate) segments: Vec<u64>,
    pub(crate) keys: KeyCatalog,
    pub(crate) queues: Files,
    /// The last time that was proven ([`hubbub_core::Clock::proven`]) when this was written; `None` = never.
    pub(crate) proven: Option<Timestamp>,
    /// Of segments with messages whose times had not come yet: a time by which the segment was there, in microseconds.
    /// They are no younger than that, whatever their messages say.
    pub(crate) there_by: BTreeMap<u64, i64>,
    /// All rooms, as bytes. Empty but for the moments of reading and writing.
    pub(crate) rooms: Vec<u8>,
}

impl Manifest {
    /// The history's id, as clients see it.
    pub(crate) fn epoch(&self) -> String {
        format!("{:016x}", self.epoch)
    }

    pub(crate) fn load(disk: &dyn Disk) -> Result<Option<Self>, OpenError> {
        let Some(bytes) = read_whole(disk, MANIFEST, u64::MAX)? else { return Ok(None) };
        Self::decode(&bytes).map(Some)
    }

    pub(crate) fn store(&self, disk: &dyn Disk) -> Result<(), MaintainError> {
        write_whole(disk, MANIFEST_TMP, &self.encode())?;
        disk.rename(MANIFEST_TMP, MANIFEST).doing("replacing", MANIFEST)?;
        disk.sync_dir("").doing("syncing the directory of", MANIFEST)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(1_024 + self.rooms.len());
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&VERSION.to_le_bytes());
        let [key, key2] = self.id_key;
        for number in [
            self.epoch,
            key,
            key2,
            self.block_seed.into(),
            self.applied,
            self.next_segment,
            self.unsynced.into(),
        ] {
            varint::write(number, &mut out);
        }
        varint::write_list(&self.segments, &mut out);
        self.keys.write(&mut out);
        varint::write(self.queues.snapshot, &mut out);
        varint::write_list(&self.queues.texts, &mut out);
        varint::write_list(&self.queues.ids, &mut out);
        // Times before 1970 are stored as 1970.
        let positive = |time: i64| saturate::<_, u64>(time);
        varint::write(self.proven.map_or(0, |time| positive(time.as_micros()).saturating_add(1)), &mut out);
        varint::write(self.there_by.len() as u64, &mut out);
        for (segment, time) in &self.there_by {
            varint::write(*segment, &mut out);
            varint::write(positive(*time), &mut out);
        }
        out.extend_from_slice(&self.rooms);
        let crc = crc32c::crc32c(out.get(HEADER_BYTES..).unwrap_or_default());
        if let Some(place) = out.get_mut(MAGIC.len()..HEADER_BYTES) {
            place.copy_from_slice(&crc.to_le_bytes());
        }
        out
    }

    fn decode(bytes: &[u8]) -> Result<Self, OpenError> {
        let damaged = |what: &str| OpenError::damaged(MANIFEST, 0, what);
        let (cut, mut from) = (|| damaged("it is cut short"), Cursor::new(bytes));
        let (magic, crc) = (from.array().ok_or_else(cut)?, from.u32().ok_or_else(cut)?);
        if magic != MAGIC {
            return Err(damaged("it does not begin like a manifest"));
        }
        if crc32c::crc32c(from.rest()) != crc {
            return Err(damaged("its checksum is wrong"));
        }
        let version = from.u32().ok_or_else(cut)?;
        if version > VERSION {
            return Err(OpenError::NewerFormat { found: version.into(), known: VERSION.into() });
        }
        if version < VERSION {
            return Err(damaged(
                "it was written by a version before the first release, which is not read any more",
            ));
        }
        Self::decode_body(&mut from.rest()).ok_or_else(|| damaged("its parts do not fit together"))
    }

    fn decode_body(input: &mut &[u8]) -> Option<Self> {
        let mut manifest = Self {
            epoch: varint::read(input)?,
            id_key: [varint::read(input)?, varint::read(input)?],
            block_seed: u32::try_from(varint::read(input)?).ok()?,
            applied: varint::read(input)?,
            next_segment: varint::read(input)?,
            unsynced: varint::read(input)? != 0,
            segments: varint::read_list(input)?,
            keys: KeyCatalog::read(input)?,
            queues: Files {
                snapshot: varint::read(input)?,
                texts: varint::read_list(input)?,
                ids: varint::read_list(input)?,
            },
            proven: None,
            there_by: BTreeMap::new(),
            rooms: Vec::new(),
        };
        let time = |micros| Some(Timestamp::from_micros(i64::try_from(micros).ok()?));
        manifest.proven =
            varint::read(input)?.checked_sub(1).map(time).map_or(Some(None), |time| time.map(Some))?;
        for _ in 0..varint::read(input)? {
            let segment = varint::read(input)?;
            manifest.there_by.insert(segment, i64::try_from(varint::read(input)?).ok()?);
        }
        manifest.rooms = input.to_vec();
        Some(manifest)
    }
}

/// Whether the manifest on the disk may name what a change of it was to name. After an error that is so unless the
/// error came before the old manifest was touched: nobody knows then which of the two is on the disk, until a later
/// replacement succeeds or a restart writes the one it finds again. Until then no file that either names is
/// overwritten or removed; so numbers of such files are not used again.
pub(crate) fn may_be_named<T>(changed: &Result<T, MaintainError>) -> bool {
    !matches!(changed, Err(MaintainError::Io { path, .. }) if path == MANIFEST_TMP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_damage_is_seen() {
        let manifest = Manifest {
            epoch: 77,
            id_key: [u64::MAX, 2],
            block_seed: 9,
            applied: 4,
            next_segment: 3,
            unsynced: true,
            segments: vec![1, 2],
            keys: KeyCatalog { next_number: 8, runs: vec![3, 7], log: 7, revision: 1 << 40, keys: 99 },
            queues: Files { snapshot: 7, texts: vec![5, 300], ids: vec![9, 6] },
            proven: Some(Timestamp::from_micros(1_800_000_000_000_000)),
            there_by: [(2, 1_700_000_000_000_000)].into(),
            rooms: b"as rooms are written".to_vec(),
        };
        let bytes = manifest.encode();
        assert_eq!(Manifest::decode(&bytes).unwrap(), manifest);
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 4;
            assert!(Manifest::decode(&other).is_err(), "byte {at}");
            assert!(Manifest::decode(&bytes[..at]).is_err(), "cut at {at}");
        }
    }
}
