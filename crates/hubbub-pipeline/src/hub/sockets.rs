//! Registry of each user's sockets, for events that concern a user and not a room.

use std::collections::HashMap;
use std::sync::Arc;

use hubbub_core::UserId;
use parking_lot::Mutex;

use super::Hub;
use super::outbox::Outbox;

/// The outboxes of each user's sockets.
#[derive(Default)]
pub(super) struct Sockets {
    users: Mutex<HashMap<UserId, Vec<UserSocket>>>,
}

struct UserSocket {
    outbox: Arc<Outbox>,
    /// Whether it follows all rooms of the user.
    follows_all: bool,
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

    /// Whether any socket of the user follows all rooms.
    pub(super) fn follow_all(&self, user: &str) -> bool {
        self.users.lock().get(user).is_some_and(|sockets| sockets.iter().any(|s| s.follows_all))
    }
}

impl Hub {
    /// Delivers events of `user` to `outbox`, until [`Hub::close_socket`].
    pub fn open_socket(&self, user: &UserId, outbox: &Arc<Outbox>) {
        let socket = UserSocket { outbox: outbox.clone(), follows_all: false };
        self.sockets.users.lock().entry(user.clone()).or_default().push(socket);
    }

    /// Sets whether `outbox` gets [`Delivery::Joined`] when `user` becomes a member of a room.
    pub fn follow_all(&self, user: &UserId, outbox: &Arc<Outbox>, follows_all: bool) {
        let mut users = self.sockets.users.lock();
        let mut sockets = users.get_mut(user).into_iter().flatten();
        if let Some(socket) = sockets.find(|socket| Arc::ptr_eq(&socket.outbox, outbox)) {
            socket.follows_all = follows_all;
        }
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
