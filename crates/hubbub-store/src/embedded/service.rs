//! The engine with its lock on the directory and its threads: what a server runs on.

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use hubbub_core::backup::BackupStore;
use hubbub_core::essential::{self, Essential};
use hubbub_core::stats::{
    ActiveUsers, ActiveUsersQuery, Audit, Counted, HoursPage, HoursQuery, PairStats, ParticipationPage,
    RoomStats, Totals, UserHistoryPage, UserHistoryQuery, UserStats,
};
use hubbub_core::store::{
    Access, ApplyError, BatchCap, HistoryPage, HistoryQuery, LastMessages, Member, Read, ReadError, RoomInfo,
    StoreFigures, StoreHealth, UserRooms,
};
use hubbub_core::{
    Clock, MessageId, OpBatch, Outcome, RandomSource, RoomId, RoomStore, StatsStore, Store, UserId,
};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::embedded::disk::FileDisk;
use crate::embedded::disk::data_dir::{self, DirLock};
use crate::embedded::engine::Engine;
use crate::embedded::error::{MaintainError, OpenError};
use crate::embedded::options::EngineOptions;

/// Background work is looked for at least this often; also how soon returning disk space is seen.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How often messages are counted while somebody asks for statistics: at 10,000 messages/s a question then finds a
/// millisecond's work.
const COUNT_EVERY: Duration = Duration::from_millis(250);

/// How often it is looked whether the journal rests, so that its end is recorded within a second of the last write.
const END_EVERY: Duration = Duration::from_millis(250);

/// Searches for ids at a time.
const SEARCHES: usize = 1;

/// Reads at a time that may wait for the disk, each on a thread of the runtime's that may block. Others wait for their turn.
pub const READS_AT_ONCE: usize = 28;

/// The embedded store: an [`Engine`] with a data directory of its own and threads that do its background work.
#[derive(Debug)]
pub struct Embedded {
    engine: Arc<Engine>,
    workers: Mutex<Vec<JoinHandle<()>>>,
    lock: Mutex<Option<DirLock>>,
    /// One search for an id at a time: it may read all of a room that is not sealed yet.
    searches: Arc<Semaphore>,
    /// Held by reads on threads: one whose caller goes away before its turn is never begun.
    reads: Arc<Semaphore>,
    /// Whether background work is done after every batch, by the thread that brought it.
    in_line: bool,
}

impl Embedded {
    /// An engine without threads, whose background work is done after every batch, so that a run can be repeated; for
    /// tests, on whatever disk the engine has.
    pub fn in_line(engine: Engine) -> Self {
        let store = Self {
            engine: Arc::new(engine),
            workers: Mutex::default(),
            lock: Mutex::default(),
            searches: Arc::new(Semaphore::new(SEARCHES)),
            reads: Arc::new(Semaphore::new(READS_AT_ONCE)),
            in_line: true,
        };
        store.work_in_line();
        store
    }

    /// Does all background work there is.
    pub fn work_in_line(&self) {
        loop {
            let did = self.engine.seal_step().and_then(|sealed| Ok(self.engine.merge_step()? || sealed));
            match did {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => return tracing::warn!("background work failed: {error}"),
            }
        }
        if let Err(error) = self.engine.count_step() {
            tracing::warn!("counting failed: {error}");
        }
    }

    /// Opens the data directory at `path`, making it if there is none.
    pub fn open(
        path: &Path,
        options: EngineOptions,
        clock: Arc<dyn Clock>,
        random: &dyn RandomSource,
    ) -> Result<Self, OpenError> {
        let unreadable =
            |attempted, source| OpenError::Unreadable { attempted, path: path.to_owned(), source };
        if data_dir::is_backup(path) {
            return Err(OpenError::Backup { path: path.to_owned() });
        }
        data_dir::make(path).map_err(|error| unreadable("making the directory", error))?;
        data_dir::refuse_foreign(path)?;
        let lock = DirLock::take(path)?;
        let disk = Arc::new(FileDisk::new(path).with_sync_delay(options.sync_delay));
        let engine = Arc::new(Engine::open(options, disk, clock, random)?);
        let lock = Mutex::new(Some(lock));
        let searches = Arc::new(Semaphore::new(SEARCHES));
        let reads = Arc::new(Semaphore::new(READS_AT_ONCE));
        let store = Self { engine, workers: Mutex::default(), lock, searches, reads, in_line: false };
        for (name, step, every) in WORK {
            let engine = Arc::clone(&store.engine);
            let body = move || essential::run(Essential::writer(name), || work(&engine, name, step, every));
            let worker = std::thread::Builder::new().name(name.into()).spawn(body);
            store.workers.lock().push(worker.map_err(|error| unreadable("starting a thread for", error))?);
        }
        Ok(store)
    }

