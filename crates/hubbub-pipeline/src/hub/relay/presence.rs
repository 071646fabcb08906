//! Presence on other servers, as they broadcast it.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use hubbub_core::UserId;

use super::super::channel::{Channel, Stage, Subscriber};
use super::super::{Attachment, Hub, Notice};
use super::record::Entry;

/// Users of other servers in all rooms; those beyond are not shown.
const REMOTE_USERS_MAX: i64 = 500_000;
/// Users of a server in one room.
const PARTS_USERS_MAX: usize = 500_000;

/// The users of a room on other servers.
#[derive(Debug, Default)]
pub(in super::super) struct RemotePresence {
    nodes: HashMap<u64, NodeUsers>,
    /// When the last snapshot was sent to other servers.
    pub(super) sent_at: Option<Duration>,
    /// When the first snapshot was requested from other servers.
    pub(super) requested_at: Option<Duration>,
}

#[derive(Debug, Default)]
struct NodeUsers {
    users: HashSet<UserId>,
    /// Parts of everybody who is there, as far as they came, and their number.
    parts: (usize, HashSet<UserId>),
}

impl NodeUsers {
    /// Adds one of `parts` of everybody who is there. Returns everybody with the last one.
    fn take_all(&mut self, (part, parts): (usize, usize), users: Vec<UserId>) -> Option<HashSet<UserId>> {
        if part == 0 {
            self.parts = Default::default();
        }
        let (next, all) = &mut self.parts;
        let is_bounded = all.len() + users.len() <= PARTS_USERS_MAX;
        if part != *next || part >= parts || !is_bounded {
            // One was lost. It is asked for again.
            self.parts = Default::default();
            return None;
        }
        *next += 1;
        all.extend(users);
        (*next == parts).then(|| std::mem::take(&mut self.parts).1)
    }
}

impl RemotePresence {
    pub(in super::super) fn has(&self, user: &UserId) -> bool {
        self.nodes.values().any(|node| node.users.contains(user))
    }

    pub(in super::super) fn users(&self) -> impl Iterator<Item = &UserId> {
        self.nodes.values().flat_map(|node| &node.users)
    }

    pub(super) fn nodes(&self) -> Vec<u64> {
        self.nodes.keys().copied().collect()
    }

    /// Adds or removes a user of a server.
    fn set(&mut self, hub: &Hub, node: u64, user: &UserId, is_online: bool) {
        let total = &hub.metrics.presence_remote;
        let users = &mut self.nodes.entry(node).or_default().users;
        if is_online && total.get() < REMOTE_USERS_MAX && users.insert(user.clone()) {
            total.inc();
        } else if !is_online && users.remove(user) {
            total.dec();
        }
    }

    pub(in super::super) fn len(&self) -> i64 {
        hubbub_core::invariant::saturate(self.nodes.values().map(|node| node.users.len()).sum::<usize>())
    }
}

impl Channel {
    /// Applies an entry of a server, and notifies subscribers of who came and who left.
    pub(super) fn apply_presence(&mut self, hub: &Hub, node: u64, entry: &Entry<'_>) {
        let ids = |users: &[Cow<'_, str>]| -> Vec<UserId> {
            users.iter().filter_map(|user| UserId::new(user).ok()).collect()
        };
        let (mut came, mut left) = (ids(&entry.on), ids(&entry.off));
        if let Some(part) = entry.full {
            let known = self.remote.nodes.entry(node).or_default();
            let all = known.take_all(part, came);
            left = all.iter().flat_map(|all| known.users.difference(all)).cloned().collect();
            came = all.into_iter().flatten().collect();
        }
        let mut is_changed = false;
        for (users, is_online) in [(came, true), (left, false)] {
            for user in users {
                let change = |channel: &mut Self| channel.remote.set(hub, node, &user, is_online);
                is_changed |= self.change_presence(&user, None, change);
            }
        }
        self.remote.nodes.retain(|_, node| !node.users.is_empty() || node.parts.0 > 0);
        // Each server collects what it tells the others.
        if is_changed {
            self.tell_presence(hub, &entry.room);
        }
    }

    /// These servers are gone, and their users with them.
    pub(super) fn forget(&mut self, hub: &Hub, room: &str, gone: &HashSet<u64>) {
        let mut is_changed = false;
        for node in gone {
            let users = self.remote.nodes.get(node).map(|node| node.users.clone()).unwrap_or_default();
            for user in users {
                let change = |channel: &mut Self| channel.remote.set(hub, *node, &user, false);
                is_changed |= self.change_presence(&user, None, change);
            }
            self.remote.nodes.remove(node);
        }
        if is_changed {
            self.tell_presence(hub, room);
        }
    }
}

impl Hub {
    /// Notifies the other subscribers of the room that the user of this one is typing. Returns whether it did: nobody hears of a
    /// user who is not live in the room, and may be a stranger there, or may have been removed.
    pub fn typing(&self, attachment: &Attachment) -> bool {
        let room = attachment.room.as_str();
        let user = self.with_channel(room, |channel| {
            let is_own = |subscriber: &&Subscriber| subscriber.number == attachment.number;
            let typist = channel.subscribers.iter().find(is_own)?;
            if !matches!(typist.stage, Stage::Live { .. }) {
                return None;
            }
            let (user, outbox) = (typist.user.clone()?, typist.outbox.clone());
            if channel.is_to_be_checked(&user) {
                return None;
            }
            channel.notify(self, &Notice::Typing { room, user: user.as_str() }, Some(&outbox));
            Some(user)
        });
        let Some(user) = user.flatten() else { return false };
        if let Some(relay) = self.relay.get() {
            relay.typing(&attachment.room, &user);
        }
        self.memory.enforce_bound();
        true
    }

    /// The users that are live in the room, as far as it is followed on this server, in the order of their ids.
    pub fn present(&self, room: &str) -> Vec<UserId> {
        let mut users = self.with_channel(room, Channel::show_present).unwrap_or_default();
        users.sort_unstable();
        users.dedup();
        users
    }
}
