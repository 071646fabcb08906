//! Publishes changes of rooms, members and read marks to connected users.

use std::collections::HashSet;
use std::sync::atomic::Ordering::SeqCst;

use futures_util::future::join_all;
use hubbub_core::store::{Access, ReadError};
use hubbub_core::{Change, Outcome, ReadMark, RoomChange, RoomId, RoomSettings, UserId};

use super::channel::{Channel, Subscriber};
use super::outbox::Delivery;
use super::{Hub, Notice, QueryAccess};

/// Queries that run at the same time.
pub(super) const QUERIES_MAX: usize = 256;

impl Hub {
    /// Publishes a change that another server committed, where the bus brings it among the messages. `is_awaited`: this server
    /// waits for the outcome.
    #[cfg(feature = "kafka")]
    pub(crate) async fn publish_remote_change(
        &self,
        change: &Change<'_>,
        outcome: &Outcome,
        is_awaited: bool,
        access: &QueryAccess<'_>,
    ) {
        match (change.what, outcome) {
            (RoomChange::RemoveMember { room, user }, _) => {
                self.require_check(room, user);
            }
            // It may come late: whoever has come since is in another room of that name, which only the store tells.
            (RoomChange::DeleteRoom { room }, Outcome::Changed { changed: true }) => {
                self.with_channel(room, Channel::invalidate_changes);
                self.expect_comparison(Some(room));
            }
            // Or is there again.
            (RoomChange::EraseUser { user }, Outcome::Erased { messages, more }) => {
                let left = self.drop_held_of(user, *messages > 0);
                left.iter().filter(|_| !more).for_each(|room| self.require_check(room.as_str(), user));
            }
            (RoomChange::AddMember { room, user }, Outcome::Changed { changed: true }) => {
                self.add_member(room, user);
                self.announce_remote(room, user, is_awaited, access).await;
            }
            (RoomChange::PutRoom { room, settings }, Outcome::Room { created }) => {
                // Asking about everybody here would hold up all else on the bus.
                if settings.members_only == Some(true) {
                    self.with_channel(room, Channel::invalidate_changes);
                    self.expect_comparison(Some(room));
                }
                if *created && let Some(user) = change.by {
                    self.announce_remote(room, user, is_awaited, access).await;
                }
            }
            // The server that committed it tells those that do not read the bus.
            (RoomChange::MarkRead { room, user, .. }, Outcome::Read(mark)) if mark.moved => {
                RoomId::new(room).iter().for_each(|room| self.notify_marked(room, user, *mark));
            }
            _ => {}
        }
        self.memory.enforce_bound();
    }

    pub(super) async fn publish_change(
        &self,
        change: &Change<'_>,
        outcome: &Outcome,
        access: &QueryAccess<'_>,
    ) {
        match (change.what, outcome) {
            (RoomChange::MarkRead { room, user, .. }, Outcome::Read(mark)) if mark.moved => {
                let Ok(id) = RoomId::new(room) else { return };
                self.notify_marked(&id, user, *mark);
                if let (Some(relay), Ok(user)) = (self.relay.get(), UserId::new(user)) {
                    relay.marked(&id, &user, *mark);
                }
            }
            (RoomChange::AddMember { room, user }, Outcome::Changed { changed: true }) => {
                self.add_member(room, user);
                self.announce(room, user, access).await;
            }
            (RoomChange::RemoveMember { room, user }, Outcome::Changed { changed: true }) => {
                self.sockets.forget_membership(user, room);
                // Another server may have added the user again since, who may have subscribed here anew.
                if self.behind.get().is_some() {
                    self.require_check(room, user);
                } else {
                    self.end(room, |subscriber| subscriber.is_of(user));
                }
            }
            (RoomChange::RemoveMember { room, user }, Outcome::Changed { changed: false }) => {
                self.end_former(room, user, access).await;
            }
            (RoomChange::DeleteRoom { room }, Outcome::Changed { changed: true }) => {
                // Later subscribers start from an empty room.
                self.with_channel(room, Channel::reset);
                self.end(room, |_| true);
            }
            (RoomChange::PutRoom { room, settings }, Outcome::Room { created }) => {
                self.apply_settings(room, settings, access).await;
                if *created && let Some(user) = change.by {
                    self.announce(room, user, access).await;
                }
            }
            // Held messages may be the erased user's.
            (RoomChange::EraseUser { user }, Outcome::Erased { messages, more }) => {
                let left = self.drop_held_of(user, *messages > 0);
                for room in left.iter().filter(|_| !more) {
                    self.end(room.as_str(), |subscriber| subscriber.is_of(user));
                }
            }
            _ => {}
        }
    }

