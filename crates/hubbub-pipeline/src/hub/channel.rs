//! One followed room: its subscribers, and who is present.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use hubbub_core::UserId;

use super::encoded::{EncodedChunk, PublishProgress};
use super::membership_checks::PendingChecks;
use super::outbox::{Delivery, Outbox};
use super::presence::UntoldPresence;
use super::relay::RemotePresence;
use super::{Hub, Notice};

#[derive(Default)]
pub(super) struct Channel {
    pub(super) published: PublishProgress,
    pub(super) subscribers: Vec<Subscriber>,
    pub(super) attached: usize,
    /// [`hubbub_core::store::RoomHead::changes`] at the last poll of the store; `None` = there was no such room.
    pub(super) changes: Option<u64>,
    /// Whether no change can have been missed: the room was compared with the store since the bus, if there is one, is read.
    pub(super) is_compared: bool,
    /// Number of the last miss that concerned the room, or that there was when it was followed.
    pub(super) missed: u64,
    /// Users that may have been removed, and what waits until that is known.
    pub(super) pending_checks: Option<Box<PendingChecks>>,
    /// The head of the store that the bus has yet to bring, and the poll that found it.
    pub(super) awaited: Option<(u64, u64)>,
    /// Users that are live, with the number of their subscriptions.
    pub(super) present: HashMap<UserId, usize>,
    /// Users on other servers.
    pub(super) remote: RemotePresence,
    pub(super) untold: UntoldPresence,
}

pub(super) struct Subscriber {
    /// How many had attached to any room before.
    pub(super) number: u64,
    pub(super) outbox: Arc<Outbox>,
    pub(super) user: Option<UserId>,
    /// Whether the user is known to have been a member: then the subscription ends with the membership.
    pub(super) is_member: bool,
    pub(super) stage: Stage,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Stage {
    /// It still reads the store.
    Joining {
        /// Whether another server's change of the room was applied while the user was not known to be a member.
        is_overtaken: bool,
        /// Whether the outbox holds the room's messages, or did until it dropped them.
        is_held: bool,
    },
    /// It has everything up to the message `after`.
    Live { after: u64 },
}

impl Subscriber {
    pub(super) fn is_of(&self, user: &str) -> bool {
        self.user.as_ref().is_some_and(|own| own.as_str() == user)
    }

    pub(super) fn is_any_of(&self, users: &HashSet<UserId>) -> bool {
        self.user.as_ref().is_some_and(|own| users.contains(own))
    }

    pub(super) fn owns(&self, outbox: &Arc<Outbox>) -> bool {
        Arc::ptr_eq(&self.outbox, outbox)
    }

    /// Whether it is the subscription of `outbox`, and not live yet.
    pub(super) fn is_joining(&self, outbox: &Arc<Outbox>) -> bool {
        self.owns(outbox) && matches!(self.stage, Stage::Joining { .. })
    }

    /// Delivers messages if it is live; holds them if it must. Returns false when its outbox is full. `live` counts who gets all
    /// of them.
    pub(super) fn push(&mut self, room: &str, chunk: &EncodedChunk, live: &mut u32) -> bool {
        match &mut self.stage {
            Stage::Joining { is_held, .. } => *is_held = *is_held && self.outbox.hold(room, chunk),
            Stage::Live { after } if *after >= chunk.last_seq() => {}
            Stage::Live { after } => {
                let lacking = chunk.lacking(std::mem::replace(after, chunk.last_seq()));
                let is_counted = lacking.deliveries().is_some();
                let is_open = self.outbox.push(Delivery::EncodedChunk(lacking));
                *live += u32::from(is_counted && is_open);
                return is_open;
            }
        }
        true
    }
}

/// A number of changes that no room has.
#[cfg(feature = "kafka")]
const NO_CHANGES: u64 = u64::MAX;

impl Channel {
    /// Drops the room's held messages: what is left of them is read from the store.
    pub(super) fn drop_held(&mut self, room: &str) {
        self.pending_checks.iter_mut().for_each(|checks| checks.drop_waiting());
        for subscriber in &mut self.subscribers {
            if let Stage::Joining { is_held, .. } = &mut subscriber.stage
                && std::mem::take(is_held)
            {
                subscriber.outbox.drop_held(room);
            }
        }
    }

    /// Changes of the room may have been missed; `miss` is the number of that.
    pub(super) fn expect_comparison(&mut self, miss: u64) {
        (self.is_compared, self.missed) = (false, miss);
    }

