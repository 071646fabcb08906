//! The rooms one socket follows: each asked for by name, or all of its user's (`"*"`). A room is followed once.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hubbub_core::{ErrorCode, Fault, RoomId, UserId};
use hubbub_pipeline::Waiter;
use hubbub_pipeline::hub::{Delivery, Outbox};
use tokio::time::Instant;

use super::all::{AllRooms, Next, WantedRooms};
use super::encode_live;
use super::frames::{write_all_live, write_error, write_room_frame};
use crate::Gateway;
use crate::connection::socket::Socket;
use crate::follow::{Follower, Step, Wanted};
use crate::problem::Problem;

/// Nothing is read from the store or the socket, and nothing taken from the outbox, while so much waits for the peer.
pub(super) const BACKLOG_BYTES_MAX: usize = 256 * 1024;
/// The same while live messages take too much memory.
const SMALL_BACKLOG_BYTES: usize = 16 * 1024;

/// Others are told that somebody writes at most this often.
const TYPING_INTERVAL: Duration = Duration::from_secs(1);

/// How a subscription answers its client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Announce {
    /// With `subscribed`, and the client's `ref` as JSON.
    With(Arc<str>),
    /// The same, as one of all rooms of the user, with the read mark.
    AsMine(Arc<str>, u64),
    /// With messages only.
    Not,
}

impl Announce {
    fn is_mine(&self) -> bool {
        matches!(self, Self::AsMine(..))
    }
}

struct Subscription {
    follower: Follower,
    announce: Announce,
    /// When the others were last told that this one's user writes.
    typed_at: Option<Instant>,
    /// The user was made a member, with this read mark, while the room was followed by name: should that end, the room
    /// is one of all.
    joined: Option<u64>,
    /// The end of the outbox when it began.
    begun_at: u64,
}

pub(super) struct Subscriptions {
    gateway: Arc<Gateway>,
    waiter: Arc<Waiter>,
    /// Who counts as present in the rooms.
    user: Option<UserId>,
    /// Made with the first subscription, or for the user.
    outbox: Option<Arc<Outbox>>,
    rooms: HashMap<RoomId, Subscription>,
    /// Rooms that are not live yet; they catch up one after another.
    behind: VecDeque<RoomId>,
    all: Option<AllRooms>,
    /// Rooms followed as some of all.
    mine: usize,
    is_held_back: bool,
}

impl Subscriptions {
    pub(super) fn new(gateway: Arc<Gateway>, waiter: Arc<Waiter>, user: Option<UserId>) -> Self {
        let (rooms, behind) = (HashMap::new(), VecDeque::new());
        Self { gateway, waiter, user, outbox: None, rooms, behind, all: None, mine: 0, is_held_back: false }
    }

    /// Has what concerns the user, and no room that is followed, come to this socket.
    pub(super) fn open(&mut self) {
        if let Some(user) = self.user.clone() {
            let outbox = self.outbox();
            self.gateway.hub.open_socket(&user, &outbox);
        }
    }

    fn outbox(&mut self) -> Arc<Outbox> {
        let make_outbox = || self.gateway.hub.outbox(self.gateway.outbox, self.waiter.clone());
        self.outbox.get_or_insert_with(make_outbox).clone()
    }

    /// Begins a subscription; its frames come with [`Self::poll`].
    pub(super) fn subscribe(
        &mut self,
        room: RoomId,
        wanted: Wanted,
        announce: Announce,
    ) -> Result<(), Problem> {
        if self.rooms.contains_key(&room) {
            return Err(subscribed_already());
        }
        let most = self.gateway.limits.subscriptions;
        if self.rooms.len() - self.mine >= most {
            let detail = format!("one socket may follow at most {most} rooms by name");
            return Err(Problem::new(ErrorCode::TooManySubscriptions, detail));
        }
        self.follow(room, wanted, announce);
        Ok(())
    }

    fn follow(&mut self, room: RoomId, wanted: Wanted, announce: Announce) {
        let outbox = self.outbox();
        self.mine += usize::from(announce.is_mine());
        let begun_at = outbox.end();
        let follower = Follower::new(self.gateway.clone(), room.clone(), self.user.clone(), wanted, outbox);
        let subscription = Subscription { follower, announce, typed_at: None, joined: None, begun_at };
        self.rooms.insert(room.clone(), subscription);
        self.behind.push_back(room);
    }

