//! One connection after another for any number of rooms: what its frames mean.

use std::collections::HashMap;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::json;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::AbortHandle;

use crate::connection::{self, ConnectionState, Ended};
use crate::error::{Error, Problem};
pub(crate) use crate::following::Follower;
use crate::following::{ServerFrame, Taken, members};
use crate::http::Http;
use crate::liveness::{Health, Liveness};
use crate::options::Options;
use crate::outbox::Outbox;
use crate::random;
use crate::rooms::{Message, Position, Ready, Receipt};
use crate::sending::{Lanes, SendFrame};

const CLOSE_TOO_BIG: u16 = 1009;
/// Attempt from which on the backoff counts after a refusal for overload.
pub(crate) const OVERLOAD_ATTEMPT: u32 = 3;

/// What is tried again after a pause.
#[derive(Debug)]
struct Retry {
    at: Instant,
    /// Of the frame that was refused. Another connection has another one.
    reference: String,
}

#[derive(Debug)]
struct State {
    followers: HashMap<u64, Follower>,
    /// Followers that are not over, by room.
    active: HashMap<String, u64>,
    /// Rooms that are left on this connection, each with the ref of the frame. A new subscription waits for the answer.
    leaving: HashMap<String, String>,
    retries: Vec<Retry>,
    lanes: Lanes,
    out: Outbox,
    ids: u64,
    attempt: u32,
    liveness: Liveness,
    is_over: bool,
    task: Option<AbortHandle>,
}

/// The socket of a client.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) http: Arc<Http>,
    pub(crate) connection: watch::Sender<ConnectionState>,
    /// Something is to be written.
    pub(crate) work: Notify,
    state: Mutex<State>,
}

impl Socket {
    /// Must be called within a runtime.
    pub(crate) fn start(http: Arc<Http>, connection: watch::Sender<ConnectionState>) -> Arc<Self> {
        let state = State {
            followers: HashMap::new(),
            active: HashMap::new(),
            leaving: HashMap::new(),
            retries: Vec::new(),
            lanes: Lanes::default(),
            out: Outbox::default(),
            ids: 0,
            attempt: 0,
            liveness: Liveness::new(),
            is_over: false,
            task: None,
        };
        let socket = Arc::new(Self { http, connection, work: Notify::new(), state: Mutex::new(state) });
        match Handle::try_current() {
            Ok(runtime) => {
                let task = runtime.spawn(connection::run(Arc::clone(&socket)));
                socket.state.lock().task = Some(task.abort_handle());
            }
            Err(_) => socket.end(&Error::new("invalid", "the client needs a Tokio runtime")),
        }
        socket
    }

    pub(crate) fn options(&self) -> &Options {
        &self.http.options
    }

    /// Whether it was refused for good, or its runtime has ended.
    pub(crate) fn is_over(&self) -> bool {
        let state = self.state.lock();
        state.is_over || state.task.as_ref().is_none_or(AbortHandle::is_finished)
    }

    /// Whatever waits is told also why there is no connection, if there is none.
    pub(crate) fn close(&self) {
        let cause = match &*self.connection.borrow() {
            ConnectionState::Lost { reason, .. } => format!(" while there was no connection: {reason}"),
            _ => String::new(),
        };
        self.end(&Error::new("closed", format!("the client was closed{cause}")));
        if let Some(task) = self.state.lock().task.take() {
            task.abort();
        }
    }

    /// Fails everything. A client that was closed ends its subscriptions without an error.
    pub(crate) fn end(&self, error: &Error) {
        let state = &mut *self.state.lock();
        state.is_over = true;
        state.out.close();
        state.active.clear();
        for follower in state.followers.values_mut() {
            follower.end((!error.is("closed")).then(|| error.clone()));
        }
        state.lanes.fail_all(error);
    }

    /// Works on the state, and lets the task write what follows from it.
    fn change<T>(&self, work: impl FnOnce(&mut State, &Options) -> T) -> T {
        let done = work(&mut self.state.lock(), self.options());
        self.work.notify_one();
        done
    }

    pub(crate) fn renew(&self, token: &str) {
        self.change(|state, _| state.renew(token));
    }

    pub(crate) fn send(
        &self,
        frame: SendFrame,
    ) -> Result<(u64, oneshot::Receiver<Result<Receipt, Error>>), Error> {
        self.change(|state, options| {
            if state.is_over {
                return Err(Error::closed());
            }
            state.lanes.send(frame, options, &mut state.out)
        })
    }

    pub(crate) fn cancel(&self, id: u64) {
        self.change(|state, options| state.lanes.cancel(id, options, &mut state.out));
    }

