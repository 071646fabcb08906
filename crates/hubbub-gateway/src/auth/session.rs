//! What is open for longer than a request, and ends with the right to it: sockets, streams, waiting requests. Sockets and
//! streams are [listed](super::open_connections): the administrator sees them, and may close them.
//!
//! One task of the server looks at all of them several times a second, and at once when something was revoked. So an idle
//! socket needs no timer for it. What they are about to do they check themselves, by the time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;
use hubbub_core::invariant::saturate;
use hubbub_core::{ErrorCode, Timestamp, UserId};

use super::Auth;
use super::caller::{Access, Caller};
use super::open_connections::{Connection, Listed};
use crate::problem::Problem;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Expired,
    Revoked,
    /// By the administrator. The caller may come back.
    Closed,
}

impl Ended {
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Expired => "the token has expired",
            Self::Revoked => "the token was revoked",
            Self::Closed => "the administrator closed it",
        }
    }

    pub(crate) fn problem(self) -> Problem {
        let code = match self {
            Self::Expired | Self::Revoked => ErrorCode::Unauthorized,
            Self::Closed => ErrorCode::Unavailable,
        };
        Problem::new(code, self.reason())
    }
}

pub(super) struct Watched {
    /// `None` = nobody has to prove anything.
    pub(super) access: Option<Arc<Access>>,
    /// Whom the caller goes by.
    pub(super) user: Option<UserId>,
    pub(super) listed: Option<Arc<Listed>>,
    /// 0 = it goes on.
    ended: AtomicU8,
    waker: AtomicWaker,
}

impl Watched {
    fn ended(&self) -> Option<Ended> {
        match self.ended.load(Ordering::Acquire) {
            0 => None,
            1 => Some(Ended::Expired),
            2 => Some(Ended::Revoked),
            _ => Some(Ended::Closed),
        }
    }

    /// Ends it, unless it has ended already.
    fn end(&self, ended: Ended) {
        let state = match ended {
            Ended::Expired => 1,
            Ended::Revoked => 2,
            Ended::Closed => 3,
        };
        if self.ended.compare_exchange(0, state, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            self.waker.wake();
        }
    }
}

/// Everything open that can lose its right, or is listed.
pub(super) struct Sessions {
    next: AtomicU64,
    open: Mutex<BTreeMap<u64, Arc<Watched>>>,
}

impl Sessions {
    /// `now`: numbers begin with its microseconds, so that those of a server before a restart are not used again.
    pub(super) fn new(now: Timestamp) -> Self {
        Self { next: AtomicU64::new(saturate(now.as_micros().max(0))), open: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Watched>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn next_number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Ends what has no right any more.
    pub(super) fn check(&self, verdict: impl Fn(&Access) -> Option<Ended>) {
        for watched in self.lock().values() {
            if watched.ended().is_none()
                && let Some(ended) = watched.access.as_deref().and_then(&verdict)
            {
                watched.end(ended);
            }
        }
    }

    /// Those that are listed, behind `after`.
    pub(super) fn page(&self, after: Option<u64>, limit: usize) -> Vec<Connection> {
        let first = after.map_or(0, |after| after.saturating_add(1));
        let open = self.lock();
        open.range(first..)
            .filter_map(|(number, watched)| Connection::of(*number, watched))
            .take(limit)
            .collect()
    }

    /// Ends one that is listed; `false` = there is none with this number.
    pub(super) fn close(&self, number: u64) -> bool {
        let open = self.lock();
        let watched = open.get(&number).filter(|watched| watched.listed.is_some());
        // Under the lock: the session that takes this one's place must see it.
        watched.inspect(|watched| watched.end(Ended::Closed)).is_some()
    }
}

/// One of them; it is not watched any more when this is dropped.
pub(crate) struct Session {
    auth: Arc<Auth>,
    number: u64,
    /// `None` = nothing can end it.
    watched: Option<Arc<Watched>>,
}

impl Session {
    /// Watches over something that the caller has open.
    pub(crate) fn open(auth: &Arc<Auth>, caller: &Caller) -> Self {
        Self::begin(auth, caller, None)
    }

    /// The same, and shows it to the administrator. What is listed has one session at a time: another one, with a newer token,
    /// takes the place of the one before, and is closed if that was.
    pub(crate) fn listed(auth: &Arc<Auth>, caller: &Caller, listed: &Arc<Listed>) -> Self {
        Self::begin(auth, caller, Some(listed.clone()))
    }

    fn begin(auth: &Arc<Auth>, caller: &Caller, listed: Option<Arc<Listed>>) -> Self {
        let auth = auth.clone();
        let access = caller.token().cloned();
        if access.is_none() && listed.is_none() {
            return Self { auth, number: 0, watched: None };
        }
        let number = listed.as_ref().map_or_else(|| auth.sessions.next_number(), |listed| listed.number());
        let user = caller.default_sender_id().cloned();
        let (ended, waker) = (AtomicU8::new(0), AtomicWaker::new());
        let watched = Arc::new(Watched { access, user, listed, ended, waker });
        let replaced = auth.sessions.lock().insert(number, watched.clone());
        if replaced.is_some_and(|replaced| replaced.ended() == Some(Ended::Closed)) {
            watched.end(Ended::Closed);
        }
        // Whatever was revoked between the check and here was looked for without this one.
        if let Some(ended) = watched.access.as_deref().and_then(|access| auth.verdict(access)) {
            watched.end(ended);
        }
        Self { auth, number, watched: Some(watched) }
    }

    /// Whether it has ended by what the server last saw. Cheap.
    pub(crate) fn ended(&self) -> Option<Ended> {
        self.watched.as_ref()?.ended()
    }

    /// The same, to the moment.
    pub(crate) fn ended_at(&self, now: impl FnOnce() -> Timestamp) -> Option<Ended> {
        let watched = self.watched.as_ref()?;
        let has_expired = || watched.access.as_deref().is_some_and(|access| access.has_expired(now()));
        watched.ended().or_else(|| has_expired().then_some(Ended::Expired))
    }

    /// Has the task woken when it ends.
    pub(crate) fn register(&self, context: &Context<'_>) {
        if let Some(watched) = &self.watched {
            watched.waker.register(context.waker());
        }
    }

    /// Waits for its end.
    pub(crate) async fn end(&self) -> Ended {
        std::future::poll_fn(|context| {
            self.register(context);
            self.ended().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let Some(watched) = &self.watched else { return };
        let mut open = self.auth.sessions.lock();
        // The one that took its place stays.
        if open.get(&self.number).is_some_and(|current| Arc::ptr_eq(current, watched)) {
            open.remove(&self.number);
        }
    }
}
