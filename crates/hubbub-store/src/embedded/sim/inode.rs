//! The content of one file: what the disk has for certain, and the writes that it may have or not.

use hubbub_core::RandomSource;

use super::below;

/// What a disk writes whole or not at all.
const SECTOR_BYTES: u64 = 512;

#[derive(Debug, Clone)]
struct Write {
    offset: u64,
    bytes: Vec<u8>,
}

/// A file, by whatever name.
#[derive(Debug, Clone, Default)]
pub(super) struct Inode {
    /// What survives any crash.
    durable: Vec<u8>,
    /// What the running system sees.
    current: Vec<u8>,
    /// Writes that the next sync makes durable, in order. Those of a failed sync are not among them any more, though
    /// readers see them.
    pending: Vec<Write>,
}

impl Inode {
    pub(super) fn len(&self) -> u64 {
        self.current.len() as u64
    }

    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) -> Option<()> {
        let start = usize::try_from(offset).ok()?;
        let end = start.checked_add(buffer.len())?;
        buffer.copy_from_slice(self.current.get(start..end)?);
        Some(())
    }

    pub(super) fn write(&mut self, bytes: &[u8], offset: u64) {
        put(&mut self.current, bytes, offset);
        self.pending.push(Write { offset, bytes: bytes.to_vec() });
    }

    /// Changes a byte on the disk and for readers; a write that is not synced yet may still replace it.
    pub(super) fn flip(&mut self, offset: u64) {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        for content in [&mut self.durable, &mut self.current] {
            if let Some(byte) = content.get_mut(offset) {
                *byte = !*byte;
            }
        }
    }

    pub(super) fn sync(&mut self) {
        for write in std::mem::take(&mut self.pending) {
            put(&mut self.durable, &write.bytes, write.offset);
        }
    }

    /// Loses any part of what was not synced.
    pub(super) fn crash(&mut self, random: &dyn RandomSource) {
        self.fail_sync(random);
        self.current = self.durable.clone();
    }

    /// A sync fails: any part of what was not synced reaches the disk, and no later sync writes the rest, though readers
    /// go on seeing it. Each sector is as some of its writes left it, the length is any of those it had.
    pub(super) fn fail_sync(&mut self, random: &dyn RandomSource) {
        let writes = std::mem::take(&mut self.pending);
        if !writes.is_empty() {
            let old = self.durable.len() as u64;
            let kept = below(random, writes.len() as u64 + 1);
            let ends = writes.iter().take(usize::try_from(kept).unwrap_or(0));
            let length = ends.fold(old, |length, write| length.max(write.offset + write.bytes.len() as u64));
            self.durable.resize(usize::try_from(length).unwrap_or(usize::MAX), 0);
            let touched = writes.iter().map(|write| write.offset / SECTOR_BYTES).min().unwrap_or(0);
            // Often everything or nothing arrives, else sector by sector.
            let mood = below(random, 4);
            for sector in touched..length.div_ceil(SECTOR_BYTES) {
                let start = sector * SECTOR_BYTES;
                let range = start..(start + SECTOR_BYTES).min(length);
                for write in writes.iter().filter(|write| overlaps(write, &range)) {
                    let arrives = match mood {
                        0 => false,
                        1 => true,
                        _ => below(random, 3) > 0,
                    };
                    if !arrives {
                        break;
                    }
                    self.put_part(write, &range);
                }
            }
        }
    }

    /// Applies the part of a write that lies in `range`.
    fn put_part(&mut self, write: &Write, range: &std::ops::Range<u64>) {
        let start = range.start.max(write.offset);
        let end = range.end.min(write.offset + write.bytes.len() as u64);
        let from = usize::try_from(start - write.offset).unwrap_or(usize::MAX);
        let to = usize::try_from(end - write.offset).unwrap_or(usize::MAX);
        if let Some(part) = write.bytes.get(from..to) {
            put(&mut self.durable, part, start);
        }
    }
}

fn overlaps(write: &Write, range: &std::ops::Range<u64>) -> bool {
    write.offset < range.end && range.start < write.offset + write.bytes.len() as u64
}

fn put(content: &mut Vec<u8>, bytes: &[u8], offset: u64) {
    let start = usize::try_from(offset).unwrap_or(usize::MAX);
    let end = start.saturating_add(bytes.len());
    if content.len() < end {
        content.resize(end, 0);
    }
    if let Some(place) = content.get_mut(start..end) {
        place.copy_from_slice(bytes);
    }
}
