//! The names of files: what the directories have for certain, and the changes that they may have or not.

use std::collections::BTreeMap;

use hubbub_core::RandomSource;

use super::below;

#[derive(Debug, Clone)]
enum Change {
    Link(String, u64),
    Rename(String, String),
    Remove(String),
}

#[derive(Debug, Clone, Default)]
struct Directory {
    durable: BTreeMap<String, u64>,
    current: BTreeMap<String, u64>,
    /// In order. A crash keeps a beginning of them.
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
        self.change(dir, Change::Link(name.into(), inode));
    }

    /// Both names are in one directory; the engine knows no other renames.
    pub(super) fn rename(&mut self, from: &str, to: &str) {
        let (dir, name) = split(from);
        self.change(dir, Change::Rename(name.into(), split(to).1.into()));
    }

    pub(super) fn remove(&mut self, path: &str) {
        let (dir, name) = split(path);
        self.change(dir, Change::Remove(name.into()));
    }

    pub(super) fn sync(&mut self, dir: &str) {
        if let Some(dir) = self.directories.get_mut(dir) {
            dir.pending.clear();
            dir.durable = dir.current.clone();
        }
    }

    /// Loses any end of the changes of each directory.
    pub(super) fn crash(&mut self, random: &dyn RandomSource) {
        for dir in self.directories.values_mut() {
            let kept = usize::try_from(below(random, dir.pending.len() as u64 + 1)).unwrap_or(0);
            for change in std::mem::take(&mut dir.pending).into_iter().take(kept) {
                apply(&mut dir.durable, change);
            }
            dir.current = dir.durable.clone();
        }
    }

    /// Every file that has a name.
    pub(super) fn current(&self) -> impl Iterator<Item = u64> {
        self.directories.values().flat_map(|dir| dir.current.values()).copied()
    }

    /// Every file that has a name, or had one that a crash may bring back.
    pub(super) fn inodes(&self) -> impl Iterator<Item = u64> {
        self.directories.values().flat_map(|dir| dir.current.values().chain(dir.durable.values())).copied()
    }

    fn change(&mut self, dir: &str, change: Change) {
        let dir = self.directories.entry(dir.into()).or_default();
        apply(&mut dir.current, change.clone());
        dir.pending.push(change);
    }
}

fn apply(names: &mut BTreeMap<String, u64>, change: Change) {
    match change {
        Change::Link(name, inode) => {
            names.insert(name, inode);
        }
        Change::Rename(from, to) => {
            if let Some(inode) = names.remove(&from) {
                names.insert(to, inode);
            }
        }
        Change::Remove(name) => {
            names.remove(&name);
        }
    }
}