    pub(crate) fn follow(&self, follower: Follower) -> Result<(u64, Position), Error> {
        self.change(|state, _| {
            if state.is_over {
                return Err(Error::closed());
            }
            if state.active.contains_key(&follower.room) {
                return Err(Error::new("invalid", format!("{} is subscribed already", follower.room)));
            }
            state.ids += 1;
            let (id, position) = (state.ids, follower.position());
            state.active.insert(follower.room.clone(), id);
            state.followers.insert(id, follower);
            state.subscribe(id);
            Ok((id, position))
        })
    }

    pub(crate) fn unfollow(&self, id: u64) {
        self.change(|state, _| {
            let Some(follower) = state.followers.remove(&id) else { return };
            if state.active.get(&follower.room) == Some(&id) {
                state.active.remove(&follower.room);
                if !follower.is_paused {
                    state.leave(&follower.room);
                }
            }
        });
    }

    /// What tells that there is something to take; `None` for nobody's subscription.
    pub(crate) fn changed(&self, id: u64) -> Option<Arc<Notify>> {
        Some(Arc::clone(&self.state.lock().followers.get(&id)?.changed))
    }

    pub(crate) fn take(&self, id: u64) -> Taken {
        let state = &mut *self.state.lock();
        let Some(follower) = state.followers.get_mut(&id) else { return Poll::Ready(None) };
        let taken = follower.take();
        if follower.has_space() {
            follower.is_paused = false;
            state.subscribe(id);
            self.work.notify_one();
        }
        taken
    }

    /// `token` is what the handshake said.
    pub(crate) fn on_open(&self, token: Option<&str>) {
        self.connection.send_replace(ConnectionState::Open);
        let state = &mut *self.state.lock();
        if state.is_over {
            return;
        }
        state.out.open();
        // Read behind `open`: whoever renews it from now on finds an open connection.
        if let Some(renewed) = self.http.token().filter(|renewed| Some(renewed.as_str()) != token) {
            state.renew(&renewed);
        }
        state.liveness = Liveness::new();
        let active: Vec<u64> = state.active.values().copied().collect();
        active.into_iter().for_each(|id| state.subscribe(id));
        state.lanes.flush_all(&mut state.out);
    }

    pub(crate) fn on_lost(&self, ended: &Ended) {
        self.connection.send_replace(ended.state());
        let state = &mut *self.state.lock();
        state.out.close();
        state.leaving.clear();
        state.retries.clear();
        state.followers.values_mut().for_each(|follower| follower.is_announced = false);
        state.lanes.on_lost(ended.code == CLOSE_TOO_BIG);
    }

    /// Counts an attempt: the pause before the next one.
    pub(crate) fn pause_after(&self, ended: &Ended) -> Duration {
        let mut state = self.state.lock();
        if ended.is_overload() {
            state.attempt = state.attempt.max(OVERLOAD_ATTEMPT);
        }
        let pause = self.options().pause(state.attempt, ended.retry_after, random::fraction());
        state.attempt = state.attempt.saturating_add(1);
        ended.given_wait().unwrap_or(pause)
    }

    /// Moves what is to be written to `out`, which is empty.
    pub(crate) fn take_out(&self, out: &mut Vec<u8>) {
        self.state.lock().out.take(out);
    }

