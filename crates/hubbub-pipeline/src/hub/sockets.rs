//! Registry of each user's sockets, for events that concern a user and not a room.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use hubbub_core::store::Membership;
use hubbub_core::{RoomId, UserId};
use parking_lot::Mutex;

use super::Hub;
use super::joins::{CheckResult, KnownRooms, NextCheck};
use super::outbox::{Delivery, Outbox};

/// The outboxes of each user's sockets.
#[derive(Default)]
pub(super) struct Sockets {
    users: Mutex<HashMap<UserId, Vec<UserSocket>>>,
}

struct UserSocket {
    outbox: Arc<Outbox>,
    /// Whether it follows all rooms of the user.
    follows_all: bool,
    /// What it knows of the rooms of the user, if it follows all and other servers may add some.
    known: Option<KnownRooms>,
    /// The rooms of the user are too many to be listed, so that it gets no notifications of what is listed later.
    is_unlisted: bool,
}

/// Where a member starts in a room.
#[derive(Debug, Clone, Copy)]
pub(super) struct JoinedAt {
    start: u64,
    read_seq: u64,
}

impl JoinedAt {
    /// At the `mark` that the user joined with, or at the present one: a device that read or wrote meanwhile has moved it. The
    /// room may be another one since.
    pub(super) fn new(mark: Option<u64>, read_seq: u64) -> Self {
        Self { start: mark.map_or(read_seq, |mark| mark.min(read_seq)), read_seq }
    }

    fn push(self, room: &RoomId, start: u64, outbox: &Arc<Outbox>) {
        outbox.push(Delivery::Joined { room: room.clone(), start, read_seq: self.read_seq });
    }
}

impl Sockets {
    pub(super) fn is_empty(&self) -> bool {
        self.users.lock().is_empty()
    }

    /// Calls `f` for all sockets of a user, or only for those that follow all rooms.
    pub(super) fn each(&self, user: &str, following_all: bool, f: impl Fn(&Arc<Outbox>)) {
        if let Some(sockets) = self.users.lock().get(user) {
            let matching = sockets.iter().filter(|socket| socket.follows_all || !following_all);
            matching.for_each(|socket| f(&socket.outbox));
        }
    }

    /// Ends the sockets that follow all rooms and get no notifications of rooms listed later; `is_listing`: others do, or are
    /// about to read the list.
    pub(super) fn cut_unlisted(&self, user: &UserId, is_listing: bool) {
        let users = self.users.lock();
        let sockets = users.get(user).into_iter().flatten().filter(|socket| socket.follows_all);
        let unlisted = sockets.filter(|socket| socket.is_unlisted || !is_listing);
        unlisted.for_each(|socket| socket.outbox.cut());
    }

    /// Passes each user of whom a socket follows all rooms.
    #[cfg(feature = "kafka")]
    pub(super) fn each_following_all(&self, each: impl FnMut(&UserId)) {
        self.each_having(|socket| socket.follows_all, each);
    }

    /// Passes each user of whom a socket knows which rooms were listed.
    pub(super) fn each_comparing(&self, each: impl FnMut(&UserId)) {
        self.each_having(|socket| socket.known.is_some(), each);
    }

    fn each_having(&self, is_wanted: impl Fn(&UserSocket) -> bool, mut each: impl FnMut(&UserId)) {
        let users = self.users.lock();
        let having = users.iter().filter(|(_, sockets)| sockets.iter().any(&is_wanted));
        having.for_each(|(user, _)| each(user));
    }

    /// Notifies the sockets that follow all rooms that the user is a member of this one. `is_hint`: another server told of that,
    /// and a socket may know it already.
    pub(super) fn notify_joined(
        &self,
        user: &UserId,
        room: &RoomId,
        at: JoinedAt,
        is_hint: bool,
        now: Duration,
    ) {
        let mut users = self.users.lock();
        for socket in users.get_mut(user).into_iter().flatten().filter(|socket| socket.follows_all) {
            let start = match &mut socket.known {
                Some(known) if is_hint && known.has_heard(room, now) => continue,
                Some(known) => known.notify(room, at.start, now),
                None => at.start,
            };
            at.push(room, start, &socket.outbox);
        }
    }

    /// Those of the rooms listed for the user of which the store must be asked, because a socket is to be notified if the user
    /// is a member; and whether the rooms are to be listed again soon. The listing began `now`.
    pub(super) fn lacking(
        &self,
        user: &UserId,
        listed: Vec<Membership>,
        now: Duration,
    ) -> (Vec<Membership>, bool) {
        let rooms: HashSet<&RoomId> = listed.iter().map(|listed| &listed.room).collect();
        let mut users = self.users.lock();
        let mut known: Vec<&mut KnownRooms> =
            users.get_mut(user).into_iter().flatten().filter_map(|socket| socket.known.as_mut()).collect();
        known.iter_mut().for_each(|known| known.keep_listed(&rooms));
        let (mut is_soon, mut lacking) = (false, Vec::new());
        for listed in &listed {
            let mut is_lacking = false;
            for known in &mut known {
                let check = known.next_check(listed, now);
                is_lacking |= check == NextCheck::Now;
                is_soon |= check == NextCheck::Soon;
            }
            if is_lacking {
                lacking.push(listed.clone());
            }
        }
        (lacking, is_soon)
    }

