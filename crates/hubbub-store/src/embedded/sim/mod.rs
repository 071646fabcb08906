//! A disk in memory that a seed makes crash: it keeps, loses or tears whatever was not synced.
//!
//! What a crash may leave is what [`Disk`](super::disk::Disk) says and no more: each unsynced sector of 512 bytes as
//! any of its writes left it, the changes of a directory since its last sync up to any point. Besides crashes, an
//! operation can fail, the disk can be full, and chosen syncs can be ignored, to see that somebody misses them.

mod inode;
mod names;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use hubbub_core::RandomSource;
use hubbub_core::clock::SeededRandom;
use parking_lot::Mutex;

use super::disk::{Disk, DiskFile};
use inode::Inode;
use names::Names;

/// A number below `end`, or 0.
fn below(random: &dyn RandomSource, end: u64) -> u64 {
    random.next_u64().checked_rem(end).unwrap_or(0)
}

/// A sync, as a rule about which ones to ignore sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyncCall<'a> {
    /// What the simulation said it is doing; see [`SimDisk::set_phase`].
    pub phase: &'static str,
    /// The file or directory synced.
    pub path: &'a str,
    /// How many times it was synced before in this phase.
    pub nth: u64,
}

type IgnoreRule = Box<dyn Fn(SyncCall<'_>) -> bool + Send>;

#[derive(Default)]
struct State {
    names: Names,
    inodes: BTreeMap<u64, Inode>,
    next_inode: u64,
    /// Handles of an earlier life do not work any more.
    life: u64,
    dead: bool,
    operations: u64,
    crash_at: Option<u64>,
    fail_write_in: Option<u64>,
    fail_sync_in: Option<u64>,
    bytes_max: Option<u64>,
    phase: &'static str,
    syncs_in_phase: BTreeMap<String, u64>,
    ignore: Option<IgnoreRule>,
}

/// The simulated disk. Clones are the same disk.
#[derive(Clone, Default)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

impl std::fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state.lock();
        f.debug_struct("SimDisk").field("operations", &state.operations).field("dead", &state.dead).finish_non_exhaustive()
    }
}

impl SimDisk {
    /// An empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many operations that change something there were.
    pub fn operations(&self) -> u64 {
        self.state.lock().operations
    }

    /// The power fails at the `operations`-th changing operation from now: it and all after it are errors, until
    /// [`Self::crash`].
    pub fn crash_in(&self, operations: u64) {
        let mut state = self.state.lock();
        state.crash_at = Some(state.operations + operations);
    }

    /// Whether the power failed.
    pub fn is_dead(&self) -> bool {
        self.state.lock().dead
    }

    /// The power comes back: what was not synced is there, or not, or torn, as `seed` says. Open files are closed.
    pub fn crash(&self, seed: u64) {
        let random = SeededRandom::new(seed);
        let mut state = self.state.lock();
        state.names.crash(&random);
        for inode in state.inodes.values_mut() {
            inode.crash(&random);
        }
        state.start_again();
    }

    /// The process ends, the machine does not: nothing is lost, nothing more is durable. Open files are closed.
    pub fn kill(&self) {
        self.state.lock().start_again();
    }

    /// The `writes`-th write from now fails, once, and may be there in part.
    pub fn fail_write_in(&self, writes: u64) {
        self.state.lock().fail_write_in = Some(writes);
    }

    /// The `syncs`-th sync from now fails, once.
    pub fn fail_sync_in(&self, syncs: u64) {
        self.state.lock().fail_sync_in = Some(syncs);
    }

    /// The disk holds at most so many bytes; `None` = any number.
    pub fn set_bytes_max(&self, bytes: Option<u64>) {
        self.state.lock().bytes_max = bytes;
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.state.lock().bytes()
    }

    /// Says what the simulation does from now on; for [`Self::ignore_syncs`].
    pub fn set_phase(&self, phase: &'static str) {
        let mut state = self.state.lock();
        state.phase = phase;
        state.syncs_in_phase.clear();
    }

    /// Syncs for which `rule` holds succeed without doing anything.
    pub fn ignore_syncs(&self, rule: impl Fn(SyncCall<'_>) -> bool + Send + 'static) {
        self.state.lock().ignore = Some(Box::new(rule));
    }

    /// Changes one byte of a file, as a broken disk would.
    pub fn flip(&self, path: &str, offset: u64) {
        let mut state = self.state.lock();
        let Some(inode) = state.names.get(path) else { return };
        if let Some(inode) = state.inodes.get_mut(&inode) {
            let mut byte = [0];
            if inode.read(&mut byte, offset).is_some() {
                inode.write(&byte.map(|byte| !byte), offset);
                inode.sync();
            }
        }
    }

    fn handle(&self, path: &str, inode: u64, life: u64) -> Arc<dyn DiskFile> {
        Arc::new(SimFile { disk: self.clone(), path: path.to_owned(), inode, life })
    }
}

impl State {
    fn start_again(&mut self) {
        self.life += 1;
        self.dead = false;
        self.crash_at = None;
        let named: std::collections::BTreeSet<u64> = self.names.inodes().collect();
        self.inodes.retain(|inode, _| named.contains(inode));
    }

