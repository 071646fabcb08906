//! Reads of single values: as long as few are under way, each has a statement of its own, which its caller's task awaits.
//! Through a batch of reads it would pass to a task and back, which takes longer than the batch saves as long as it is one
//! of few.
//!
//! A few connections are enough: statements that meet on one travel together, and the database answers one after another
//! without falling asleep in between, which costs both sides less than a connection for each. A read that has begun is
//! polled until its end, or dropped: the driver keeps one part of an answer for its caller, and those behind it wait until
//! that one takes it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::{Duration, Instant};

use hubbub_core::kv::KvEntry;
use hubbub_core::store::ReadError;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio_postgres::Row;

use super::lists::{Values, entry};
use crate::db::{Conn, Db, Result, statements};
use crate::options::PoolOptions;

/// Most connections that such reads share; at most half of the pool.
const CONNECTIONS_MAX: usize = 4;
/// Most reads at the same time on one of them.
const READS_MAX: usize = 4;
/// Time after which no read joins those on a connection, also if there are always others. With the last of them it goes back
/// to the pool, which closes what is too old; and if it is silent, no more than these reads wait for it.
const TURN: Duration = Duration::from_secs(1);

statements! {
    VALUE("reading the value of a key") = "select value, revision, expires_at from kv where key = $1";
}

/// Connections for such reads. Each is one of the pool's as long as reads are under way on it.
pub(super) struct Singles {
    db: Db,
    places: Mutex<Vec<Place>>,
}

struct Place {
    /// `None` as long as nothing is under way, and when no read may join those that are.
    connection: Option<Arc<Conn>>,
    under_way: usize,
    /// When the connection was taken from the pool.
    taken_at: Instant,
}

impl Place {
    fn new(now: Instant) -> Self {
        Self { connection: None, under_way: 0, taken_at: now }
    }

    fn has_room(&self) -> bool {
        self.under_way < if self.connection.is_some() { READS_MAX } else { 1 }
    }
}

/// The right to one such read.
pub(super) struct Single {
    singles: Arc<Singles>,
    place: usize,
    connection: Option<Arc<Conn>>,
}

impl Singles {
    pub(super) fn new(db: Db, pool: &PoolOptions) -> Arc<Self> {
        let places = (pool.max / 2).clamp(1, CONNECTIONS_MAX);
        let places = (0..places).map(|_| Place::new(Instant::now())).collect();
        Arc::new(Self { db, places: Mutex::new(places) })
    }

    /// `None` = as many are under way as may be.
    pub(super) fn begin(self: &Arc<Self>) -> Option<Single> {
        let (now, is_wanted) = (Instant::now(), self.db.is_exhausted());
        let mut places = self.places.lock();
        for place in places.iter_mut() {
            let is_turn_over = is_wanted || now.duration_since(place.taken_at) >= TURN;
            place.connection.take_if(|connection| is_turn_over || connection.is_spoiled());
        }
        let with_room = places.iter_mut().enumerate().filter(|(_, place)| place.has_room());
        let (index, place) = with_room.min_by_key(|(_, place)| place.under_way)?;
        place.under_way += 1;
        Some(Single { singles: self.clone(), place: index, connection: place.connection.clone() })
    }

    /// Ends the use of a connection by one read; by all that come if it is unusable.
    fn leave(&self, place: usize, connection: Arc<Conn>) {
        if connection.is_spoiled()
            && let Some(place) = self.places.lock().get_mut(place)
        {
            place.connection.take_if(|connection| connection.is_spoiled());
        }
    }
}

impl Single {
    async fn rows(&mut self, key: &[u8]) -> Result<Vec<Row>> {
        let db = &self.singles.db;
        if !db.is_session_kept() {
            return db.read(&VALUE, &[&key]).await;
        }
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => {
                let connection = Arc::new(db.get().await?);
                let mut places = self.singles.places.lock();
                if let Some(place) = places.get_mut(self.place) {
                    (place.connection, place.taken_at) = (Some(connection.clone()), Instant::now());
                }
                connection
            }
        };
        let read = db.within(VALUE.what, connection.unchecked().query(&VALUE, &[&key])).await;
        // The next attempt, here and of the others, may need its place in the pool.
        self.singles.leave(self.place, connection);
        match read {
            Err(fault) if fault.is_broken_connection() => db.read(&VALUE, &[&key]).await,
            read => read,
        }
    }
}

impl Drop for Single {
    fn drop(&mut self) {
        let mut places = self.singles.places.lock();
        let Some(place) = places.get_mut(self.place) else { return };
        place.under_way -= 1;
        let unused = place.connection.take_if(|_| place.under_way == 0);
        drop(places);
        drop(unused);
    }
}

impl Values {
    /// The value of a key; `None` if there is none.
    pub(super) async fn read_one(
        &self,
        mut single: Single,
        key: &[u8],
    ) -> Result<Option<KvEntry>, ReadError> {
        let rows = single.rows(key).await?;
        let found = |row: &Row| entry(row, 0, &self.position, self.context.clock.now());
        Ok(rows.first().and_then(found))
    }
}

/// A read that its caller polls. If that one goes away, a task of its own ends it: a statement whose answer nobody awaits
/// costs its connection.
pub(super) struct Finished<T: Send + 'static> {
    read: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
    is_begun: bool,
    runtime: Handle,
}

impl<T: Send + 'static> Finished<T> {
    pub(super) fn new(runtime: Handle, read: impl Future<Output = T> + Send + 'static) -> Self {
        Self { read: Some(Box::pin(read)), is_begun: false, runtime }
    }
}

impl<T: Send + 'static> Future for Finished<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<T> {
        self.is_begun = true;
        let Some(read) = &mut self.read else { return Poll::Pending };
        let polled = read.as_mut().poll(cx);
        if polled.is_ready() {
            self.read = None;
        }
        polled
    }
}

impl<T: Send + 'static> Drop for Finished<T> {
    fn drop(&mut self) {
        if let Some(read) = self.read.take().filter(|_| self.is_begun) {
            self.runtime.spawn(read);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_read_is_finished_though_its_caller_goes_away() {
        let reading = || {
            let ((answer, answered), (done, is_done)) = (oneshot::channel::<u8>(), oneshot::channel());
            let read = Finished::new(Handle::current(), async move {
                let answer = answered.await;
                let _ = done.send(answer.clone());
                answer
            });
            (read, answer, is_done)
        };
        let (read, answer, _) = reading();
        answer.send(1).unwrap();
        assert_eq!(read.await, Ok(1));
        let (mut read, answer, is_done) = reading();
        assert!((&mut read).now_or_never().is_none());
        drop(read);
        answer.send(2).unwrap();
        assert_eq!(is_done.await.unwrap(), Ok(2));
        let (read, _answer, is_done) = reading();
        drop(read);
        assert!(is_done.await.is_err(), "it was never begun");
    }
}
