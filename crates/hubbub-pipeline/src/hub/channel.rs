//! One room that is followed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use hubbub_core::{RoomId, UserId};

use super::outbox::{Delivery, Outbox};
use super::run::{Published, Run};
use super::{Hub, Notice};

#[derive(Default)]
pub(super) struct Channel {
    pub(super) published: Published,
    /// Those who get what is published.
    pub(super) subscribers: Vec<Subscriber>,
    /// Those who still read what they missed.
    pub(super) joining: Vec<Joining>,
    /// How many [`super::Attachment`]s hold it.
    pub(super) attached: usize,
    /// [`hubbub_core::store::RoomHead::changes`] when the store was looked at last; `None` = the room was not there.
    pub(super) changes: Option<u64>,
    /// Who follows it live, and with how many subscriptions.
    pub(super) present: HashMap<UserId, usize>,
}

#[derive(Clone)]
pub(super) struct Subscriber {
    pub(super) outbox: Arc<Outbox>,
    pub(super) user: Option<UserId>,
    /// Whether the user is known to have been a member: the subscription ends with the membership.
    pub(super) is_member: bool,
    /// Seq of the last message it has; earlier ones are not sent again.
    pub(super) after: u64,
}

pub(super) struct Joining {
    pub(super) outbox: Arc<Outbox>,
    pub(super) user: Option<UserId>,
    /// As of a live one.
    pub(super) is_member: bool,
    /// Whether another server's change of the room was taken in while the user was not known to be a member.
    pub(super) is_overtaken: bool,
    /// Whether the outbox holds what is published, or did until it gave up.
    pub(super) is_held: bool,
}

impl Channel {
    /// Has those hold a run who read the last page of what they missed.
    pub(super) fn hold(&mut self, room: &str, run: &Run) {
        for joining in self.joining.iter_mut().filter(|joining| joining.is_held) {
            joining.is_held = joining.outbox.hold(room, run);
        }
    }

    /// Drops what is held of the room: whoever catches up reads it, or what is left of it, from the store.
    pub(super) fn drop_held(&mut self, room: &str) {
        for joining in self.joining.iter_mut().filter(|joining| joining.is_held) {
            joining.is_held = false;
            joining.outbox.drop_held(room);
        }
    }

    /// Retention removed messages before they were published. Whoever lacks them is told of the gap: live subscribers are
    /// cut off and ask anew, and who catches up has to read on before it goes live.
    pub(super) fn pass_over(&mut self, room: &str, oldest: u64) {
        let lacking = self.subscribers.iter().filter(|s| s.after.saturating_add(1) < oldest);
        lacking.for_each(|subscriber| subscriber.outbox.cut());
        self.drop_held(room);
        self.published.last = self.published.last.max(oldest - 1);
    }

    /// Takes a live subscriber.
    pub(super) fn enter(&mut self, hub: &Hub, room: &RoomId, subscriber: Subscriber) {
        if let Some(user) = &subscriber.user {
            let subscriptions = self.present.entry(user.clone()).or_default();
            *subscriptions += 1;
            if *subscriptions == 1 {
                let notice = Notice::Presence { room: room.as_str(), user: user.as_str(), is_online: true };
                self.tell(hub, &notice, &subscriber.outbox);
            }
        }
        self.subscribers.push(subscriber);
    }

    /// Says that a subscriber, who is no longer among the others, has gone.
    pub(super) fn leave(&mut self, hub: &Hub, room: &str, gone: &Subscriber) {
        let Some(user) = &gone.user else { return };
        let Some(subscriptions) = self.present.get_mut(user) else { return };
        *subscriptions -= 1;
        if *subscriptions == 0 {
            self.present.remove(user);
            let notice = Notice::Presence { room, user: user.as_str(), is_online: false };
            self.tell(hub, &notice, &gone.outbox);
        }
    }

    /// Whose subscriptions it has, each user once.
    pub(super) fn users(&self) -> HashSet<UserId> {
        let live = self.subscribers.iter().map(|s| &s.user);
        live.chain(self.joining.iter().map(|j| &j.user)).flatten().cloned().collect()
    }

    /// Notes that a user was made a member.
    pub(super) fn add_member(&mut self, user: &str) {
        let is_theirs = |other: &Option<UserId>| other.as_ref().is_some_and(|other| other.as_str() == user);
        let live = self.subscribers.iter_mut().filter(|s| is_theirs(&s.user)).map(|s| &mut s.is_member);
        let joining = self.joining.iter_mut().filter(|j| is_theirs(&j.user)).map(|j| &mut j.is_member);
        live.chain(joining).for_each(|is_member| *is_member = true);
    }

    /// The users that are known to have been members. Who has still to say it asks once more ([`super::Hub::confirm`]).
    pub(super) fn members(&mut self) -> HashSet<UserId> {
        self.joining.iter_mut().for_each(|joining| joining.is_overtaken |= !joining.is_member);
        let live = self.subscribers.iter().filter(|s| s.is_member).map(|s| &s.user);
        live.chain(self.joining.iter().filter(|j| j.is_member).map(|j| &j.user)).flatten().cloned().collect()
    }

    /// Takes all subscriptions away of which `is_over` says so by their user. Gives the live ones, which have not left
    /// yet, and the outboxes of the others.
    pub(super) fn take(
        &mut self,
        is_over: impl Fn(Option<&UserId>) -> bool,
    ) -> (Vec<Subscriber>, Vec<Arc<Outbox>>) {
        let live = self.subscribers.extract_if(.., |s| is_over(s.user.as_ref())).collect();
        let joining = self.joining.extract_if(.., |j| is_over(j.user.as_ref()));
        let joining = joining.map(|j| j.outbox).collect();
        (live, joining)
    }

    /// Sends a notice to all subscribers but the one it comes from. One whose outbox it fills up is cut off with the
    /// next message.
    pub(super) fn tell(&self, hub: &Hub, notice: &Notice<'_>, from: &Arc<Outbox>) {
        let run = hub.notice_run(notice);
        for subscriber in self.subscribers.iter().filter(|s| !Arc::ptr_eq(&s.outbox, from)) {
            subscriber.outbox.push(Delivery::Parcel(run.parcel_after(0)));
        }
    }
}

impl Hub {
    /// A notice that can be shared by all who get it.
    pub(super) fn notice_run(&self, notice: &Notice<'_>) -> Run {
        let mut frame = Vec::new();
        (self.encode.notice)(notice, &mut frame);
        Run::of_notice(frame, &self.memory)
    }
}