    fn bytes(&self) -> u64 {
        self.names.current().filter_map(|inode| self.inodes.get(&inode)).map(Inode::len).sum()
    }

    fn alive(&self) -> io::Result<()> {
        if self.dead { Err(io::Error::other("the power is off")) } else { Ok(()) }
    }

    /// Before an operation that changes something.
    fn change(&mut self) -> io::Result<()> {
        self.alive()?;
        self.operations += 1;
        if self.crash_at.is_some_and(|at| self.operations >= at) {
            self.dead = true;
        }
        self.alive()
    }

    /// Whether the sync that is due is to do anything.
    fn sync(&mut self, path: &str) -> io::Result<bool> {
        self.change()?;
        if count_down(&mut self.fail_sync_in) {
            return Err(io::Error::other("the sync failed"));
        }
        let count = self.syncs_in_phase.entry(path.to_owned()).or_default();
        let call = SyncCall { phase: self.phase, path, nth: *count };
        *count += 1;
        Ok(!self.ignore.as_ref().is_some_and(|rule| rule(call)))
    }

    fn find(&self, path: &str) -> io::Result<u64> {
        self.names.get(path).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }
}

fn count_down(counter: &mut Option<u64>) -> bool {
    match counter {
        Some(0 | 1) => {
            *counter = None;
            true
        }
        Some(left) => {
            *left -= 1;
            false
        }
        None => false,
    }
}

impl Disk for SimDisk {
    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        let state = self.state.lock();
        state.alive()?;
        Ok(self.handle(path, state.find(path)?, state.life))
    }

    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.state.lock();
        state.change()?;
        let inode = state.next_inode;
        state.next_inode += 1;
        state.inodes.insert(inode, Inode::default());
        state.names.link(path, inode);
        Ok(self.handle(path, inode, state.life))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        state.change()?;
        state.find(from)?;
        state.names.rename(from, to);
        Ok(())
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        state.change()?;
        state.find(path)?;
        state.names.remove(path);
        Ok(())
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let state = self.state.lock();
        state.alive()?;
        Ok(state.names.list(dir))
    }

    fn make_dir(&self, _dir: &str) -> io::Result<()> {
        self.state.lock().alive()
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.sync(dir)? {
            state.names.sync(dir);
        }
        Ok(())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let state = self.state.lock();
        Ok(state.bytes_max.map_or(u64::MAX, |max| max.saturating_sub(state.bytes())))
    }
}

struct SimFile {
    disk: SimDisk,
    path: String,
    inode: u64,
    life: u64,
}

impl SimFile {
    fn with<T>(&self, act: impl FnOnce(&mut State, u64) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.disk.state.lock();
        if state.life != self.life {
            return Err(io::Error::other("the file was open in an earlier life"));
        }
        act(&mut state, self.inode)
    }
}

fn gone() -> io::Error {
    io::Error::from(io::ErrorKind::NotFound)
}

impl DiskFile for SimFile {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.with(|state, inode| {
            state.alive()?;
            let file = state.inodes.get(&inode).ok_or_else(gone)?;
            file.read(buffer, offset).ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))
        })
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.with(|state, inode| {
            state.alive()?;
            let under_way = state.change();
            let grown = (offset + bytes.len() as u64)
                .saturating_sub(state.inodes.get(&inode).map_or(0, Inode::len));
            if state.bytes_max.is_some_and(|max| state.bytes() + grown > max && grown > 0) {
                return Err(io::Error::from(io::ErrorKind::StorageFull));
            }
            let fails = count_down(&mut state.fail_write_in);
            let file = state.inodes.get_mut(&inode).ok_or_else(gone)?;
            // The write under way when the power fails may have reached the disk in part, a failed one too.
            let part = if fails { bytes.get(..bytes.len() / 2).unwrap_or_default() } else { bytes };
            file.write(part, offset);
            if fails { Err(io::Error::other("the write failed")) } else { under_way }
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        self.with(|state, inode| {
            if state.sync(&self.path)? {
                state.inodes.get_mut(&inode).ok_or_else(gone)?.sync();
            }
            Ok(())
        })
    }

    fn len(&self) -> io::Result<u64> {
        self.with(|state, inode| state.inodes.get(&inode).map(Inode::len).ok_or_else(gone))
    }
}
