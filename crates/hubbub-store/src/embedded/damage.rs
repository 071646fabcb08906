//! Which stored files could not be read back: shown on `/health`, counted, and left alone by merges.
//!
//! Each read that fails is recorded here, whatever becomes of the operation. Nothing is taken
//! off the list before a restart: a medium that failed once is not to be trusted because a second read went well.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::embedded::error::MaintainError;

/// Files listed at most; the reads that meet others are still counted.
const FILES_MAX: usize = 1_000;

/// The files of one engine that could not be read, or not everywhere.
#[derive(Debug, Default)]
pub(crate) struct Damage {
    /// What the first failed read of each file said.
    files: Mutex<BTreeMap<String, String>>,
    reads: AtomicU64,
}

impl Damage {
    /// Notes what a failed read says. Errors of other kinds (a full disk, say) change nothing.
    pub(crate) fn note(&self, error: &MaintainError) {
        let Some(file) = error.unreadable_file() else { return };
        self.reads.fetch_add(1, Ordering::Relaxed);
        let mut files = self.files.lock();
        if files.len() < FILES_MAX && !files.contains_key(file) {
            tracing::error!("unreadable: {error}");
            files.insert(file.to_owned(), error.to_string());
        }
    }

    pub(crate) fn has(&self, file: &str) -> bool {
        self.reads() > 0 && self.files.lock().contains_key(file)
    }

    pub(crate) fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// What to tell whoever looks after the server; `None` when everything could be read.
    pub(crate) fn alarm(&self) -> Option<String> {
        if self.reads() == 0 {
            return None;
        }
        let files = self.files.lock();
        let first = files.values().next()?;
        let others = match files.len() - 1 {
            0 => String::new(),
            others => format!(", and {others} more files"),
        };
        Some(format!("{first}{others}; `hubbub verify` names every damaged place"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn only_failed_reads_are_noted() {
        let damage = Damage::default();
        let path = || "segments/7".to_owned();
        let full = io::Error::from(io::ErrorKind::StorageFull);
        damage.note(&MaintainError::Io { attempted: "writing", path: path(), source: full });
        assert_eq!((damage.alarm(), damage.reads(), damage.has("segments/7")), (None, 0, false));
        for offset in [5, 6] {
            damage.note(&MaintainError::Damaged { path: path(), offset });
        }
        damage.note(&MaintainError::Damaged { path: "segments/8".into(), offset: 1 });
        assert_eq!(damage.reads(), 3);
        assert!(damage.has("segments/7") && !damage.has("segments/9"));
        let alarm = damage.alarm().unwrap();
        assert!(alarm.starts_with("segments/7 is damaged at byte 5") && alarm.contains("1 more"), "{alarm}");
    }
}
