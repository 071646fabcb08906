//! The rooms one socket follows.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hubbub_core::message::write_json_string;
use hubbub_core::{ErrorCode, Fault, RoomId, UserId};
use hubbub_pipeline::Waiter;
use hubbub_pipeline::hub::{Outbox, Parcel};
use hubbub_ws::write;
use tokio::time::Instant;

use super::api::write_error;
use super::encode_live;
use super::socket::Socket;
use crate::Gateway;
use crate::follow::{Follower, Step, Wanted};
use crate::problem::{Problem, Reset};

/// Nothing is read from the store or the socket, and nothing taken from the outbox, while so much waits for the peer.
pub(super) const BACKLOG_BYTES_MAX: usize = 256 * 1024;

/// Others are told that somebody writes at most this often.
const TYPING_INTERVAL: Duration = Duration::from_secs(1);

/// How a subscription answers its client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Announce {
    /// With `subscribed`, and the client's `ref` as JSON.
    With(String),
    /// With messages only.
    Not,
}

struct Subscription {
    follower: Follower,
    announce: Announce,
    /// When the others were last told that this one's user writes.
    typed_at: Option<Instant>,
}

pub(super) struct Subscriptions {
    gateway: Arc<Gateway>,
    waiter: Arc<Waiter>,
    /// Who counts as present in the rooms.
    user: Option<UserId>,
    /// Made with the first subscription.
    outbox: Option<Arc<Outbox>>,
    rooms: HashMap<RoomId, Subscription>,
    /// Rooms that are not live yet; they catch up one after another.
    behind: VecDeque<RoomId>,
}

impl Subscriptions {
    pub(super) fn new(gateway: Arc<Gateway>, waiter: Arc<Waiter>, user: Option<UserId>) -> Self {
        Self { gateway, waiter, user, outbox: None, rooms: HashMap::new(), behind: VecDeque::new() }
    }

    /// Begins a subscription; its frames come with [`Self::poll`].
    pub(super) fn subscribe(
        &mut self,
        room: RoomId,
        wanted: Wanted,
        announce: Announce,
    ) -> Result<(), Problem> {
        if self.rooms.contains_key(&room) {
            let fault = Fault::new("roomId", "is subscribed on this socket already; unsubscribe first");
            return Err(Problem::invalid(vec![fault]));
        }
        let most = self.gateway.limits.subscriptions;
        if self.rooms.len() >= most {
            let detail = format!("one socket may follow at most {most} rooms");
            return Err(Problem::new(ErrorCode::TooManySubscriptions, detail));
        }
        let make_outbox = || Arc::new(Outbox::new(self.gateway.outbox, self.waiter.clone()));
        let outbox = self.outbox.get_or_insert_with(make_outbox).clone();
        let follower = Follower::new(self.gateway.clone(), room.clone(), self.user.clone(), wanted, outbox);
        self.rooms.insert(room.clone(), Subscription { follower, announce, typed_at: None });
        self.behind.push_back(room);
        Ok(())
    }

    /// Ends a subscription; `false` when there is none.
    pub(super) fn unsubscribe(&mut self, room: &RoomId) -> bool {
        self.behind.retain(|other| other != room);
        self.rooms.remove(room).is_some()
    }

    /// Tells the others in the room that this socket's user writes; more often than once a second it is dropped.
    pub(super) fn typing(&mut self, room: &RoomId) -> Result<(), Problem> {
        if self.user.is_none() {
            return Err(Problem::invalid(vec![Fault::new(
                "user",
                "is required: open the socket with ?user=",
            )]));
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

    /// Takes what the outbox holds, so that it can be sent before something that must follow it.
    pub(super) fn take_outbox(&mut self) -> Vec<Parcel> {
        std::iter::from_fn(|| self.next_parcel()).collect()
    }

    fn next_parcel(&self) -> Option<Parcel> {
        let parcel = self.outbox.as_ref()?.pop()?;
        self.gateway.metrics.delivered.inc_by(parcel.messages() as u64);
        Some(parcel)
    }

    /// Whether the peer lagged too far behind.
    pub(super) fn is_cut(&self) -> bool {
        self.outbox.as_ref().is_some_and(|outbox| outbox.is_cut())
    }

    /// Moves live frames, and pages of what was missed, to the socket, as much as it takes.
    pub(super) fn poll(&mut self, context: &mut Context<'_>, socket: &mut Socket) {
        self.drain_outbox(socket);
        while socket.backlog_bytes() < BACKLOG_BYTES_MAX {
            let Some(room) = self.behind.front().cloned() else { return };
            let Some(Subscription { follower, announce, .. }) = self.rooms.get_mut(&room) else { return };
            let Poll::Ready(step) = follower.poll_step(context) else { return };
            match step {
                Step::Begun { at, is_reset } => {
                    if let Announce::With(reference) = announce {
                        write_room_frame("subscribed", reference, &room, &at, socket.out());
                        if is_reset {
                            write_room_frame("reset", "", &room, &at, socket.out());
                        }
                    }
                }
                Step::Missed(messages) => {
                    messages.iter().for_each(|message| encode_live(&message, socket.out()));
                    self.gateway.metrics.delivered.inc_by(messages.len() as u64);
                }
                Step::Live => {
                    self.behind.pop_front();
                    self.drain_outbox(socket);
                }
                Step::Failed(problem) => {
                    let reference = if let Announce::With(reference) = announce { reference } else { "" };
                    write_error(reference, &problem, socket.out());
                    self.unsubscribe(&room);
                }
            }
        }
    }

    fn drain_outbox(&mut self, socket: &mut Socket) {
        while socket.backlog_bytes() < BACKLOG_BYTES_MAX
            && let Some(parcel) = self.next_parcel()
        {
            socket.push(parcel.frames());
        }
    }
}

fn write_room_frame(kind: &str, reference: &str, room: &RoomId, at: &Reset, out: &mut Vec<u8>) {
    let start = write::begin_text(out);
    out.extend_from_slice(b"{\"type\":");
    write_json_string(kind, out);
    if !reference.is_empty() {
        out.extend_from_slice(b",\"ref\":");
        out.extend_from_slice(reference.as_bytes());
    }
    out.extend_from_slice(b",\"roomId\":");
    write_json_string(room.as_str(), out);
    out.push(b',');
    at.write_members(out);
    out.push(b'}');
    write::end_text(out, start);
}
