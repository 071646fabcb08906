//! The rooms that one socket follows: by name, or as one of all rooms of its user (`"*"`). Each is followed once.

mod of_all;
mod rights;
mod typing;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hubbub_core::{ErrorCode, FieldError, RoomId};
use hubbub_pipeline::Waiter;
use hubbub_pipeline::hub::{Delivery, EncodedChunk, Outbox};
use tokio::time::Instant;
use typing::Typed;

use super::all_rooms::AllRooms;
use super::encode_live;
use super::frames::{write_error, write_room_frame};
use crate::Gateway;
use crate::auth::caller::Caller;
use crate::auth::open_connections::Listed;
use crate::connection::socket::{BACKLOG_BYTES_MAX, Socket};
use crate::follow::{FollowRequest, Follower, Step};
use crate::problem::Problem;

/// Bytes that may wait for the peer while live messages take too much memory. With more, nothing is read from the store
/// and nothing taken from the outbox.
const SMALL_BACKLOG_BYTES: usize = 16 * 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Announce {
    /// With `subscribed` and the client's `ref` as JSON.
    With(Arc<str>),
    /// The same for one of all rooms of the user, with its read mark.
    AsOneOfAll(Arc<str>, u64),
    /// With messages only.
    Nothing,
}

impl Announce {
    fn is_one_of_all(&self) -> bool {
        matches!(self, Self::AsOneOfAll(..))
    }
}

struct Subscription {
    follower: Follower,
    announce: Announce,
    /// Start and read mark of a user who became a member while the room was followed by name. When that subscription ends, the
    /// room is followed as one of all.
    joined: Option<(u64, u64)>,
    /// The end of the outbox when the subscription began.
    begun_at: u64,
    /// Whether the client was told that it began.
    is_announced: bool,
    /// The read mark that the client knows.
    read_seq: u64,
}

impl Subscription {
    /// The frame for a client whose subscription has ended. Who was not told that it began gets the answer to the request, and
    /// nothing of a room that would have been one of all.
    fn ending(&self, room: &RoomId, notice: EncodedChunk) -> Option<Bytes> {
        match &self.announce {
            Announce::AsOneOfAll(..) if !self.is_announced => None,
            Announce::With(reference) if !self.is_announced && !reference.is_empty() => {
                let mut frame = Vec::new();
                write_error(reference, Some(room), &Problem::removed(), &mut frame);
                Some(frame.into())
            }
            _ => Some(notice.frames()),
        }
    }
}

pub(super) struct Subscriptions {
    gateway: Arc<Gateway>,
    waiter: Arc<Waiter>,
    caller: Option<Caller>,
    /// Whether nothing is delivered any more.
    is_stopped: bool,
    /// Whether the client gets frames of messages, and of what ends them, but no others.
    has_only_messages: bool,
    /// Created for the user, or with the first subscription.
    outbox: Option<Arc<Outbox>>,
    rooms: HashMap<RoomId, Subscription>,
    /// Rooms that are not live yet. They catch up one after another.
    catching_up: VecDeque<RoomId>,
    all: Option<AllRooms>,
    /// How many rooms are followed as one of all.
    of_all: usize,
    /// Whether the rooms have changed since they were listed.
    is_unlisted: bool,
    typed: Typed,
}

impl Subscriptions {
    /// Of somebody who is not known yet, and may follow nothing.
    pub(super) fn new(gateway: Arc<Gateway>, waiter: Arc<Waiter>) -> Self {
        let (caller, is_stopped, has_only_messages, outbox) = (None, false, false, None);
        let (rooms, catching_up, all, of_all) = (HashMap::new(), VecDeque::new(), None, 0);
        Self {
            gateway,
            waiter,
            caller,
            is_stopped,
            has_only_messages,
            outbox,
            rooms,
            catching_up,
            all,
            of_all,
            is_unlisted: false,
            typed: Typed::default(),
        }
    }

    /// Leaves out presence, typing, read marks and positions from now on.
    pub(super) fn only_messages(&mut self) {
        self.has_only_messages = true;
    }

    /// Registers the socket for what concerns its user rather than a room that it follows.
    pub(super) fn open(&mut self) {
        if let Some(user) = self.user().cloned() {
            let outbox = self.outbox();
            self.gateway.hub.open_socket(&user, &outbox);
        }
    }

    fn outbox(&mut self) -> Arc<Outbox> {
        let make_outbox = || self.gateway.hub.outbox(self.gateway.outbox, self.waiter.clone());
        self.outbox.get_or_insert_with(make_outbox).clone()
    }