    /// A user was added to a room. What was published before of a removal is over.
    fn add_member(&self, room: &str, user: &str) {
        self.with_channel(room, |channel| {
            channel.add_member(user);
            channel.cancel_check(user);
        });
    }

    async fn apply_settings(&self, room: &str, settings: RoomSettings<'_>, access: &QueryAccess<'_>) {
        if settings.members_only == Some(true) {
            self.end_outsiders(room, access).await;
        }
    }

    /// Notifies the sockets of a user whose read mark moved.
    pub(super) fn notify_marked(&self, room: &RoomId, user: &str, mark: ReadMark) {
        let notice = self.encode_notice(&Notice::Read { room: room.as_str(), user, mark });
        self.sockets.each(user, false, |outbox| {
            outbox.push(Delivery::Marked { room: room.clone(), seq: mark.seq, notice: notice.clone() });
        });
    }

    /// Drops all held messages, if the user `has_messages`, and says which rooms the user follows.
    fn drop_held_of(&self, user: &str, has_messages: bool) -> Vec<RoomId> {
        let mut followed = Vec::new();
        for shard in &self.shards {
            for (room, channel) in shard.lock().iter_mut() {
                if has_messages {
                    channel.drop_held(room.as_str());
                }
                if channel.subscribers.iter().any(|subscriber| subscriber.is_of(user)) {
                    followed.push(room.clone());
                }
            }
        }
        followed
    }

    /// Hints tell of a join that another server committed, with the mark that the user joined with, which may have moved by now.
    /// It has not where this server waits for the outcome: a client that gets it may speak at once. A slow store is asked later:
    /// everything else on the bus waits meanwhile.
    #[cfg(feature = "kafka")]
    async fn announce_remote(&self, room: &str, user: &str, is_awaited: bool, access: &QueryAccess<'_>) {
        let is_hinted = || self.relay.get().is_some_and(|relay| relay.is_subscribed(user));
        if (is_awaited || !is_hinted())
            && self.if_quick(self.announce(room, user, access)).await.is_none()
            && let Ok(room) = RoomId::new(room)
        {
            self.hint_join(&room, user, None);
        }
    }

    /// Notifies the new member's sockets that follow all rooms.
    async fn announce(&self, room: &str, user: &str, access: &QueryAccess<'_>) {
        if self.sockets.follow_all(user)
            && let (Ok(room), Ok(user)) = (RoomId::new(room), UserId::new(user))
        {
            // The mark is read before the change is answered: a message from a client that knows of the membership has a
            // greater seq.
            self.announce_join(room, user, access).await;
        }
    }

    /// Ends the subscriptions of a user who was removed before, perhaps by an attempt whose outcome nobody learnt; or was added
    /// again meanwhile.
    async fn end_former(&self, room: &str, user: &str, access: &QueryAccess<'_>) {
        let is_concerned = |subscriber: &Subscriber| subscriber.is_of(user) && subscriber.is_member;
        let is_followed = self.with_channel(room, |channel| channel.subscribers.iter().any(is_concerned));
        if let (Some(true), Ok(id), Ok(member)) = (is_followed, RoomId::new(room), UserId::new(user)) {
            self.end_strangers(&id, HashSet::from([member]), access).await;
        }
    }

