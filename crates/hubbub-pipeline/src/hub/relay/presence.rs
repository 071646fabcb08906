//! Who is in a room on other servers, as they said.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use hubbub_core::UserId;

use super::super::channel::Channel;
use super::super::{Attachment, Hub, Notice, Outbox};
use super::record::Entry;

/// Users of other servers in all rooms; those beyond are not shown.
const REMOTE_USERS_MAX: i64 = 500_000;
/// A server's first word about a room is not announced user by user when it has more than these.
const FIRST_MAX: usize = 100;

/// The users of a room on other servers.
#[derive(Debug, Default)]
pub(in super::super) struct Elsewhere {
    nodes: HashMap<u64, NodeUsers>,
    /// When everybody who is there was last told to other servers.
    pub(super) told_at: Option<Duration>,
    /// When other servers were first asked who is there.
    pub(super) asked_at: Option<Duration>,
}

#[derive(Debug, Default)]
struct NodeUsers {
    users: HashSet<UserId>,
    /// Parts of everybody who is there, as far as they came, and their number.
    parts: (usize, HashSet<UserId>),
}

impl Elsewhere {
    pub(in super::super) fn has(&self, user: &UserId) -> bool {
        self.nodes.values().any(|node| node.users.contains(user))
    }

    pub(in super::super) fn users(&self) -> impl Iterator<Item = &UserId> {
        self.nodes.values().flat_map(|node| &node.users)
    }

    pub(super) fn nodes(&self) -> Vec<u64> {
        self.nodes.keys().copied().collect()
    }

    pub(in super::super) fn len(&self) -> i64 {
        hubbub_core::invariant::saturate(self.nodes.values().map(|node| node.users.len()).sum::<usize>())
    }
}

impl Channel {
    pub(in super::super) fn is_present(&self, user: &UserId) -> bool {
        self.present.contains_key(user) || self.elsewhere.has(user)
    }

    /// Applies what a server said about its users, and announces who came and who left.
    pub(super) fn hear(&mut self, hub: &Hub, node: u64, entry: &Entry<'_>) {
        let room = &*entry.room;
        let ids = |users: &[std::borrow::Cow<'_, str>]| -> Vec<UserId> {
            users.iter().filter_map(|user| UserId::new(user).ok()).collect()
        };
        let (mut came, mut left) = (ids(&entry.on), ids(&entry.off));
        let mut is_silent = false;
        if let Some((part, parts)) = entry.full {
            let is_first = !self.elsewhere.nodes.contains_key(&node);
            let known = self.elsewhere.nodes.entry(node).or_default();
            if part == 0 {
                known.parts = Default::default();
            }
            if part != known.parts.0 {
                return; // One was lost. It is asked for again.
            }
            known.parts.0 += 1;
            known.parts.1.extend(came);
            if part + 1 < parts {
                return;
            }
            let (_, all) = std::mem::take(&mut known.parts);
            left = known.users.difference(&all).cloned().collect();
            is_silent = is_first && all.len() > FIRST_MAX;
            came = all.into_iter().collect();
        }
        for (users, is_online) in [(came, true), (left, false)] {
            for user in users {
                self.set_elsewhere(hub, (room, is_silent), node, user, is_online);
            }
        }
        self.elsewhere.nodes.retain(|_, node| !node.users.is_empty() || node.parts.0 > 0);
    }

    fn set_elsewhere(
        &mut self,
        hub: &Hub,
        (room, is_silent): (&str, bool),
        node: u64,
        user: UserId,
        is_online: bool,
    ) {
        let total = &hub.metrics.presence_remote;
        let was_present = self.is_present(&user);
        let users = &mut self.elsewhere.nodes.entry(node).or_default().users;
        if is_online && total.get() < REMOTE_USERS_MAX && users.insert(user.clone()) {
            total.inc();
        } else if !is_online && users.remove(&user) {
            total.dec();
        }
        let is_online = self.is_present(&user);
        if is_online != was_present && !is_silent {
            self.notify(hub, &Notice::Presence { room, user: user.as_str(), is_online }, None);
        }
    }

    /// A server is gone, and its users with it.
    pub(super) fn forget_node(&mut self, hub: &Hub, room: &str, node: u64) {
        let Some(gone) = self.elsewhere.nodes.remove(&node) else { return };
        for user in gone.users {
            hub.metrics.presence_remote.dec();
            if !self.is_present(&user) {
                let notice = Notice::Presence { room, user: user.as_str(), is_online: false };
                self.notify(hub, &notice, None);
            }
        }
    }
}

impl Hub {
    /// Notifies the other subscribers of the room that `user`, the owner of this outbox, is typing.
    pub fn typing(&self, attachment: &Attachment, user: &UserId, outbox: &Arc<Outbox>) {
        let room = attachment.room.as_str();
        let notice = Notice::Typing { room, user: user.as_str() };
        self.with_channel(room, |channel| channel.notify(self, &notice, Some(outbox)));
        self.relay.get().into_iter().for_each(|relay| relay.typing(&attachment.room, user));
    }

    /// The users that are live in the room, as far as it is followed on this server, in the order of their ids.
    pub fn present(&self, room: &str) -> Vec<UserId> {
        let present = |channel: &mut Channel| {
            channel.present.keys().chain(channel.elsewhere.users()).cloned().collect()
        };
        let mut users: Vec<UserId> = self.with_channel(room, present).unwrap_or_default();
        users.sort_unstable();
        users.dedup();
        users
    }
}
