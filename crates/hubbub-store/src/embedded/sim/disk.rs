//! The simulated disk as the engine uses it.

use std::io;
use std::sync::Arc;

use super::SimDisk;
use super::inode::Inode;
use super::state::{State, Sync, count_down, sync_failed};
use crate::embedded::disk::{Disk, DiskFile};

impl SimDisk {
    fn handle(&self, path: &str, inode: u64, life: u64) -> Arc<dyn DiskFile> {
        Arc::new(SimFile { disk: self.clone(), path: path.to_owned(), inode, life })
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
        let before = self.state.lock().before_sync_of.take_if(|(awaited, _)| awaited == dir);
        if let Some((_, act)) = before {
            act();
        }
        let mut state = self.state.lock();
        match state.sync(dir)? {
            Sync::Done => state.names.sync(dir),
            Sync::Ignored => {}
            Sync::Fails(random) => {
                state.names.fail_sync(dir, &random);
                return Err(sync_failed());
            }
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
            if state.refuses_read(&self.path, offset, buffer.len() as u64) {
                return Err(io::Error::other("the medium failed"));
            }
            let is_damaged = state.damages_read(&self.path);
            let file = state.inodes.get(&inode).ok_or_else(gone)?;
            file.read(buffer, offset).ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
            let middle = buffer.len() / 2;
            if let Some(byte) = buffer.get_mut(middle).filter(|_| is_damaged) {
                *byte = !*byte;
            }
            Ok(())
        })
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.with(|state, inode| {
            state.alive()?;
            let under_way = state.change();
            let grown =
                (offset + bytes.len() as u64).saturating_sub(state.inodes.get(&inode).map_or(0, Inode::len));
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
            let outcome = state.sync(&self.path)?;
            let file = state.inodes.get_mut(&inode).ok_or_else(gone)?;
            match outcome {
                Sync::Done => file.sync(),
                Sync::Ignored => {}
                Sync::Fails(random) => {
                    file.fail_sync(&random);
                    return Err(sync_failed());
                }
            }
            Ok(())
        })
    }

    fn len(&self) -> io::Result<u64> {
        self.with(|state, inode| state.inodes.get(&inode).map(Inode::len).ok_or_else(gone))
    }
}