    /// Ends the subscriptions of users who are not members: the room is for members only now.
    async fn end_outsiders(&self, room: &str, access: &QueryAccess<'_>) {
        let Ok(id) = RoomId::new(room) else { return };
        let users = self.with_channel(room, |channel| channel.users()).unwrap_or_default();
        self.end_strangers(&id, users, access).await;
    }

    /// Ends the subscriptions of those of `users` who are not members. If it is not known of some, the room is compared before
    /// anything more of it is delivered: an end is final for a client. Where nothing is compared, they end.
    async fn end_strangers(&self, room: &RoomId, users: HashSet<UserId>, access: &QueryAccess<'_>) {
        let is_compared = self.behind.get().is_some();
        let is_over = |access: &Result<Access, _>| match access {
            Ok(access) => !matches!(access, Access::Member { .. }),
            Err(_) => !is_compared,
        };
        if self.end_removed(room, users, access, is_over).await.is_err() {
            self.expect_comparison(Some(room.as_str()));
        }
    }

    /// Ends the subscriptions of those of `users` whose access `is_over`, as far as they began before this. Later ones ask for
    /// access themselves. Fails if any query failed.
    pub(super) async fn end_removed(
        &self,
        room: &RoomId,
        users: HashSet<UserId>,
        access: &QueryAccess<'_>,
        is_over: impl Fn(&Result<Access, ReadError>) -> bool,
    ) -> Result<(), ReadError> {
        let attached = self.attached.load(SeqCst);
        let (mut removed, mut done) = (HashSet::new(), Ok(()));
        for (user, access) in query_access(room, users, access).await {
            if is_over(&access) {
                removed.insert(user);
            }
            done = access.map(drop).and(done);
        }
        if !removed.is_empty() {
            let is_removed =
                |subscriber: &Subscriber| subscriber.number < attached && subscriber.is_any_of(&removed);
            self.end(room.as_str(), is_removed);
        }
        done
    }

    /// Ends subscriptions: each gets a notice at this point of the order, and nothing later.
    pub(super) fn end(&self, room: &str, is_over: impl Fn(&Subscriber) -> bool) {
        let take = |channel: &mut Channel| {
            channel.subscribers.extract_if(.., |subscriber| is_over(subscriber)).collect()
        };
        self.end_taken(room, take);
    }

    /// Ends the subscriptions that `take` takes out of the channel.
    pub(super) fn end_taken(&self, room: &str, take: impl FnOnce(&mut Channel) -> Vec<Subscriber>) {
        let mut channels = self.channels(room);
        let id = channels.get_key_value(room).map(|(id, _)| id.clone());
        let Some((id, channel)) = id.zip(channels.get_mut(room)) else { return };
        let ended = take(channel);
        if ended.is_empty() {
            return;
        }
        let notice = self.encode_notice(&Notice::Removed { room });
        for subscriber in &ended {
            subscriber.outbox.push(Delivery::Ended { room: id.clone(), notice: notice.clone() });
        }
        ended.iter().for_each(|gone| self.release(channel, room, gone));
        drop(channels);
        for Subscriber { user, outbox, .. } in &ended {
            user.iter().for_each(|user| self.forget_rooms(user, outbox, [&id]));
        }
        self.memory.enforce_bound();
    }
}

/// The access of many users to a room. Queries run concurrently; the store merges them.
pub(super) async fn query_access(
    room: &RoomId,
    users: HashSet<UserId>,
    access: &QueryAccess<'_>,
) -> Vec<(UserId, Result<Access, ReadError>)> {
    let users: Vec<UserId> = users.into_iter().collect();
    let mut answers = Vec::with_capacity(users.len());
    for users in users.chunks(QUERIES_MAX) {
        let asked = users.iter().map(|user| access(room.clone(), user.clone()));
        answers.extend(users.iter().cloned().zip(join_all(asked).await));
    }
    answers
}
