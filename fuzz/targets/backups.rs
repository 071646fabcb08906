//! Backups: the list of files, and the files of one that are restored and opened. The first line of an input is `list`, and
//! the list follows; or `files`, and patches of one file follow as in `store`. Checksums are all 0 here, so what is patched
//! reaches the decoders. Nothing is ever written outside of the new directory.

#![no_main]

#[path = "support/data.rs"]
mod data;

use std::path::Path;
use std::sync::LazyLock;

use hubbub_core::Store;
use hubbub_core::backup::BackupFile;
use hubbub_core::Timestamp;
use hubbub_core::clock::{ManualClock, SeededRandom};
use hubbub_store::embedded::{restore, verify};
use libfuzzer_sys::fuzz_target;

use data::{Content, fill, open, patch, write_all};

/// The command line's own file, of which this uses a part.
#[allow(dead_code, unreachable_pub, reason = "only lists are read here")]
#[path = "."]
mod admin {
    #[derive(Debug)]
    pub struct DamagedError(pub String);

    impl std::fmt::Display for DamagedError {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str(&self.0)
        }
    }

    impl std::error::Error for DamagedError {}

    #[path = "../../crates/hubbub/src/admin/catalog.rs"]
    mod catalog;

    /// The files that the list of a backup names, if it can be read.
    pub fn files(dir: &std::path::Path) -> Option<Vec<hubbub_core::backup::BackupFile>> {
        Some(catalog::Listing::read(dir).ok()??.files)
    }
}

struct Backup {
    files: Vec<Content>,
    list: Vec<BackupFile>,
}

static GOOD: LazyLock<Backup> = LazyLock::new(|| {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    let store = open(dir.path()).expect("a new store");
    fill(&store);
    let engine = store.engine();
    let info = engine.begin_backup("good").expect("a backup");
    let mut files = Vec::new();
    for file in &info.files {
        let bytes = engine.read_backup("good", &file.name, 0, usize::MAX).expect("it can be read");
        files.push((file.name.clone().into(), bytes.expect("it is there")));
    }
    Backup { files, list: info.files }
});

/// Restores the backup `from` by a list; what was restored is opened.
fn restore_by(from: &Path, list: &[BackupFile]) {
    let to = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    if restore(from, &to.path().join("data"), list, (&ManualClock::at(Timestamp::from_micros(7)), &SeededRandom::new(5)), &|_| {}).is_ok() {
        let data = to.path().join("data");
        let _ = verify(&data, &mut |_| {}, &|_| {});
        if let Some(store) = open(&data) {
            store.close();
        }
    }
    let found = std::fs::read_dir(to.path()).expect("it is there").count();
    assert!(found <= 1, "something was written beside the new directory");
}

fuzz_target!(|input: &[u8]| {
    let good = &*GOOD;
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    let backup = dir.path().join("backup");
    if let Some(list) = input.strip_prefix(b"list\n") {
        write_all(&backup, &good.files, None);
        std::fs::write(backup.join("backup.json"), list).expect("a file");
        if let Some(list) = admin::files(&backup) {
            restore_by(&backup, &list);
        }
    } else if let Some([which, patches @ ..]) = input.strip_prefix(b"files\n") {
        let which = usize::from(*which) % good.files.len();
        write_all(&backup, &good.files, Some((which, patches)));
        let mut list = good.list.clone();
        // A file that was cut is found by its length, unless the list has it, too.
        let mut content = good.files[which].1.clone();
        patch(&mut content, patches);
        list[which].bytes = content.len() as u64;
        restore_by(&backup, &list);
    }
});
