//! What is open for longer than a request, and ends with the right to it: sockets, streams, waiting requests.
//!
//! One task of the server looks at all of them several times a second, and at once when something was revoked. So an idle
//! socket needs no timer for it. What they are about to do they check themselves, by the time.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;
use hubbub_core::{ErrorCode, Timestamp};

use super::Auth;
use super::caller::{Access, Caller};
use crate::problem::Problem;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Expired,
    Revoked,
}

impl Ended {
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Expired => "the token has expired",
            Self::Revoked => "the token was revoked",
        }
    }

    pub(crate) fn problem(self) -> Problem {
        Problem::new(ErrorCode::Unauthorized, self.reason())
    }
}

struct Watched {
    access: Arc<Access>,
    /// 0 = it goes on.
    ended: AtomicU8,
    waker: AtomicWaker,
}

impl Watched {
    fn ended(&self) -> Option<Ended> {
        match self.ended.load(Ordering::Acquire) {
            0 => None,
            1 => Some(Ended::Expired),
            _ => Some(Ended::Revoked),
        }
    }
}

/// Everything open that can lose its right.
#[derive(Default)]
pub(super) struct Sessions {
    next: AtomicU64,
    open: Mutex<HashMap<u64, Arc<Watched>>>,
}

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<Watched>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends what has no right any more.
    pub(super) fn check(&self, verdict: impl Fn(&Access) -> Option<Ended>) {
        for watched in self.lock().values() {
            if watched.ended().is_none()
                && let Some(ended) = verdict(&watched.access)
            {
                watched.ended.store(if ended == Ended::Expired { 1 } else { 2 }, Ordering::Release);
                watched.waker.wake();
            }
        }
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
        let auth = auth.clone();
        let Some(access) = caller.token() else { return Self { auth, number: 0, watched: None } };
        let watched = Watched { access: access.clone(), ended: AtomicU8::new(0), waker: AtomicWaker::new() };
        let watched = Arc::new(watched);
        let number = auth.sessions.next.fetch_add(1, Ordering::Relaxed);
        auth.sessions.lock().insert(number, watched.clone());
        // Whatever was revoked between the check and here was looked for without this one.
        if let Some(ended) = auth.verdict(access) {
            watched.ended.store(if ended == Ended::Expired { 1 } else { 2 }, Ordering::Release);
        }
        Self { auth, number, watched: Some(watched) }
    }

    /// Whether it has ended by what the server last saw. Cheap.
    pub(crate) fn ended(&self) -> Option<Ended> {
        self.watched.as_ref()?.ended()
    }

    /// The same, to the moment.
    pub(crate) fn ended_at(&self, now: Timestamp) -> Option<Ended> {
        let watched = self.watched.as_ref()?;
        watched.ended().or_else(|| watched.access.has_expired(now).then_some(Ended::Expired))
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
        if self.watched.is_some() {
            self.auth.sessions.lock().remove(&self.number);
        }
    }
}
