//! The names of files: what the directories have for certain, and the changes that they may have or not.

use std::collections::BTreeMap;

use hubbub_core::RandomSource;

use super::below;

/// What one operation does to a directory: names and what they name afterwards.
#[derive(Debug, Clone)]
struct Change(Vec<(String, Option<u64>)>);

#[derive(Debug, Clone, Default)]
struct Directory {
    durable: BTreeMap<String, u64>,
    current: BTreeMap<String, u64>,
    /// Changes that the next sync makes durable, in order. A crash keeps a beginning of them. Those of a failed sync are
    /// not among them any more.
    pending: Vec<Change>,
}

/// All directories.
#[derive(Debug, Clone, Default)]
pub(super) struct Names {
    directories: BTreeMap<String, Directory>,
}

/// Directory and name of a path.
pub(super) fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

impl Names {
    pub(super) fn get(&self, path: &str) -> Option<u64> {
        let (dir, name) = split(path);
        self.directories.get(dir)?.current.get(name).copied()
    }

    pub(super) fn list(&self, dir: &str) -> Vec<String> {
        self.directories.get(dir).map(|dir| dir.current.keys().cloned().collect()).unwrap_or_default()
    }

    pub(super) fn link(&mut self, path: &str, inode: u64) {
        let (dir, name) = split(path);
        self.change(dir, vec![(name.into(), Some(inode))]);
    }

    /// Both names are in one directory; the engine knows no other renames.
    pub(super) fn rename(&mut self, from: &str, to: &str) {
        let (dir, name) = split(from);
        let inode = self.get(from);
        self.change(dir, vec![(name.into(), None), (split(to).1.into(), inode)]);
    }

    pub(super) fn remove(&mut self, path: &str) {
        let (dir, name) = split(path);
        self.change(dir, vec![(name.into(), None)]);
    }

    pub(super) fn sync(&mut self, dir: &str) {
        if let Some(dir) = self.directories.get_mut(dir) {
            for change in std::mem::take(&mut dir.pending) {
                apply(&mut dir.durable, change);
            }
        }
    }

    /// A sync of a directory fails: any beginning of its changes is durable, and no later sync writes the others.
    pub(super) fn fail_sync(&mut self, dir: &str, random: &dyn RandomSource) {
        if let Some(dir) = self.directories.get_mut(dir) {
            dir.keep_beginning(random);
        }
    }

    /// Loses any end of the changes of each directory.
    pub(super) fn crash(&mut self, random: &dyn RandomSource) {
        for dir in self.directories.values_mut() {
            dir.keep_beginning(random);
            dir.current = dir.durable.clone();
        }
    }

    /// Every file that has a name.
    pub(super) fn current(&self) -> impl Iterator<Item = u64> {
        self.directories.values().flat_map(|dir| dir.current.values()).copied()
    }

    /// Every file that has a name, or had one that a crash may bring back.
    pub(super) fn inodes(&self) -> impl Iterator<Item = u64> {
        self.directories.values().flat_map(|dir| {
            let pending = dir.pending.iter().flat_map(|change| &change.0).filter_map(|(_, inode)| *inode);
            dir.current.values().chain(dir.durable.values()).copied().chain(pending)
        })
    }

    fn change(&mut self, dir: &str, names: Vec<(String, Option<u64>)>) {
        let dir = self.directories.entry(dir.into()).or_default();
        let change = Change(names);
        apply(&mut dir.current, change.clone());
        dir.pending.push(change);
    }
}

impl Directory {
    /// Makes any beginning of the pending changes durable and forgets the others.
    fn keep_beginning(&mut self, random: &dyn RandomSource) {
        let kept = usize::try_from(below(random, self.pending.len() as u64 + 1)).unwrap_or(0);
        for change in std::mem::take(&mut self.pending).into_iter().take(kept) {
            apply(&mut self.durable, change);
        }
    }
}

fn apply(names: &mut BTreeMap<String, u64>, change: Change) {
    for (name, inode) in change.0 {
        match inode {
            Some(inode) => names.insert(name, inode),
            None => names.remove(&name),
        };
    }
}
