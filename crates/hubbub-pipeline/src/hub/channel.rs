//! One followed room: its subscribers, and who is present.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use hubbub_core::{RoomId, UserId};

use super::encoded::{EncodedRun, PublishProgress};
use super::outbox::{Delivery, Outbox};
use super::{Hub, Notice};

#[derive(Default)]
pub(super) struct Channel {
    pub(super) published: PublishProgress,
    /// Live subscribers.
    pub(super) subscribers: Vec<Subscriber>,
    /// Subscribers that still read the store.
    pub(super) joining: Vec<Joining>,
    /// Number of [`super::Attachment`]s.
    pub(super) attached: usize,
    /// [`hubbub_core::store::RoomHead::changes`] at the last poll of the store; `None` = there was no such room.
    pub(super) changes: Option<u64>,
    /// Users that are live, with the number of their subscriptions.
    pub(super) present: HashMap<UserId, usize>,
}

#[derive(Clone)]
pub(super) struct Subscriber {
    pub(super) outbox: Arc<Outbox>,
    pub(super) user: Option<UserId>,
    /// Whether the user is known to have been a member: then the subscription ends with the membership.
    pub(super) is_member: bool,
    /// Seq of the last message it got.
    pub(super) after: u64,
}

pub(super) struct Joining {
    pub(super) outbox: Arc<Outbox>,
    pub(super) user: Option<UserId>,
    /// As in [`Subscriber`].
    pub(super) is_member: bool,
    /// Whether another server's change of the room was applied while the user was not known to be a member.
    pub(super) is_overtaken: bool,
    /// Whether the outbox holds the room's messages, or did until it dropped them.
    pub(super) is_held: bool,
}

impl Channel {
    /// Adds a run to the outboxes that hold the room's messages.
    pub(super) fn hold(&mut self, room: &str, run: &EncodedRun) {
        for joining in self.joining.iter_mut().filter(|joining| joining.is_held) {
            joining.is_held = joining.outbox.hold(room, run);
        }
    }

    /// Drops the room's held messages: those who catch up read from the store what is left of them.
    pub(super) fn drop_held(&mut self, room: &str) {
        for joining in self.joining.iter_mut().filter(|joining| joining.is_held) {
            joining.is_held = false;
            joining.outbox.drop_held(room);
        }
    }

    /// Retention removed messages before they were published. Subscribers that lack them must learn of the gap: live
    /// ones are cut and reconnect, joining ones read the store again before they go live.
    pub(super) fn skip_to(&mut self, room: &str, oldest: u64) {
        let lacking = self.subscribers.iter().filter(|s| s.after.saturating_add(1) < oldest);
        lacking.for_each(|subscriber| subscriber.outbox.cut());
        self.drop_held(room);
        self.published.last = self.published.last.max(oldest - 1);
    }

    /// Adds a live subscriber, and announces the user's presence.
    pub(super) fn add_subscriber(&mut self, hub: &Hub, room: &RoomId, subscriber: Subscriber) {
        if let Some(user) = &subscriber.user {
            let subscriptions = self.present.entry(user.clone()).or_default();
            *subscriptions += 1;
            if *subscriptions == 1 {
                let notice = Notice::Presence { room: room.as_str(), user: user.as_str(), is_online: true };
                self.notify(hub, &notice, &subscriber.outbox);
            }
        }
        self.subscribers.push(subscriber);
    }

    /// Announces that the user of a removed subscriber left, if it was the user's last.
    pub(super) fn remove_presence(&mut self, hub: &Hub, room: &str, gone: &Subscriber) {
        let Some(user) = &gone.user else { return };
        let Some(subscriptions) = self.present.get_mut(user) else { return };
        *subscriptions -= 1;
        if *subscriptions == 0 {
            self.present.remove(user);
            let notice = Notice::Presence { room, user: user.as_str(), is_online: false };
            self.notify(hub, &notice, &gone.outbox);
        }
    }

    /// The users of all subscriptions.
    pub(super) fn users(&self) -> HashSet<UserId> {
        let live = self.subscribers.iter().map(|s| &s.user);
        live.chain(self.joining.iter().map(|j| &j.user)).flatten().cloned().collect()
    }

    /// Marks the subscriptions of a new member.
    pub(super) fn add_member(&mut self, user: &str) {
        let is_theirs = |other: &Option<UserId>| other.as_ref().is_some_and(|other| other.as_str() == user);
        let live = self.subscribers.iter_mut().filter(|s| is_theirs(&s.user)).map(|s| &mut s.is_member);
        let joining = self.joining.iter_mut().filter(|j| is_theirs(&j.user)).map(|j| &mut j.is_member);
        live.chain(joining).for_each(|is_member| *is_member = true);
    }

    /// The users that are known to have been members. Unconfirmed ones query again ([`super::Hub::confirm`]).
    pub(super) fn members(&mut self) -> HashSet<UserId> {
        self.joining.iter_mut().for_each(|joining| joining.is_overtaken |= !joining.is_member);
        let live = self.subscribers.iter().filter(|s| s.is_member).map(|s| &s.user);
        live.chain(self.joining.iter().filter(|j| j.is_member).map(|j| &j.user)).flatten().cloned().collect()
    }

    /// Removes the subscriptions whose user satisfies `is_over`. Returns the live ones, whose presence is not removed
    /// yet, and the outboxes of the joining ones.
    pub(super) fn take(
        &mut self,
        is_over: impl Fn(Option<&UserId>) -> bool,
    ) -> (Vec<Subscriber>, Vec<Arc<Outbox>>) {
        let live = self.subscribers.extract_if(.., |s| is_over(s.user.as_ref())).collect();
        let joining = self.joining.extract_if(.., |j| is_over(j.user.as_ref()));
        let joining = joining.map(|j| j.outbox).collect();
        (live, joining)
    }

    /// Sends a notice to all subscribers but the one that caused it. An outbox that it fills is cut with the next
    /// message.
    pub(super) fn notify(&self, hub: &Hub, notice: &Notice<'_>, from: &Arc<Outbox>) {
        let run = hub.notice_run(notice);
        for subscriber in self.subscribers.iter().filter(|s| !Arc::ptr_eq(&s.outbox, from)) {
            subscriber.outbox.push(Delivery::EncodedChunk(run.chunk_after(0)));
        }
    }
}

impl Hub {
    /// The encoded notice, shared by all its receivers.
    pub(super) fn notice_run(&self, notice: &Notice<'_>) -> EncodedRun {
        let mut frame = Vec::new();
        (self.encode.notice)(notice, &mut frame);
        EncodedRun::of_notice(frame, &self.memory)
    }
}