    /// Begins to follow all rooms of the user.
    pub(super) fn subscribe_all(&mut self, wanted: WantedRooms) -> Result<(), Problem> {
        let Some(user) = self.user.clone() else { return Err(Problem::no_user()) };
        if self.all.is_some() {
            return Err(subscribed_already());
        }
        // Before the first are read, so that none is missed that comes meanwhile.
        let outbox = self.outbox();
        self.gateway.hub.follow_all(&user, &outbox, true);
        self.all = Some(AllRooms::new(wanted));
        Ok(())
    }

    /// Ends a subscription; `false` when there is none.
    pub(super) fn unsubscribe(&mut self, room: &RoomId) -> bool {
        let Some(ended) = self.remove(room) else { return false };
        if let Some(read_seq) = ended.joined {
            self.follow_mine(room.clone(), read_seq);
        }
        true
    }

    fn remove(&mut self, room: &RoomId) -> Option<Subscription> {
        let removed = self.rooms.remove(room)?;
        self.behind.retain(|other| other != room);
        self.mine -= usize::from(removed.announce.is_mine());
        Some(removed)
    }

    /// Ends all that came through `"*"`; `false` when it was not asked for.
    pub(super) fn unsubscribe_all(&mut self) -> bool {
        if self.all.take().is_none() {
            return false;
        }
        if let (Some(user), Some(outbox)) = (&self.user, &self.outbox) {
            self.gateway.hub.follow_all(user, outbox, false);
        }
        self.rooms.retain(|_, subscription| !subscription.announce.is_mine());
        self.behind.retain(|room| self.rooms.contains_key(room));
        self.rooms.values_mut().for_each(|subscription| subscription.joined = None);
        self.mine = 0;
        true
    }

    /// Follows a room as one of all, unless it is followed by name.
    fn follow_mine(&mut self, room: RoomId, read_seq: u64) {
        let Some(all) = &mut self.all else { return };
        match self.rooms.get_mut(&room) {
            Some(known) if known.announce.is_mine() => {}
            Some(named) => named.joined = Some(read_seq),
            None => {
                let announce = Announce::AsMine(all.wanted.reference.clone(), read_seq);
                let wanted = all.begin(&room, read_seq);
                self.follow(room, wanted, announce);
            }
        }
    }

    /// Tells the others in the room that this socket's user writes; more often than once a second it is dropped.
    pub(super) fn typing(&mut self, room: &RoomId) -> Result<(), Problem> {
        if self.user.is_none() {
            return Err(Problem::no_user());
        }
        let subscription = self.rooms.get_mut(room).ok_or_else(|| {
            Problem::invalid(vec![Fault::new("roomId", "is not subscribed on this socket")])
        })?;
        let now = Instant::now();
        if subscription.typed_at.is_none_or(|last| now.duration_since(last) >= TYPING_INTERVAL) {
            subscription.typed_at = Some(now);
            subscription.follower.typing();
        }
        Ok(())
    }

    /// The end of what the outbox holds now, for [`Self::has_passed`].
    pub(super) fn outbox_end(&self) -> u64 {
        self.outbox.as_ref().map_or(0, |outbox| outbox.end())
    }

    /// Whether everything that was in the outbox before `end` was handed to the socket.
    pub(super) fn has_passed(&self, end: u64) -> bool {
        self.outbox.as_ref().is_none_or(|outbox| outbox.has_passed(end))
    }

    fn next_delivery(&self) -> Option<Delivery> {
        self.outbox.as_ref()?.pop()
    }

    /// Does what a delivery is about, and gives what is to be told.
    fn take(&mut self, delivery: Delivery) -> Option<Bytes> {
        match delivery {
            Delivery::Parcel(parcel) => {
                self.gateway.metrics.delivered.inc_by(parcel.messages() as u64);
                Some(parcel.frames())
            }
            // A client that has ended it by itself meanwhile is told so. Should it follow the room again, that is another
            // subscription.
            Delivery::Ended { room, notice } => {
                let begun_at = self.rooms.get(&room)?.begun_at;
                self.has_passed(begun_at + 1).then(|| self.remove(&room)).map(|_| notice.frames())
            }
            Delivery::Joined { room, read_seq } => {
                self.follow_mine(room, read_seq);
                None
            }
        }
    }

    /// Whether the peer lagged too far behind.
    pub(super) fn is_cut(&self) -> bool {
        self.outbox.as_ref().is_some_and(|outbox| outbox.is_cut())
    }

