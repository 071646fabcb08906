//! Which process started which, the processor time of one with all that it started, and who listens on a port, from `/proc`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::host::machine::seconds_at;

/// The first process of a tree. An id may be given again, so the time it was started at, in ticks, is part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TreeRoot {
    id: u32,
    started: u64,
}

#[derive(Debug)]
struct Process {
    parent: u32,
    started: u64,
    /// Processor time, with that of its children that have ended, once it waited for them.
    seconds: f64,
}

impl Process {
    /// From its `/proc/PID/stat`.
    fn parse(stat: &str) -> Option<Self> {
        let seconds = seconds_at(stat, [11, 12])? + seconds_at(stat, [13, 14])?;
        // The name in parentheses may hold spaces.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let (parent, started) = (fields.nth(1)?.parse().ok()?, fields.nth(17)?.parse().ok()?);
        Some(Self { parent, started, seconds })
    }
}

/// All processes of one moment, by their ids.
#[derive(Debug)]
pub(crate) struct Processes(BTreeMap<u32, Process>);

impl Processes {
    pub(crate) fn now() -> Self {
        let read = |id| Process::parse(&fs::read_to_string(format!("/proc/{id}/stat")).ok()?);
        Self(ids().into_iter().filter_map(|id| Some((id, read(id)?))).collect())
    }

    /// From the `stat` of each.
    #[cfg(test)]
    pub(crate) fn parse<'s>(all: impl IntoIterator<Item = (u32, &'s str)>) -> Self {
        Self(all.into_iter().filter_map(|(id, stat)| Some((id, Process::parse(stat)?))).collect())
    }

    /// The topmost of `roots` among a process and those that it descends from.
    fn root_of(&self, id: u32, roots: &[u32]) -> Option<u32> {
        let line = std::iter::successors(Some(id), |id| self.0.get(id).map(|process| process.parent));
        // Read one after another, parents need not be those of one moment: the line is no longer than all of them.
        line.take(self.0.len()).filter(|id| roots.contains(id)).last()
    }

    /// These and all that descend from them.
    pub(crate) fn all_of(&self, roots: &[u32]) -> Vec<u32> {
        self.0.keys().copied().filter(|id| self.root_of(*id, roots).is_some()).collect()
    }

    /// Processor time, in seconds, of each root with all that descend from it. A root below another counts with that one.
    pub(crate) fn seconds_of(&self, roots: &[u32]) -> BTreeMap<TreeRoot, f64> {
        let mut trees = BTreeMap::new();
        for (id, process) in &self.0 {
            let root = self.root_of(*id, roots);
            if let Some((id, started)) = root.and_then(|id| Some((id, self.0.get(&id)?.started))) {
                *trees.entry(TreeRoot { id, started }).or_default() += process.seconds;
            }
        }
        trees
    }
}

/// All processes that can be seen.
pub(crate) fn ids() -> BTreeSet<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The processes that listen on a TCP port of this machine, as far as they can be seen: workers may share a socket, or have
/// one each.
pub(crate) fn listening_on(port: u16) -> Vec<u32> {
    const LISTENS: &str = "0A";
    let tables =
        ["tcp", "tcp6"].map(|table| fs::read_to_string(format!("/proc/net/{table}")).unwrap_or_default());
    let socket = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let here = fields.get(1)?.rsplit_once(':')?.1;
        let is_it = u16::from_str_radix(here, 16) == Ok(port) && *fields.get(3)? == LISTENS;
        is_it.then(|| fields.get(9).map(|inode| format!("socket:[{inode}]")))?
    };
    let sockets: Vec<String> = tables.iter().flat_map(|table| table.lines()).filter_map(socket).collect();
    if sockets.is_empty() {
        return Vec::new();
    }
    let has_one = |id: &u32| {
        let mut files = fs::read_dir(format!("/proc/{id}/fd")).into_iter().flatten().flatten();
        files.any(|file| {
            fs::read_link(file.path())
                .is_ok_and(|to| sockets.iter().any(|socket| to.as_os_str() == socket.as_str()))
        })
    };
    ids().into_iter().filter(has_one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_are_found() {
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = server.local_addr().unwrap().port();
        assert_eq!(listening_on(port), [std::process::id()]);
        drop(server);
        assert_eq!(listening_on(port), Vec::<u32>::new());
    }

    #[test]
    fn the_time_of_a_tree_is_that_of_all_who_descend() {
        let stat = |id: u32, parent: u32, own: u32, waited: u32| {
            let zeros = "0 ".repeat(9);
            let text =
                format!("{id} (a (b) c) S {parent} {zeros}{own} 0 {waited} 0 20 0 1 0 {} 0", 1_000 + id);
            (id, Process::parse(&text).unwrap())
        };
        let processes = Processes(BTreeMap::from([
            stat(1, 0, 9_900, 0),
            // A database with a backend, and others of it that have ended.
            stat(10, 1, 100, 50),
            stat(11, 10, 200, 0),
            // A wrapper, what it started, and what that started.
            stat(20, 1, 1, 0),
            stat(21, 20, 2, 0),
            stat(22, 21, 4, 0),
            stat(30, 1, 5_000, 0),
        ]));
        let root = |id: u32| TreeRoot { id, started: u64::from(1_000 + id) };
        let found = processes.seconds_of(&[10, 20, 21, 99]);
        assert_eq!(found, BTreeMap::from([(root(10), 3.5), (root(20), 0.07)]));
        assert_eq!(processes.all_of(&[10, 21, 99]), [10, 11, 21, 22]);
        assert!(Process::parse("1 (x) S 1 2").is_none());
    }
}
