//! Reading from replicas.
//!
//! A replica is always a little behind, and nobody may notice: who was told of a message, by an answer, live, or by
//! another server, must find it. So every read that may go to a replica first asks the primary how far it has come, in
//! one small question for all that ask at that moment ([`position`]), and the replica answers once it has replayed as
//! much ([`replica`]). Where it has not, does not answer, or holds another history, the primary does. What is answered is
//! therefore as new as if the primary had been asked.
//!
//! A task looks at each replica twice a second: one that is away, or too far behind to be worth a question, is passed
//! over meanwhile.

mod position;
mod replica;
mod store;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use hubbub_core::replica::ReplicaFigures;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::db::connect::OpenError;
use crate::db::shared::Shared;
use crate::db::source::Source;
use crate::db::{Db, Fault};
use crate::history::History;
use crate::options::PostgresOptions;
use position::{Position, Positions, Trail};
use replica::Replica;
pub(crate) use store::Replicated;

/// Time between two looks at the replicas.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The replicas of one database.
pub(crate) struct Replicas {
    replicas: Vec<Replica>,
    next: AtomicUsize,
    positions: Arc<Shared<Positions>>,
    looking: Mutex<Option<JoinHandle<()>>>,
}

impl Replicas {
    /// Those of `options`, none of which needs to be there; `None` when it names none.
    pub(crate) async fn open(
        options: &PostgresOptions,
        primary: &Db,
        history: &Arc<History>,
    ) -> Result<Option<Arc<Self>>, OpenError> {
        if options.replicas.is_empty() {
            return Ok(None);
        }
        let open = |url: &String| Replica::open(url, options, history.clone());
        let replicas: Vec<_> = options.replicas.iter().map(open).collect::<Result<_, _>>()?;
        let positions = Shared::new(Positions { primary: primary.clone() }, Handle::current());
        let all =
            Arc::new(Self { replicas, next: AtomicUsize::new(0), positions, looking: Mutex::default() });
        let mut trail = Trail::default();
        all.look(&mut trail).await;
        let looker = Arc::downgrade(&all);
        *all.looking.lock() = Some(tokio::spawn(async move {
            loop {
                tokio::time::sleep(LOOK_EVERY).await;
                let Some(all) = looker.upgrade() else { return };
                all.look(&mut trail).await;
            }
        }));
        Ok(Some(all))
    }

    /// How far the primary has come.
    async fn position(&self) -> Option<Position> {
        self.positions.get(()).await.ok().flatten()
    }

    /// Finds out how the replicas stand. Says nothing new while the primary does not answer.
    async fn look(&self, trail: &mut Trail) {
        let Some(before) = self.position().await else { return };
        trail.add(before, Instant::now());
        let seen = join_all(self.replicas.iter().map(Replica::look)).await;
        let Some(after) = self.position().await else { return };
        for (replica, seen) in self.replicas.iter().zip(seen) {
            if let Some(seen) = seen {
                replica.judge(seen, trail, after);
            }
        }
    }

    /// What `work` reads from a replica; `None` when none will do, and the primary is to be asked.
    async fn read<T, F>(&self, work: &(impl Fn(Source) -> F + Sync)) -> Option<T>
    where
        F: Future<Output = Result<T, Fault>> + Send,
    {
        let first = self.next.fetch_add(1, Relaxed) % self.replicas.len().max(1);
        let (behind, front) = self.replicas.split_at_checked(first)?;
        let in_turn = || front.iter().chain(behind);
        let Some(replica) = in_turn().find(|replica| replica.is_fit()) else {
            return in_turn().next()?.count(None);
        };
        replica.count(async { replica.read(self.position().await?, work).await }.await)
    }

    fn figures(&self) -> Vec<ReplicaFigures> {
        self.replicas.iter().map(Replica::figures).collect()
    }

    pub(crate) fn close(&self) {
        if let Some(looking) = self.looking.lock().take() {
            looking.abort();
        }
        self.replicas.iter().for_each(Replica::close);
    }
}

/// Reads that go to replicas where that is allowed.
#[derive(Clone)]
pub(crate) struct Reader {
    db: Db,
    replicas: Option<Arc<Replicas>>,
}

impl Reader {
    /// To the primary, or to `replicas` where they will do.
    pub(crate) fn new(db: &Db, replicas: Option<Arc<Replicas>>) -> Self {
        Self { db: db.clone(), replicas }
    }

    /// What `work` reads; it is done again on the primary where a replica failed.
    pub(crate) async fn read<T, F>(&self, work: impl Fn(Source) -> F + Sync) -> Result<T, Fault>
    where
        F: Future<Output = Result<T, Fault>> + Send,
    {
        if let Some(replicas) = &self.replicas
            && let Some(found) = replicas.read(&work).await
        {
            return Ok(found);
        }
        work(Source::Primary(self.db.clone())).await
    }
}