    pub(super) fn subscribe(
        &mut self,
        room: RoomId,
        request: FollowRequest,
        announce: Announce,
    ) -> Result<(), Problem> {
        if self.rooms.contains_key(&room) {
            return Err(subscribed_already());
        }
        let most = self.gateway.limits.subscriptions;
        if self.rooms.len() - self.of_all >= most {
            let detail = format!("one socket may follow at most {most} rooms by name");
            return Err(Problem::new(ErrorCode::TooManySubscriptions, detail));
        }
        self.follow(room, request, announce);
        Ok(())
    }

    fn follow(&mut self, room: RoomId, request: FollowRequest, announce: Announce) {
        let outbox = self.outbox();
        self.of_all += usize::from(announce.is_one_of_all());
        let begun_at = outbox.end();
        let user = self.user().cloned();
        let follower = Follower::new(self.gateway.clone(), room.clone(), user, request, outbox);
        let (is_announced, joined) = (false, None);
        let read_seq = if let Announce::AsOneOfAll(_, read_seq) = announce { read_seq } else { 0 };
        let subscription = Subscription { follower, announce, joined, begun_at, is_announced, read_seq };
        self.rooms.insert(room.clone(), subscription);
        self.is_unlisted = true;
        self.catching_up.push_back(room);
    }

    /// Ends a subscription; `false` when there is none.
    pub(super) fn unsubscribe(&mut self, room: &RoomId) -> bool {
        let Some(ended) = self.remove(room) else { return false };
        let joined = ended.joined;
        if let Some(all) = self.all.as_mut().filter(|_| ended.announce.is_one_of_all()) {
            all.unsubscribe(room);
        }
        // It leaves the room before the next one comes.
        drop(ended);
        if let Some((start, read_seq)) = joined {
            self.follow_as_one_of_all(room.clone(), start, read_seq);
        }
        true
    }

    fn remove(&mut self, room: &RoomId) -> Option<Subscription> {
        let removed = self.rooms.remove(room)?;
        self.is_unlisted = true;
        self.catching_up.retain(|other| other != room);
        self.of_all -= usize::from(removed.announce.is_one_of_all());
        Some(removed)
    }

    /// Notes the rooms in the list of connections, if they have changed.
    pub(super) fn list_rooms(&mut self, listed: &Listed) {
        if std::mem::take(&mut self.is_unlisted) {
            listed.follow(self.rooms.keys());
        }
    }

    /// Notifies the other followers of the room that the user is typing. Drops what comes too soon after the last time.
    pub(super) fn typing(&mut self, room: &RoomId) -> Result<(), Problem> {
        if self.user().is_none() {
            return Err(Problem::no_user());
        }
        let subscription = self.rooms.get(room).ok_or_else(|| {
            Problem::invalid(vec![FieldError::new("roomId", "is not subscribed on this socket")])
        })?;
        let now = Instant::now();
        if self.typed.may_be_told(room, now) && subscription.follower.typing() {
            self.typed.told(room, now);
        }
        Ok(())
    }

    /// The end of what the outbox holds now, for [`Self::has_passed`].
    pub(super) fn outbox_end(&self) -> u64 {
        self.outbox.as_ref().map_or(0, |outbox| outbox.end())
    }

    /// Whether everything in the outbox before `end` was moved to the socket.
    pub(super) fn has_passed(&self, end: u64) -> bool {
        self.is_stopped || self.outbox.as_ref().is_none_or(|outbox| outbox.has_passed(end))
    }

    fn next_delivery(&self) -> Option<Delivery> {
        self.outbox.as_ref()?.pop()
    }

    fn apply(&mut self, delivery: Delivery) -> Option<Bytes> {
        match delivery {
            Delivery::EncodedChunk(chunk) if self.has_only_messages && chunk.messages() == 0 => None,
            Delivery::EncodedChunk(chunk) => {
                self.gateway.metrics.delivered.inc_by(chunk.messages() as u64);
                self.gateway.hub.timeline().delivered(&chunk);
                Some(chunk.frames())
            }
            // A client that has unsubscribed meanwhile gets the answer to that. If it has subscribed again, this is not
            // about its new subscription.
            Delivery::Ended { room, notice } => {
                let begun_at = self.rooms.get(&room)?.begun_at;
                let ended = if self.has_passed(begun_at + 1) { self.remove(&room)? } else { return None };
                (!self.has_only_messages).then(|| ended.ending(&room, notice)).flatten()
            }
            Delivery::Marked { room, seq, notice } => {
                let is_shown = !self.has_only_messages && self.may_read(&room) && self.moves_mark(&room, seq);
                is_shown.then(|| notice.frames())
            }
            Delivery::Joined { room, start, read_seq } => {
                if let Some(all) = &mut self.all {
                    all.join(&room);
                }
                self.follow_as_one_of_all(room, start, read_seq);
                None
            }
        }
    }

