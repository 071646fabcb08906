//! Writing the files of a backup: no faster than is allowed, and in small steps to the disk.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use crc32c::crc32c_append;
use tokio::time::{Instant, sleep_until};

/// Bytes between two syncs. Small, so that syncs of the server's journal do not wait for a large one.
const SYNC_BYTES: u64 = 1_000_000;

/// Time that may be made up for: as much as timers and syncs are late. Whatever took longer gives no right to write faster.
const LATE_MAX: Duration = Duration::from_millis(100);

/// Limits the rate of writing.
pub(super) struct Pace {
    /// When what was written would have ended at the rate.
    next: Instant,
    /// 0 = unlimited.
    bytes_per_second: u64,
}

impl Pace {
    pub(super) fn new(bytes_per_second: u64) -> Self {
        Self { next: Instant::now(), bytes_per_second }
    }

    /// When so many bytes may be written.
    fn turn(&mut self, now: Instant, bytes: usize) -> Instant {
        let begin = self.next.max(now.checked_sub(LATE_MAX).unwrap_or(now));
        let micros = (bytes as u64).saturating_mul(1_000_000).checked_div(self.bytes_per_second);
        self.next = begin + Duration::from_micros(micros.unwrap_or(0));
        begin
    }
}

/// A file that is written.
pub(super) struct Writing {
    path: PathBuf,
    file: File,
    bytes: u64,
    synced: u64,
    crc: u32,
}

impl Writing {
    pub(super) fn create(path: &Path) -> anyhow::Result<Self> {
        let file = File::create(path).with_context(|| format!("creating {}", path.display()))?;
        Ok(Self { path: path.to_owned(), file, bytes: 0, synced: 0, crc: 0 })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Waits for its turn, and writes.
    pub(super) async fn add(&mut self, piece: &[u8], pace: &mut Pace) -> anyhow::Result<()> {
        sleep_until(pace.turn(Instant::now(), piece.len())).await;
        self.file.write_all(piece).with_context(|| format!("writing {}", self.path.display()))?;
        (self.bytes, self.crc) = (self.bytes + piece.len() as u64, crc32c_append(self.crc, piece));
        if self.bytes - self.synced >= SYNC_BYTES {
            self.synced = self.bytes;
            self.file.sync_data().with_context(|| format!("syncing {}", self.path.display()))?;
        }
        Ok(())
    }

    /// Makes it durable. Its length and checksum.
    pub(super) fn finish(self) -> anyhow::Result<(u64, u32)> {
        self.file.sync_all().with_context(|| format!("syncing {}", self.path.display()))?;
        Ok((self.bytes, self.crc))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_which_nothing_was_written_is_no_credit() {
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        let mut pace = Pace { next: begun, bytes_per_second: 1_000_000 };
        assert_eq!(pace.turn(at(0), 100_000), at(0));
        assert_eq!(pace.turn(at(1), 100_000), at(100));
        // A timer was late; that is made up for.
        assert_eq!(pace.turn(at(250), 100_000), at(200));
        // An hour of linking is not.
        let late = 3_600_000;
        let turns = [(); 30].map(|()| pace.turn(at(late), 100_000));
        assert_eq!(turns[29], at(late) - LATE_MAX + Duration::from_millis(2_900));
        let mut unlimited = Pace { next: begun, bytes_per_second: 0 };
        assert!((0..100).all(|_| unlimited.turn(at(5_000), usize::MAX) <= at(5_000)));
    }
}