    /// Notifies the sockets that lack a room listed for the user, of which the store was asked: `at` is where a member starts.
    /// Returns whether the rooms are to be listed again soon. The listing began `now`.
    pub(super) fn complete_check(
        &self,
        user: &UserId,
        listed: &Membership,
        at: Option<JoinedAt>,
        now: Duration,
    ) -> bool {
        let mut is_soon = false;
        let mut users = self.users.lock();
        for socket in users.get_mut(user).into_iter().flatten() {
            let Some(known) = &mut socket.known else { continue };
            let result = known.complete_check(listed, at.map(|at| at.start), now);
            is_soon |= result == CheckResult::Soon;
            if let (CheckResult::Notify { start }, Some(at)) = (result, at) {
                at.push(&listed.room, start, &socket.outbox);
            }
        }
        is_soon
    }

    /// The socket must be notified of these rooms if the user is a member again. Returns whether there are any, and it is one
    /// that gets notifications of rooms listed later.
    pub(super) fn forget<'a>(
        &self,
        user: &UserId,
        outbox: &Arc<Outbox>,
        rooms: impl IntoIterator<Item = &'a RoomId>,
    ) -> bool {
        let mut is_any = false;
        self.change(user, outbox, |socket| {
            if let Some(known) = &mut socket.known {
                rooms.into_iter().for_each(|room| {
                    known.forget(room.as_str());
                    is_any = true;
                });
            }
        });
        is_any
    }

    /// The user was removed from a room. A socket that had unsubscribed from it alone has no subscription that ends, and must be
    /// notified, too, if the user joins again.
    pub(super) fn forget_membership(&self, user: &str, room: &str) {
        let mut users = self.users.lock();
        let sockets = users.get_mut(user).into_iter().flatten();
        sockets.filter_map(|socket| socket.known.as_mut()).for_each(|known| known.forget(room));
    }

    fn change<T>(
        &self,
        user: &UserId,
        outbox: &Arc<Outbox>,
        change: impl FnOnce(&mut UserSocket) -> T,
    ) -> Option<T> {
        let mut users = self.users.lock();
        let mut sockets = users.get_mut(user).into_iter().flatten();
        sockets.find(|socket| Arc::ptr_eq(&socket.outbox, outbox)).map(change)
    }

    /// Whether any socket of the user follows all rooms.
    pub(super) fn follow_all(&self, user: &str) -> bool {
        self.users.lock().get(user).is_some_and(|sockets| sockets.iter().any(|s| s.follows_all))
    }
}

impl Hub {
    /// Delivers events of `user` to `outbox`, until [`Hub::close_socket`].
    pub fn open_socket(&self, user: &UserId, outbox: &Arc<Outbox>) {
        let socket =
            UserSocket { outbox: outbox.clone(), follows_all: false, known: None, is_unlisted: false };
        self.sockets.users.lock().entry(user.clone()).or_default().push(socket);
    }

    /// Sets whether `outbox` gets [`Delivery::Joined`] when `user` becomes a member of a room.
    pub fn follow_all(&self, user: &UserId, outbox: &Arc<Outbox>, follows_all: bool) {
        self.sockets.change(user, outbox, |socket| {
            (socket.follows_all, socket.known, socket.is_unlisted) = (follows_all, None, false);
        });
        if follows_all && let Some(relay) = self.relay.get() {
            // Hints are not heard yet.
            relay.follow_more();
        }
    }

    /// The rooms of `user` that `outbox`, which follows all, is about to read; listed before that, unless they are too many. It
    /// gets [`Delivery::Joined`] also for rooms that are listed later, where nobody told of the join.
    pub fn expect_joins(&self, user: &UserId, outbox: &Arc<Outbox>, listed: Option<Vec<Membership>>) {
        if self.behind.get().is_some() {
            self.sockets.change(user, outbox, |socket| {
                socket.is_unlisted = listed.is_none();
                socket.known = listed.filter(|_| socket.follows_all).map(KnownRooms::new);
            });
        }
    }

    /// The socket read these rooms, and follows them as some of all. Call it before it follows them.
    pub fn expect_no_joins<'a>(
        &self,
        user: &UserId,
        outbox: &Arc<Outbox>,
        rooms: impl IntoIterator<Item = &'a RoomId>,
    ) {
        let now = self.clock.monotonic();
        self.sockets.change(user, outbox, |socket| {
            if let Some(known) = &mut socket.known {
                known.read(rooms, now);
            }
        });
    }

    /// Ends the registration of [`Hub::open_socket`].
    pub fn close_socket(&self, user: &UserId, outbox: &Arc<Outbox>) {
        let mut users = self.sockets.users.lock();
        let Some(sockets) = users.get_mut(user) else { return };
        sockets.retain(|socket| !Arc::ptr_eq(&socket.outbox, outbox));
        if sockets.is_empty() {
            users.remove(user);
        }
    }
}