    /// The engine itself.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    fn stop(&self) {
        self.engine.shared.wakeup.stop();
        for worker in std::mem::take(&mut *self.workers.lock()) {
            if worker.join().is_err() {
                tracing::error!("a background thread of the store panicked");
            }
        }
    }

    /// Runs a read on a thread that may block, once fewer than [`READS_AT_ONCE`] run there.
    pub(super) fn blocking<T, F>(&self, read: F) -> Read<'_, T>
    where
        T: Send + 'static,
        F: FnOnce(&Engine) -> Result<T, ReadError> + Send + 'static,
    {
        let (engine, reads) = (Arc::clone(&self.engine), Arc::clone(&self.reads));
        Box::pin(async move {
            // Before the thread is asked for, as what waits for one cannot be taken back; and held by the read itself, which
            // goes on when nobody waits for it any more.
            let permit = reads.acquire_owned().await;
            let read = move || {
                let answer = read(&engine);
                drop(permit);
                answer
            };
            let answer = tokio::task::spawn_blocking(read).await;
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

/// Threads, what they do, and how often they look for it at least. Slots are prepared on a thread of their own, so that a long seal is not in the way.
const WORK: [(&str, Step, Duration); 5] = [
    ("hubbub-slots", Engine::prepare_step, LOOK_EVERY),
    ("hubbub-seal", Engine::seal_step, LOOK_EVERY),
    ("hubbub-merge", Engine::merge_step, LOOK_EVERY),
    ("hubbub-count", Engine::count_step, COUNT_EVERY),
    ("hubbub-end", Engine::record_end_step, END_EVERY),
];

type Step = fn(&Engine) -> Result<bool, MaintainError>;

/// Does one kind of background work as it comes up, until stopped.
fn work(engine: &Engine, name: &'static str, step: Step, every: Duration) {
    let wakeup = &engine.shared.wakeup;
    let mut trouble = String::new();
    while let Some(seen) = wakeup.last() {
        Essential::writer(name).step();
        match step(engine) {
            Ok(true) => {
                trouble.clear();
                continue;
            }
            Ok(false) => trouble.clear(),
            Err(error) => {
                engine.shared.status.damage.note(&error);
                // Tried again every second, said once.
                let again = error.to_string();
                if again != trouble {
                    tracing::warn!(thread = name, "background work failed and is tried again: {again}");
                }
                trouble = again;
            }
        }
        wakeup.wait(seen, every);
    }
}

impl Store for Embedded {
    fn apply(&self, batch: &OpBatch) -> Result<Vec<Outcome>, ApplyError> {
        let outcomes = self.engine.apply(batch);
        if self.in_line {
            self.work_in_line();
        }
        outcomes
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

    fn backups(&self) -> Option<&dyn BackupStore> {
        Some(self)
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

    fn seq_of(&self, room: RoomId, id: MessageId) -> Read<'_, Option<u64>> {
        Box::pin(async move {
            // Held by the search itself, which goes on when nobody waits for it any more.
            let permit = self.searches.clone().acquire_owned().await;
            let search = move |engine: &Engine| {
                let found = engine.seq_of(room.as_str(), id.as_str());
                drop(permit);
                found
            };
            self.blocking(search).await
        })
    }

    fn room(&self, room: RoomId) -> Read<'_, Option<RoomInfo>> {
        // From memory alone.
        let info = self.engine.room(room.as_str());
        Box::pin(std::future::ready(Ok(info)))
    }

    fn rooms(&self, after: Option<RoomId>, limit: usize) -> Read<'_, Vec<RoomInfo>> {
        self.blocking(move |engine| Ok(engine.rooms(after.as_ref().map(RoomId::as_str), limit)))
    }

    fn access(&self, room: RoomId, user: UserId) -> Read<'_, Access> {
        let access = self.engine.access(room.as_str(), user.as_str());
        Box::pin(std::future::ready(Ok(access)))
    }

    fn members(&self, room: RoomId, after: Option<UserId>, limit: usize) -> Read<'_, Vec<Member>> {
        self.blocking(move |engine| {
            Ok(engine.members(room.as_str(), after.as_ref().map(UserId::as_str), limit))
        })
    }

    fn user_rooms(
        &self,
        user: UserId,
        after: Option<RoomId>,
        limit: usize,
        last: LastMessages,
    ) -> Read<'_, UserRooms> {
        self.blocking(move |engine| {
            engine.user_rooms(user.as_str(), after.as_ref().map(RoomId::as_str), limit, last)
        })
    }

    fn user_room_count(&self, user: UserId, most: usize) -> Read<'_, usize> {
        self.blocking(move |engine| Ok(engine.user_room_count(user.as_str()).min(most)))
    }
}

impl StatsStore for Embedded {
    fn totals(&self) -> Read<'_, Counted<Totals>> {
        self.blocking(Engine::totals)
    }

    fn room_stats(&self, room: RoomId) -> Read<'_, Counted<Option<RoomStats>>> {
        self.blocking(move |engine| engine.room_stats(room.as_str()))
    }

    fn top_rooms(&self, limit: usize) -> Read<'_, Counted<Vec<RoomStats>>> {
        self.blocking(move |engine| engine.top_rooms(limit))
    }

    fn user_stats(&self, user: UserId) -> Read<'_, Counted<Option<UserStats>>> {
        self.blocking(move |engine| engine.user_stats(user.as_str()))
    }

    fn top_users(&self, limit: usize) -> Read<'_, Counted<Vec<UserStats>>> {
        self.blocking(move |engine| engine.top_users(limit))
    }

    fn top_pairs(&self, limit: usize) -> Read<'_, Counted<Vec<PairStats>>> {
        self.blocking(move |engine| engine.top_pairs(limit))
    }

    fn hours(&self, query: HoursQuery) -> Read<'_, Counted<HoursPage>> {
        self.blocking(move |engine| engine.hours(&query))
    }

    fn active_users(&self, query: ActiveUsersQuery) -> Read<'_, Counted<ActiveUsers>> {
        self.blocking(move |engine| engine.active_users(&query))
    }

    fn participation(
        &self,
        user: UserId,
        after: Option<RoomId>,
        limit: usize,
    ) -> Read<'_, Counted<ParticipationPage>> {
        self.blocking(move |engine| {
            engine.participation(user.as_str(), after.as_ref().map(RoomId::as_str), limit)
        })
    }

    fn user_history(&self, user: UserId, query: UserHistoryQuery) -> Read<'_, UserHistoryPage> {
        self.blocking(move |engine| engine.user_history(user.as_str(), &query))
    }

    fn audit(&self) -> Read<'_, Counted<Audit>> {
        self.blocking(Engine::audit)
    }
}
