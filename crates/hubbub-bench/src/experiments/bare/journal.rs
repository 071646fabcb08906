//! Group commit and nothing else: what comes while a write is being synced goes with the next one. What the disk allows
//! a server that answers only what is durable.
//!
//! Connections append to the open chunk → one thread writes it, syncs it, and counts it as durable → one task wakes the
//! connections of the chunk, so that the thread goes on with the next.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Poll, Waker};

use parking_lot::{Condvar, Mutex};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::experiments::limits::disk::ZeroFilled;

/// Chunks whose connections are still to be woken.
const TO_WAKE: usize = 4;

/// Bytes that are written together.
#[derive(Default)]
struct Chunk {
    number: u64,
    bytes: Vec<u8>,
    waiting: Vec<Waker>,
}

#[derive(Default)]
struct Shared {
    open: Mutex<Chunk>,
    filled: Condvar,
    /// Chunks below this number are durable.
    durable: AtomicU64,
    has_failed: AtomicBool,
    is_closed: AtomicBool,
}

/// A file of a fixed size that is overwritten from its start when it is full. It is gone when this is dropped.
pub(crate) struct Journal(Arc<Shared>);

impl Journal {
    /// In a directory of its own below `dir`.
    pub(crate) fn open(dir: &Path) -> anyhow::Result<Self> {
        let file = ZeroFilled::make(dir)?;
        let shared = Arc::<Shared>::default();
        let (sender, receiver) = channel(TO_WAKE);
        let committing = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("commit".into())
            .spawn(move || commit(&committing, file, &sender))?;
        tokio::spawn(wake(receiver));
        Ok(Self(shared))
    }

    /// Adds bytes to the open chunk; `waker` is woken when they are durable, or cannot be. The answer is the number to ask
    /// for.
    pub(super) fn append(&self, bytes: &[u8], waker: Waker) -> u64 {
        let mut open = self.0.open.lock();
        open.bytes.extend_from_slice(bytes);
        open.waiting.push(waker);
        self.0.filled.notify_one();
        open.number
    }

    /// Ready once the chunk of this number is durable.
    pub(super) fn poll_durable(&self, number: u64) -> Poll<io::Result<()>> {
        if self.0.durable.load(Ordering::Acquire) > number {
            Poll::Ready(Ok(()))
        } else if self.0.has_failed.load(Ordering::Acquire) {
            Poll::Ready(Err(io::Error::other("the journal could not be written")))
        } else {
            Poll::Pending
        }
    }

    /// Returns once these bytes are durable.
    pub(super) async fn keep(&self, bytes: &[u8]) -> io::Result<()> {
        let mut number = None;
        std::future::poll_fn(|cx| {
            let number = *number.get_or_insert_with(|| self.append(bytes, cx.waker().clone()));
            self.poll_durable(number)
        })
        .await
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        let _open = self.0.open.lock();
        self.0.is_closed.store(true, Ordering::Release);
        self.0.filled.notify_one();
    }
}

fn commit(shared: &Shared, file: ZeroFilled, woken: &Sender<Vec<Waker>>) {
    let mut chunk = Chunk::default();
    let mut at = 0;
    loop {
        chunk.bytes.clear();
        let mut open = shared.open.lock();
        while open.bytes.is_empty() && !shared.is_closed.load(Ordering::Acquire) {
            shared.filled.wait(&mut open);
        }
        if open.bytes.is_empty() {
            return;
        }
        chunk.number = open.number + 1;
        std::mem::swap(&mut *open, &mut chunk);
        drop(open);
        let written = file.write_durably(&chunk.bytes, at);
        match written {
            Ok(end) => {
                at = end;
                shared.durable.store(chunk.number + 1, Ordering::Release);
            }
            Err(_) => shared.has_failed.store(true, Ordering::Release),
        }
        if woken.blocking_send(std::mem::take(&mut chunk.waiting)).is_err() || written.is_err() {
            return;
        }
    }
}

async fn wake(mut chunks: Receiver<Vec<Waker>>) {
    while let Some(waiting) = chunks.recv().await {
        waiting.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn each_waits_for_its_own_bytes_and_shares_the_sync() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Arc::new(Journal::open(dir.path()).unwrap());
        let mut tasks = tokio::task::JoinSet::new();
        for who in 0..50_u8 {
            let journal = Arc::clone(&journal);
            tasks.spawn(async move {
                for _ in 0..20 {
                    journal.keep(&[who; 100]).await.unwrap();
                }
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap();
        }
        let chunks = journal.0.durable.load(Ordering::Acquire);
        assert!((20..=1_000).contains(&chunks), "{chunks}");
        let written: usize = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| std::fs::read(entry.unwrap().path().join("journal")).unwrap())
            .map(|bytes| bytes.iter().filter(|byte| **byte == 7).count())
            .sum();
        assert_eq!(written, 20 * 100, "what was kept is in the file");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn nothing_is_durable_before_it_is_written() {
        let journal = Journal(Arc::default());
        let number = journal.append(b"x", Waker::noop().clone());
        assert!(journal.poll_durable(number).is_pending());
        journal.0.has_failed.store(true, Ordering::Release);
        assert!(matches!(journal.poll_durable(number), Poll::Ready(Err(_))));
    }
}
