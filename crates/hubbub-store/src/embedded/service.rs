//! The engine with its lock on the directory and its threads: what a server runs on.

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use hubbub_core::store::{
    ApplyError, BatchCap, HistoryPage, HistoryQuery, Read, ReadError, RoomInfo, StoreFigures, StoreHealth,
};
use hubbub_core::{Clock, OpBatch, Outcome, RandomSource, RoomId, RoomStore, Store};
use parking_lot::Mutex;

use super::data_dir::{self, DirLock};
use super::disk::{Disk, FileDisk};
use super::engine::Engine;
use super::error::{MaintainError, OpenError};
use super::options::EngineOptions;
use super::slow_disk::SlowDisk;

/// Background work is looked for at least this often; also how soon returning disk space is seen.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The embedded store: an [`Engine`] with a data directory of its own and threads that do its background work.
#[derive(Debug)]
pub struct Embedded {
    engine: Arc<Engine>,
    workers: Mutex<Vec<JoinHandle<()>>>,
    lock: Mutex<Option<DirLock>>,
}

impl Embedded {
    /// Opens the data directory at `path`, making it if there is none.
    pub fn open(
        path: &Path,
        options: EngineOptions,
        clock: Arc<dyn Clock>,
        random: &dyn RandomSource,
    ) -> Result<Self, OpenError> {
        let unreadable =
            |attempted, source| OpenError::Unreadable { attempted, path: path.to_owned(), source };
        data_dir::make(path).map_err(|error| unreadable("making the directory", error))?;
        let lock = DirLock::take(path)?;
        let disk = FileDisk::new(path);
        let disk: Arc<dyn Disk> = if options.sync_delay.is_zero() {
            Arc::new(disk)
        } else {
            Arc::new(SlowDisk::new(disk, options.sync_delay))
        };
        let engine = Arc::new(Engine::open(options, disk, clock, random)?);
        let store = Self { engine, workers: Mutex::default(), lock: Mutex::new(Some(lock)) };
        for (name, step) in WORK {
            let engine = Arc::clone(&store.engine);
            let worker =
                std::thread::Builder::new().name(name.into()).spawn(move || work(&engine, name, step));
            store.workers.lock().push(worker.map_err(|error| unreadable("starting a thread for", error))?);
        }
        Ok(store)
    }

    /// The engine itself.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    fn stop(&self) {
        self.engine.shared.bell.stop();
        for worker in std::mem::take(&mut *self.workers.lock()) {
            if worker.join().is_err() {
                tracing::error!("a background thread of the store panicked");
            }
        }
    }

    fn blocking<T, F>(&self, read: F) -> Read<'_, T>
    where
        T: Send + 'static,
        F: FnOnce(&Engine) -> Result<T, ReadError> + Send + 'static,
    {
        let engine = Arc::clone(&self.engine);
        Box::pin(async move {
            let answer = tokio::task::spawn_blocking(move || read(&engine)).await;
            answer.unwrap_or_else(|_| {
                Err(ReadError::Unavailable { reason: "the reading task ended early".into() })
            })
        })
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Threads and what they do. Slots are prepared on a thread of their own, so that a long seal is not in the way.
const WORK: [(&str, Step); 3] = [
    ("hubbub-slots", Engine::prepare_step),
    ("hubbub-seal", Engine::seal_step),
    ("hubbub-merge", Engine::merge_step),
];

type Step = fn(&Engine) -> Result<bool, MaintainError>;

/// Does one kind of background work as it comes up, until stopped.
fn work(engine: &Engine, name: &str, step: Step) {
    let bell = &engine.shared.bell;
    let mut trouble = String::new();
    while let Some(heard) = bell.heard() {
        match step(engine) {
            Ok(true) => {
                trouble.clear();
                continue;
            }
            Ok(false) => trouble.clear(),
            Err(error) => {
                // Tried again every second, said once.
                let again = error.to_string();
                if again != trouble {
                    tracing::warn!(thread = name, "background work failed and is tried again: {again}");
                }
                trouble = again;
            }
        }
        bell.wait(heard, LOOK_EVERY);
    }
}

impl Store for Embedded {
    fn apply(&self, batch: &OpBatch) -> Result<Vec<Outcome>, ApplyError> {
        self.engine.apply(batch)
    }

    fn batch_cap(&self) -> BatchCap {
        self.engine.batch_cap()
    }

    fn health(&self) -> StoreHealth {
        self.engine.health()
    }

    fn figures(&self) -> StoreFigures {
        self.engine.figures()
    }

    fn close(&self) {
        self.stop();
        if let Err(error) = self.engine.close() {
            tracing::error!("closing the store failed: {error}");
        }
        drop(self.lock.lock().take());
    }
}

impl RoomStore for Embedded {
    fn epoch(&self) -> Arc<str> {
        self.engine.epoch()
    }

    fn history(&self, room: RoomId, query: HistoryQuery) -> Read<'_, HistoryPage> {
        self.blocking(move |engine| engine.history(room.as_str(), &query))
    }

    fn room(&self, room: RoomId) -> Read<'_, Option<RoomInfo>> {
        // From memory alone.
        let info = self.engine.room(room.as_str());
        Box::pin(std::future::ready(Ok(info)))
    }

    fn rooms(&self, after: Option<RoomId>, limit: usize) -> Read<'_, Vec<RoomInfo>> {
        self.blocking(move |engine| Ok(engine.rooms(after.as_ref().map(RoomId::as_str), limit)))
    }
}
