//! Reads from replicas that are as new as reads from the primary.
//!
//! A replica always lags a little, and nobody may notice: a client that was told of a message, by an answer, live, or by
//! another server, must find it. So every such read first queries the primary for its log position, by one small query for
//! all reads at that moment ([`log_position`]). The replica answers once it has replayed as much ([`replica`]). If it has
//! not, does not answer, or holds another history, the primary answers.
//!
//! A task probes each replica twice a second. One that is away, or lags too far to be worth a query, is skipped meanwhile.

mod log_position;
mod replica;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use hubbub_core::essential::supervise;
use hubbub_core::replica::{ReplicaFigures, ReplicaStore};
use hubbub_core::store::{HistoryPage, HistoryQuery, Read};
use hubbub_core::{Essential, RoomId};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::db::connect::OpenError;
use crate::db::query_batcher::QueryBatcher;
use crate::db::{Db, ReadSource, Result};
use crate::history::DatabaseHistory;
use crate::options::PostgresOptions;
use crate::rooms::{self, Rooms};
use crate::stats::{CountReader, Stats, delegate_stats};
use log_position::{LogPosition, LogPositionQuery, PositionHistory};
use replica::Replica;

/// Time between two probes of the replicas.
const PROBE_EVERY: Duration = Duration::from_millis(500);

pub(crate) struct Replicas {
    replicas: Vec<Replica>,
    next: AtomicUsize,
    positions: Arc<QueryBatcher<LogPositionQuery>>,
    probe_task: Mutex<Option<JoinHandle<()>>>,
}

impl Replicas {
    /// The replicas of `options`, of which none needs to be up. `None` if there are none.
    pub(crate) async fn open(
        options: &PostgresOptions,
        primary: &Db,
        history: &Arc<DatabaseHistory>,
    ) -> Result<Option<Arc<Self>>, OpenError> {
        if options.replicas.is_empty() {
            return Ok(None);
        }
        let open = |url: &String| Replica::open(url, options, history.clone());
        let replicas: Vec<_> = options.replicas.iter().map(open).collect::<Result<_, _>>()?;
        let query = LogPositionQuery { primary: primary.clone() };
        let positions = QueryBatcher::new(query, Handle::current(), primary.patience());
        let all =
            Arc::new(Self { replicas, next: AtomicUsize::new(0), positions, probe_task: Mutex::default() });
        let mut past_positions = PositionHistory::default();
        all.probe(&mut past_positions).await;
        let weak = Arc::downgrade(&all);
        let probing = async move {
            loop {
                tokio::time::sleep(PROBE_EVERY).await;
                // Where there is none any more, the task is aborted.
                if let Some(all) = weak.upgrade() {
                    all.probe(&mut past_positions).await;
                }
            }
        };
        *all.probe_task.lock() =
            Some(tokio::spawn(supervise::<()>(Essential::new("probe of replicas"), probing)));
        Ok(Some(all))
    }

    async fn position(&self) -> Option<LogPosition> {
        self.positions.get(()).await.ok().flatten()
    }

    /// Probes all replicas. Changes nothing while the primary does not answer.
    async fn probe(&self, past_positions: &mut PositionHistory) {
        let Some(before) = self.position().await else { return };
        past_positions.add(before, Instant::now());
        let seen = join_all(self.replicas.iter().map(Replica::probe)).await;
        let Some(after) = self.position().await else { return };
        for (replica, seen) in self.replicas.iter().zip(seen) {
            if let Some(seen) = seen {
                replica.update(seen, past_positions, after);
            }
        }
    }

    /// Reads from a replica; `None` if none is usable, and the primary must answer.
    async fn read<T>(&self, work: &impl AsyncFn(ReadSource) -> Result<T>) -> Option<T> {
        let first = self.next.fetch_add(1, Relaxed) % self.replicas.len().max(1);
        let (before, after) = self.replicas.split_at_checked(first)?;
        let in_turn = || after.iter().chain(before);
        let Some(replica) = in_turn().find(|replica| replica.is_usable()) else {
            return in_turn().next()?.count(None);
        };
        replica.count(async { replica.read(self.position().await?, work).await }.await)
    }

    fn figures(&self) -> Vec<ReplicaFigures> {
        self.replicas.iter().map(Replica::figures).collect()
    }

    pub(crate) fn close(&self) {
        self.stop_probing();
        self.replicas.iter().for_each(Replica::close);
    }

    fn stop_probing(&self) {
        if let Some(probe_task) = self.probe_task.lock().take() {
            probe_task.abort();
        }
    }
}

impl Drop for Replicas {
    fn drop(&mut self) {
        self.stop_probing();
    }
}

/// Reads from replicas, or from the primary.
#[derive(Clone)]
pub(crate) struct Reader {
    db: Db,
    replicas: Option<Arc<Replicas>>,
}

impl Reader {
    /// Reads from `replicas` if they are usable, else from the primary.
    pub(crate) fn new(db: &Db, replicas: Option<Arc<Replicas>>) -> Self {
        Self { db: db.clone(), replicas }
    }

    /// Runs `work`, again on the primary if a replica fails.
    pub(crate) async fn read<T>(&self, work: impl AsyncFn(ReadSource) -> Result<T>) -> Result<T> {
        if let Some(replicas) = &self.replicas
            && let Some(found) = replicas.read(&work).await
        {
            return Ok(found);
        }
        work(ReadSource::Primary(self.db.clone())).await
    }
}

/// The reads that replicas may answer: history and statistics.
pub(crate) struct ReplicatedReads {
    rooms: Arc<Rooms>,
    counts: CountReader,
    reader: Reader,
    replicas: Arc<Replicas>,
}

impl ReplicatedReads {
    pub(crate) fn new(rooms: &Arc<Rooms>, stats: &Arc<Stats>, primary: &Db, replicas: Arc<Replicas>) -> Self {
        let reader = Reader::new(primary, Some(replicas.clone()));
        Self { rooms: rooms.clone(), counts: CountReader::new(stats, reader.clone()), reader, replicas }
    }

    pub(crate) fn close(&self) {
        self.replicas.close();
    }
}

impl ReplicaStore for ReplicatedReads {
    fn history(&self, room: RoomId, query: HistoryQuery) -> Read<'_, HistoryPage> {
        Box::pin(async move { rooms::history(&self.rooms, &self.reader, &room, &query).await })
    }

    fn replicas(&self) -> Vec<ReplicaFigures> {
        self.replicas.figures()
    }
}

delegate_stats!(ReplicatedReads, |replicated_reads| replicated_reads.counts);