    /// The room may be another one of the same name, or gone: the next comparison asks about everybody.
    #[cfg(feature = "kafka")]
    pub(super) fn invalidate_changes(&mut self) {
        self.changes = Some(NO_CHANGES);
    }

    /// Forgets what was published: the room begins again.
    pub(super) fn reset(&mut self) {
        self.published = PublishProgress::default();
        self.forget_changes();
    }

    /// The room is gone, and whoever followed it was ended. Who is live all the same came to another one of the same name, and
    /// gets what follows there: what was published is no more than that subscriber has, or it would not be live.
    pub(super) fn begin_again(&mut self) {
        if self.subscribers.iter().any(|subscriber| matches!(subscriber.stage, Stage::Live { .. })) {
            self.forget_changes();
        } else {
            self.reset();
        }
    }

    fn forget_changes(&mut self) {
        self.changes = None;
        self.pending_checks.iter_mut().for_each(|checks| checks.drop_waiting());
    }

    /// Retention removed messages before they were published. Subscribers that lack them must learn of the gap: live
    /// ones are cut and reconnect, joining ones read the store again before they go live.
    pub(super) fn skip_to(&mut self, room: &str, oldest: u64) {
        for subscriber in &self.subscribers {
            if matches!(subscriber.stage, Stage::Live { after } if after.saturating_add(1) < oldest) {
                subscriber.outbox.cut();
            }
        }
        self.drop_held(room);
        self.published.last = self.published.last.max(oldest - 1);
    }

    pub(super) fn users(&self) -> HashSet<UserId> {
        self.subscribers.iter().filter_map(|subscriber| subscriber.user.clone()).collect()
    }

    pub(super) fn add_member(&mut self, user: &str) {
        for subscriber in self.subscribers.iter_mut().filter(|subscriber| subscriber.is_of(user)) {
            subscriber.is_member = true;
        }
    }

    /// The users that are known to have been members. Unconfirmed ones query again ([`super::Hub::confirm`]).
    pub(super) fn members(&mut self) -> HashSet<UserId> {
        let mut members = HashSet::new();
        for subscriber in &mut self.subscribers {
            if subscriber.is_member {
                members.extend(subscriber.user.clone());
            } else if let Stage::Joining { is_overtaken, .. } = &mut subscriber.stage {
                *is_overtaken = true;
            }
        }
        members
    }

    /// Sends a notice to all live subscribers but the one that caused it, if it is here, and those that may have been removed. An
    /// outbox that it fills is cut with the next message.
    pub(super) fn notify(&mut self, hub: &Hub, notice: &Notice<'_>, from: Option<&Arc<Outbox>>) {
        let mut frames = Vec::new();
        (hub.encoder.notice)(notice, &mut frames);
        let own = from.into_iter().map(|from| (Arc::as_ptr(from), 0..frames.len())).collect();
        self.send_frames(hub, frames, &own);
    }

    /// Sends the frames of notices to all live subscribers; `own` has those that an outbox does not get. Returns the users that get
    /// nothing because they may have been removed.
    pub(super) fn send_frames(
        &self,
        hub: &Hub,
        frames: Vec<u8>,
        own: &HashMap<*const Outbox, Range<usize>>,
    ) -> Vec<UserId> {
        let all = 0..frames.len();
        let chunk = EncodedChunk::of_notice(frames, &hub.memory);
        let is_live = |subscriber: &&Subscriber| matches!(subscriber.stage, Stage::Live { .. });
        let mut lacking = Vec::new();
        for subscriber in self.subscribers.iter().filter(is_live) {
            let outbox = &subscriber.outbox;
            match (&subscriber.user, own.get(&Arc::as_ptr(outbox))) {
                (Some(user), _) if self.is_to_be_checked(user) => lacking.push(user.clone()),
                (_, None) => drop(outbox.push(Delivery::EncodedChunk(chunk.clone()))),
                (_, Some(own)) => {
                    let parts = [all.start..own.start, own.end..all.end].into_iter();
                    for part in parts.filter(|part| !part.is_empty()) {
                        outbox.push(Delivery::EncodedChunk(chunk.part_of_notices(part)));
                    }
                }
            }
        }
        lacking
    }
}

impl Hub {
    /// The encoded notice, shared by all its receivers.
    pub(super) fn encode_notice(&self, notice: &Notice<'_>) -> EncodedChunk {
        let mut frame = Vec::new();
        (self.encoder.notice)(notice, &mut frame);
        EncodedChunk::of_notice(frame, &self.memory)
    }
}