    /// When something is to be done again.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let state = self.state.lock();
        state.retries.iter().map(|retry| retry.at).chain(state.lanes.next_due()).min()
    }

    pub(crate) fn on_due(&self) {
        let (state, now) = (&mut *self.state.lock(), Instant::now());
        state.lanes.on_time(now, &mut state.out);
        let due = state.retries.extract_if(.., |retry| retry.at <= now).collect::<Vec<_>>();
        due.into_iter().for_each(|retry| state.retry(&retry.reference));
    }

    /// Frames from before a ping go out before its pong, and nothing else before the next answer: the order after a
    /// refusal depends on that (docs/protocol.md).
    pub(crate) fn on_ping(&self, payload: &[u8]) {
        let state = &mut *self.state.lock();
        state.lanes.on_ping();
        state.out.push_pong(payload);
    }

    /// Bytes came, or the peer took some of what waited for it.
    pub(crate) fn on_life(&self) {
        self.state.lock().liveness.on_life();
    }

    /// Whether the connection is dead: a silent one is probed, one without an answer is given up.
    pub(crate) fn is_dead(&self) -> bool {
        let state = &mut *self.state.lock();
        let health = state.liveness.look(Instant::now(), state.lanes.oldest_sent(), self.options());
        if health == Health::Silent {
            state.out.push(&json!({"type": "ping"}));
        }
        health == Health::Dead
    }

    pub(crate) fn on_frame(&self, text: &str) {
        let (state, options) = (&mut *self.state.lock(), self.options());
        let Ok(frame) = serde_json::from_str::<ServerFrame>(text) else { return };
        let reference = frame.reference.as_str().unwrap_or_default();
        let id = state.active.get(&frame.room).copied();
        let follower = id.and_then(|id| state.followers.get_mut(&id));
        match (frame.kind.as_str(), follower) {
            ("ack", _) => {
                state.attempt = 0;
                state.lanes.on_ack(reference, members::<Receipt>(text), options, &mut state.out);
            }
            ("error", _) => {
                let error = Error::from(members::<Problem>(text));
                if !state.lanes.on_refused(reference, &error, options, &mut state.out) {
                    state.on_error(&frame.room, reference, error, options);
                }
            }
            ("unsubscribed", _) => state.on_left(&frame.room),
            ("subscribed", Some(follower)) if follower.reference == reference => {
                state.attempt = 0;
                follower.on_subscribed(members::<Ready>(text));
            }
            ("reset", Some(follower)) if follower.is_announced => follower.on_reset(members::<Ready>(text)),
            ("message", Some(follower)) => {
                let is_full = follower.on_message(members::<Message>(text));
                // Its reader is slow: it goes on behind what is buffered.
                follower.is_paused |= is_full;
                follower.is_announced &= !is_full;
                if is_full {
                    state.leave(&frame.room);
                }
            }
            _ => {}
        }
    }
}

impl State {
    fn renew(&mut self, token: &str) {
        self.out.push(&json!({"type": "auth", "ref": "auth", "token": token}));
    }

    fn next_ref(&mut self, kind: &str) -> String {
        self.ids += 1;
        format!("{kind}{}", self.ids)
    }

    fn subscribe(&mut self, id: u64) {
        let reference = self.next_ref("s");
        let Some(follower) = self.followers.get_mut(&id) else { return };
        if !self.leaving.contains_key(&follower.room) && !follower.is_paused && self.out.is_open() {
            follower.reference = reference;
            self.out.push(&follower.frame());
        }
    }

    fn leave(&mut self, room: &str) {
        if self.out.is_open() {
            let reference = self.next_ref("u");
            self.out.push(&json!({"type": "unsubscribe", "ref": reference, "roomId": room}));
            self.leaving.insert(room.to_owned(), reference);
        }
    }

    fn on_left(&mut self, room: &str) {
        self.leaving.remove(room);
        if let Some(id) = self.active.get(room).copied() {
            self.subscribe(id);
        }
    }

    /// The follower whose frame has this ref, and the room that is left with it.
    fn answered(&self, reference: &str) -> (Option<u64>, Option<String>) {
        let mut active = self.active.values().copied();
        let follower = active.find(|id| self.followers.get(id).is_some_and(|it| it.reference == reference));
        let mut leaving = self.leaving.iter();
        let left = leaving.find(|(_, left)| *left == reference).map(|(room, _)| room.clone());
        (follower, left)
    }

    fn on_error(&mut self, room: &str, reference: &str, error: Error, options: &Options) {
        if reference.is_empty() {
            // No answer: the server ended what follows the room. One that has not asked yet waits for the end of the one before.
            let has_asked = |id: &u64| self.followers.get(id).is_some_and(|it| !it.reference.is_empty());
            if let Some(id) = self.active.get(room).copied().filter(has_asked) {
                self.drop_follower(id, error);
            }
            return;
        }
        let (follower, left) = self.answered(reference);
        if follower.is_none() && left.is_none() {
            return;
        }
        if error.retryable {
            let pause = options.pause(OVERLOAD_ATTEMPT, Duration::ZERO, random::fraction());
            self.retries.push(Retry { at: Instant::now() + pause, reference: reference.to_owned() });
        } else if let Some(id) = follower {
            self.drop_follower(id, error);
        } else if let Some(room) = left {
            self.on_left(&room);
        }
    }

    /// Subscribes or leaves again, if nothing else has happened there since.
    fn retry(&mut self, reference: &str) {
        match self.answered(reference) {
            (Some(id), _) => self.subscribe(id),
            (None, Some(room)) => self.leave(&room),
            (None, None) => {}
        }
    }

    fn drop_follower(&mut self, id: u64, error: Error) {
        if let Some(follower) = self.followers.get_mut(&id) {
            self.active.remove(&follower.room);
            follower.end(Some(error));
        }
    }
}