    /// Whether a read mark is not behind the one that the client knows of a room that it follows: another server may tell of it
    /// late.
    fn moves_mark(&mut self, room: &RoomId, seq: u64) -> bool {
        let Some(subscription) = self.rooms.get_mut(room) else { return true };
        let is_news = seq >= subscription.read_seq;
        if is_news {
            subscription.read_seq = seq;
        }
        is_news
    }

    pub(super) fn is_cut(&self) -> bool {
        !self.is_stopped && self.outbox.as_ref().is_some_and(|outbox| outbox.is_cut())
    }

    /// Moves live frames to the socket, and pages of missed messages if `may_catch_up`, as its backlog allows.
    pub(super) fn poll(&mut self, context: &mut Context<'_>, socket: &mut Socket, may_catch_up: bool) {
        if self.is_stopped {
            return;
        }
        let most = self.backlog_max();
        self.drain_outbox(socket, most);
        while may_catch_up && socket.backlog_bytes() < most {
            let polled = match self.catching_up.front().cloned() {
                Some(room) => self.poll_room(&room, context, (socket, most)),
                None => self.poll_all(context, socket),
            };
            if polled.is_pending() {
                return;
            }
        }
        // Not where only a read is waited for, which wakes this task: it would poll again without a pause.
        if socket.backlog_bytes() >= most {
            socket.hold_back();
        }
    }

    fn backlog_max(&self) -> usize {
        if self.gateway.hub.memory().is_exceeded() { SMALL_BACKLOG_BYTES } else { BACKLOG_BYTES_MAX }
    }

    fn poll_room(
        &mut self,
        room: &RoomId,
        context: &mut Context<'_>,
        (socket, most): (&mut Socket, usize),
    ) -> Poll<()> {
        let Some(subscription) = self.rooms.get_mut(room) else {
            self.catching_up.pop_front();
            return Poll::Ready(());
        };
        let step = ready!(subscription.follower.poll_step(context));
        match &step {
            Step::Begun { .. } => subscription.is_announced = true,
            // The room is another one, whose marks begin anew.
            Step::Reset { .. } => subscription.read_seq = 0,
            _ => {}
        }
        let announce = &subscription.announce;
        match step {
            Step::Begun { .. } | Step::Reset { .. } if self.has_only_messages => {}
            Step::Begun { at, is_reset, .. } => {
                let (reference, read_seq) = match announce {
                    Announce::With(reference) => (&**reference, None),
                    Announce::AsOneOfAll(reference, read_seq) => (&**reference, Some(*read_seq)),
                    Announce::Nothing => return Poll::Ready(()),
                };
                write_room_frame("subscribed", reference, room, (&at, read_seq), socket.out());
                if is_reset {
                    write_room_frame("reset", "", room, (&at, None), socket.out());
                }
            }
            Step::Reset { .. } if *announce == Announce::Nothing => {}
            Step::Reset { at, .. } => write_room_frame("reset", "", room, (&at, None), socket.out()),
            Step::Missed(messages) => {
                let mut page = Vec::new();
                messages.iter().for_each(|message| encode_live(&message, &mut page));
                socket.push(self.gateway.hub.memory().frames(page));
                self.gateway.metrics.delivered.inc_by(messages.len() as u64);
            }
            Step::Outrun => self.catching_up.rotate_left(1),
            Step::Live => {
                self.catching_up.pop_front();
                self.drain_outbox(socket, most);
            }
            Step::Gone => self.drop_one_of_all(room),
            Step::Failed(problem) => match announce.clone() {
                // Without this room it would not be all rooms, so the client requests all of them again.
                Announce::AsOneOfAll(..) => self.fail_all(&problem, socket),
                Announce::With(reference) => self.fail(room, &reference, &problem, socket),
                Announce::Nothing => self.fail(room, "", &problem, socket),
            },
        }
        Poll::Ready(())
    }

    fn fail(&mut self, room: &RoomId, reference: &str, problem: &Problem, socket: &mut Socket) {
        self.gateway.metrics.reject(problem.code, 1);
        write_error(reference, None, problem, socket.out());
        self.unsubscribe(room);
    }

    fn drain_outbox(&mut self, socket: &mut Socket, most: usize) {
        while socket.backlog_bytes() < most
            && let Some(delivery) = self.next_delivery()
        {
            if let Some(frames) = self.apply(delivery) {
                socket.push(frames);
            }
        }
    }
}

impl Drop for Subscriptions {
    fn drop(&mut self) {
        if let (Some(user), Some(outbox)) = (self.user(), &self.outbox) {
            self.gateway.hub.close_socket(user, outbox);
        }
    }
}

fn subscribed_already() -> Problem {
    let fault = FieldError::new("roomId", "is subscribed on this socket already; unsubscribe first");
    Problem::invalid(vec![fault])
}
