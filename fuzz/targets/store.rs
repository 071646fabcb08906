//! Files of a data directory: manifest, journal, segments, runs, checkpoints of queues. An input is a list of patches of one
//! file. Checksums are all 0 here, so what is patched reaches the decoders.

#![no_main]

#[path = "support/data.rs"]
mod data;

use std::path::Path;
use std::sync::OnceLock;

use hubbub_core::Store;
use hubbub_store::embedded::verify;
use libfuzzer_sys::fuzz_target;

use data::{Content, fill, open, write_all};

static GOOD: OnceLock<Vec<Content>> = OnceLock::new();

fn files(root: &Path, dir: &Path, all: &mut Vec<Content>) {
    for entry in std::fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files(root, &path, all);
        } else {
            let content = std::fs::read(&path).expect("a file");
            all.push((path.strip_prefix(root).expect("it is below").to_owned(), content));
        }
    }
}

fn make() -> Vec<Content> {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    let store = open(dir.path()).expect("a new store");
    fill(&store);
    store.close();
    let mut all = Vec::new();
    files(dir.path(), dir.path(), &mut all);
    all.sort();
    for dir in ["journal", "segments", "kv", "queues"] {
        assert!(all.iter().any(|(path, _)| path.starts_with(dir)), "there is nothing in {dir}");
    }
    all.retain(|(path, _)| !path.ends_with("LOCK"));
    all
}

fuzz_target!(|input: &[u8]| {
    let good = GOOD.get_or_init(make);
    let [which, patches @ ..] = input else { return };
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    write_all(dir.path(), good, Some((usize::from(*which) % good.len(), patches)));
    let _ = verify(dir.path(), &mut |_| {}, &|_| {});
    if let Some(store) = open(dir.path()) {
        store.close();
    }
});
