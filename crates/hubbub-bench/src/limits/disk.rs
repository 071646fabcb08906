//! How fast this disk makes small writes durable, in a file that already has its blocks.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use hubbub_core::invariant::saturate;

use crate::machine::scratch;
use crate::record::{Dist, Stats};

const FILE_BYTES: usize = 64 * 1024 * 1024;

/// A file filled with zeros once, so that a sync has no file size to make durable.
pub(super) struct ZeroFilled {
    file: File,
    _dir: tempfile::TempDir,
}

impl ZeroFilled {
    pub(super) fn make(dir: &Path) -> anyhow::Result<Self> {
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
            self.file.write_all_at(&block, at as u64)?;
            self.file.sync_data()?;
            dist.add(saturate(one.elapsed().as_micros()));
            at = if at + 2 * block_bytes > FILE_BYTES { 0 } else { at + block_bytes };
        }
        Ok((dist.len() as f64 / begun.elapsed().as_secs_f64(), dist.stats()))
    }
}
