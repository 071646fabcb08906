//! What must be true of keys.

use super::Verifier;
use crate::embedded::error::OpenError;
use crate::embedded::file::FileError;
use crate::embedded::file::cache::BlockCache;
use crate::embedded::kv::{KeyRun, count_keys, read_log, run_path};
use crate::embedded::manifest::{MANIFEST, Manifest};
use crate::embedded::record::KeyChange;
use crate::embedded::segment::IdHasher;

impl Verifier<'_> {
    /// Runs must be readable, hold as many keys as the manifest says, and nothing newer than it knows.
    pub(super) fn keys(&mut self, manifest: &Manifest) -> Result<(), OpenError> {
        let catalog = &manifest.keys;
        let (hasher, cache) = (IdHasher::new(manifest.id_key), BlockCache::new(0));
        let (mut runs, mut errors): (_, Vec<FileError>) = (Vec::new(), Vec::new());
        for number in &catalog.runs {
            let run = match KeyRun::open(self.disk, *number, cache.clone()) {
                Ok(run) => run,
                Err(error) => {
                    errors.push(error);
                    continue;
                }
            };
            run.check(&hasher, &mut |error| errors.push(error));
            (self.progress)(run.bytes());
            if run.revision() > catalog.revision {
                self.damaged(&run_path(*number), 0, "it holds revisions that the manifest does not know");
            }
            runs.push(run);
        }
        if catalog.log != 0 {
            errors.extend(read_log(self.disk, catalog.log).err());
        }
        if errors.is_empty() {
            match count_keys(&runs) {
                Ok(keys) if keys == catalog.keys => {}
                Ok(keys) => {
                    let what = format!("its runs hold {keys} keys, it says {}", catalog.keys);
                    self.damaged(MANIFEST, 0, what);
                }
                Err(error) => errors.push(error),
            }
        }
        self.found.keys = catalog.keys;
        errors.into_iter().try_for_each(|error| self.report(error.into()))
    }

    /// A change in the journal must take a later revision than all before it.
    pub(super) fn key(&mut self, path: &str, offset: u32, change: &KeyChange<'_>) {
        if change.revision <= self.revision {
            self.damaged(path, offset.into(), format!("revision {} is out of order", change.revision));
        }
        self.revision = change.revision;
        self.found.keys = self.found.keys.saturating_add_signed(change.more_keys());
    }
}
