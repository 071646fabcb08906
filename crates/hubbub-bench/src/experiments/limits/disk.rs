//! How fast this disk makes small writes durable, in a file that already has its blocks.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use hubbub_core::invariant::saturate;

use crate::host::machine::scratch;
use crate::results::record::{Dist, Stats};

const FILE_BYTES: usize = 64 * 1024 * 1024;

/// A file filled with zeros once, so that a sync has no file size to make durable.
pub(crate) struct ZeroFilled {
    file: File,
    _dir: tempfile::TempDir,
}

impl ZeroFilled {
    pub(crate) fn make(dir: &Path) -> anyhow::Result<Self> {
        let dir = scratch("hubbub-limits-", dir)?;
        let file = File::create(dir.path().join("journal"))?;
        let zeros = vec![0; 1024 * 1024];
        for at in (0..FILE_BYTES).step_by(zeros.len()) {
            file.write_all_at(&zeros, at as u64)?;
        }
        file.sync_all()?;
        Ok(Self { file, _dir: dir })
    }

    /// Writes blocks one after another, syncing each, for some time: how many per second, and how long each took.
    pub(super) fn sync_blocks(&self, block_bytes: usize, time: Duration) -> anyhow::Result<(f64, Stats)> {
        let block: Vec<u8> = (0..block_bytes).map(|index| (index * 31 % 251) as u8).collect();
        let mut dist = Dist::default();
        let (begun, mut at) = (Instant::now(), 0);
        while begun.elapsed() < time {
            let one = Instant::now();
            at = self.write_durably(&block, at)?;
            dist.add(saturate(one.elapsed().as_micros()));
        }
        Ok((dist.len() as f64 / begun.elapsed().as_secs_f64(), dist.stats()))
    }

    /// Writes a block at `at`, or at the start of the file where it does not fit there, and syncs it; tells where it ends.
    pub(crate) fn write_durably(&self, block: &[u8], at: usize) -> io::Result<usize> {
        let at = if at + block.len() > FILE_BYTES { 0 } else { at };
        self.file.write_all_at(block, at as u64)?;
        self.file.sync_data()?;
        Ok(at + block.len())
    }
}