    /// Moves live frames, and pages of what was missed if `may_catch_up`, to the socket, as much as it takes.
    pub(super) fn poll(&mut self, context: &mut Context<'_>, socket: &mut Socket, may_catch_up: bool) {
        let most = self.backlog_max();
        self.drain_outbox(socket, most);
        while may_catch_up && socket.backlog_bytes() < most {
            let polled = match self.behind.front().cloned() {
                Some(room) => self.poll_room(&room, context, (socket, most)),
                None => self.poll_all(context, socket),
            };
            if polled.is_pending() {
                self.is_held_back = false;
                return;
            }
        }
        // Not where only an answer is waited for, which wakes this task: it would ask again without a pause.
        self.is_held_back = socket.backlog_bytes() >= most;
    }

    /// Whether there may be more for the peer than its backlog allowed for; said once.
    pub(super) fn take_held_back(&mut self) -> bool {
        std::mem::take(&mut self.is_held_back)
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
        let Some(Subscription { follower, announce, .. }) = self.rooms.get_mut(room) else {
            self.behind.pop_front();
            return Poll::Ready(());
        };
        match ready!(follower.poll_step(context)) {
            Step::Begun { at, is_reset } => {
                let (reference, read_seq) = match announce {
                    Announce::With(reference) => (&**reference, None),
                    Announce::AsMine(reference, read_seq) => (&**reference, Some(*read_seq)),
                    Announce::Not => return Poll::Ready(()),
                };
                write_room_frame("subscribed", reference, room, (&at, read_seq), socket.out());
                if is_reset {
                    write_room_frame("reset", "", room, (&at, None), socket.out());
                }
            }
            Step::Reset(_) if *announce == Announce::Not => {}
            Step::Reset(at) => write_room_frame("reset", "", room, (&at, None), socket.out()),
            Step::Missed(messages) => {
                let mut page = Vec::new();
                messages.iter().for_each(|message| encode_live(&message, &mut page));
                socket.push(self.gateway.hub.memory().frames(page));
                self.gateway.metrics.delivered.inc_by(messages.len() as u64);
            }
            Step::Outrun => self.behind.rotate_left(1),
            Step::Live => {
                self.behind.pop_front();
                self.drain_outbox(socket, most);
            }
            Step::Gone => {
                self.remove(room);
            }
            Step::Failed(problem) => match announce.clone() {
                // A room that cannot be read would be missing from all: the client asks again for all of them.
                Announce::AsMine(..) => self.fail_all(&problem, socket),
                Announce::With(reference) => self.fail(room, &reference, &problem, socket),
                Announce::Not => self.fail(room, "", &problem, socket),
            },
        }
        Poll::Ready(())
    }

    fn poll_all(&mut self, context: &mut Context<'_>, socket: &mut Socket) -> Poll<()> {
        let (Some(all), Some(user)) = (&mut self.all, &self.user) else { return Poll::Pending };
        let most = self.gateway.limits.all_rooms;
        if self.mine > most {
            let detail = format!("\"*\" may be at most {most} rooms, and the user is a member of more");
            self.fail_all(&Problem::new(ErrorCode::TooManySubscriptions, detail), socket);
            return Poll::Ready(());
        }
        match ready!(all.poll_next(&self.gateway, user, context)) {
            Next::Rooms(rooms) => {
                for (room, read_seq) in rooms {
                    self.follow_mine(room, read_seq);
                }
            }
            Next::Tell => write_all_live(&all.wanted.reference, self.mine, socket.out()),
            Next::Failed(error) => self.fail_all(&error.into(), socket),
        }
        Poll::Ready(())
    }

    fn fail(&mut self, room: &RoomId, reference: &str, problem: &Problem, socket: &mut Socket) {
        self.gateway.metrics.reject(problem.code, 1);
        write_error(reference, problem, socket.out());
        self.unsubscribe(room);
    }

    fn fail_all(&mut self, problem: &Problem, socket: &mut Socket) {
        let reference = self.all.as_ref().map(|all| all.wanted.reference.clone());
        self.gateway.metrics.reject(problem.code, 1);
        write_error(reference.as_deref().unwrap_or_default(), problem, socket.out());
        self.unsubscribe_all();
    }

    fn drain_outbox(&mut self, socket: &mut Socket, most: usize) {
        while socket.backlog_bytes() < most
            && let Some(delivery) = self.next_delivery()
        {
            if let Some(frames) = self.take(delivery) {
                socket.push(frames);
            }
        }
    }
}

impl Drop for Subscriptions {
    fn drop(&mut self) {
        if let (Some(user), Some(outbox)) = (&self.user, &self.outbox) {
            self.gateway.hub.close_socket(user, outbox);
        }
    }
}

fn subscribed_already() -> Problem {
    let fault = Fault::new("roomId", "is subscribed on this socket already; unsubscribe first");
    Problem::invalid(vec![fault])
}
