//! The rooms one socket follows: reading what it missed at its own pace, then going live without a gap.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hubbub_core::message::write_json_string;
use hubbub_core::store::{Cursor, HistoryPage, HistoryQuery, ReadError, RoomInfo};
use hubbub_core::{ErrorCode, Fault, RoomId};
use hubbub_pipeline::Waiter;
use hubbub_pipeline::hub::{Attachment, Outbox};
use hubbub_ws::write;

use super::api::write_error;
use super::encode_live;
use super::socket::Socket;
use crate::Gateway;
use crate::problem::{Problem, Reset};

/// A page of what was missed: few enough to keep memory small, many enough to be quick.
const PAGE_MESSAGES: usize = 500;
const PAGE_BYTES: usize = 256 * 1024;
/// Nothing is read from the store, and nothing taken from the outbox, while so much waits for the peer.
const BACKLOG_BYTES_MAX: usize = 256 * 1024;

/// Where a subscription begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    /// With the next message.
    Live,
    /// Behind a seq; 0 = with the oldest.
    After(u64),
    /// With the last so many.
    Last(usize),
}

/// Where it goes on when its cursor cannot be honoured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OnReset {
    Replay,
    Live,
}

/// What a client asked for.
#[derive(Debug, Clone)]
pub(super) struct Subscribe {
    pub(super) start: Start,
    pub(super) epoch: Option<String>,
    pub(super) on_reset: OnReset,
    /// The client's `ref`, as JSON.
    pub(super) reference: String,
    /// Whether a `subscribed` frame goes first.
    pub(super) announced: bool,
}

struct Subscription {
    attachment: Attachment,
    stage: Stage,
}

enum Stage {
    /// Nothing is known of the room yet.
    Asked(Subscribe),
    /// The last so many are to be read.
    Last(usize),
    /// Everything up to this seq is on its way to the peer.
    Behind(u64),
    /// The hub delivers.
    Live,
}

enum Fetched {
    Info(Result<Option<RoomInfo>, ReadError>),
    Page(Result<HistoryPage, ReadError>),
}

type Fetch = Pin<Box<dyn Future<Output = Fetched> + Send>>;

pub(super) struct Subscriptions {
    gateway: Arc<Gateway>,
    waiter: Arc<Waiter>,
    /// Made with the first subscription.
    outbox: Option<Arc<Outbox>>,
    rooms: HashMap<RoomId, Subscription>,
    /// Rooms that are not live yet; the first is being read.
    behind: VecDeque<RoomId>,
    fetch: Option<Fetch>,
}

impl Subscriptions {
    pub(super) fn new(gateway: Arc<Gateway>, waiter: Arc<Waiter>) -> Self {
        Self { gateway, waiter, outbox: None, rooms: HashMap::new(), behind: VecDeque::new(), fetch: None }
    }

    /// Begins a subscription; its frames come with [`Self::poll`].
    pub(super) fn subscribe(&mut self, room: RoomId, wanted: Subscribe) -> Result<(), Problem> {
        if self.rooms.contains_key(&room) {
            let fault = Fault::new("roomId", "is subscribed on this socket already; unsubscribe first");
            return Err(Problem::invalid(vec![fault]));
        }
        let most = self.gateway.limits.subscriptions;
        if self.rooms.len() >= most {
            let detail = format!("one socket may follow at most {most} rooms");
            return Err(Problem::new(ErrorCode::TooManySubscriptions, detail));
        }
        // Before anything of the room is read, so that nothing published meanwhile is missed.
        let attachment = self.gateway.hub.attach(room.clone());
        self.rooms.insert(room.clone(), Subscription { attachment, stage: Stage::Asked(wanted) });
        self.behind.push_back(room);
        Ok(())
    }

    /// Takes what the outbox holds, so that it can be sent before something that must follow it.
    pub(super) fn take_outbox(&mut self) -> Vec<Bytes> {
        let mut all = Vec::new();
        while let Some(parcel) = self.outbox.as_ref().and_then(|outbox| outbox.pop()) {
            self.gateway.metrics.delivered.inc_by(parcel.messages as u64);
            all.push(parcel.frames);
        }
        all
    }

    /// Ends a subscription; `false` when there is none.
    pub(super) fn unsubscribe(&mut self, room: &RoomId) -> bool {
        let Some(subscription) = self.rooms.remove(room) else { return false };
        if self.behind.front() == Some(room) {
            self.fetch = None;
        }
        self.behind.retain(|other| other != room);
        let outbox = self.outbox();
        self.gateway.hub.detach(subscription.attachment, &outbox);
        true
    }

    fn outbox(&mut self) -> Arc<Outbox> {
        let outbox = self
            .outbox
            .get_or_insert_with(|| Arc::new(Outbox::new(self.gateway.outbox, self.waiter.clone())));
        outbox.clone()
    }

    /// Whether the peer lagged too far behind.
    pub(super) fn is_cut(&self) -> bool {
        self.outbox.as_ref().is_some_and(|outbox| outbox.is_cut())
    }

    /// Moves live frames, and pages of what was missed, to the socket, as much as it takes.
    pub(super) fn poll(&mut self, context: &mut Context<'_>, socket: &mut Socket) {
        self.drain_outbox(socket, BACKLOG_BYTES_MAX);
        while socket.backlog_bytes() < BACKLOG_BYTES_MAX {
            let Some(room) = self.behind.front().cloned() else { return };
            if self.fetch.is_none() {
                self.fetch = self.rooms.get(&room).map(|s| fetch(&self.gateway, &room, &s.stage));
            }
            let Some(Poll::Ready(fetched)) = self.fetch.as_mut().map(|f| f.as_mut().poll(context)) else {
                return;
            };
            self.fetch = None;
            self.take(&room, fetched, socket);
        }
    }

    /// Moves what the outbox holds to the socket until `backlog_max` bytes wait there.
    pub(super) fn drain_outbox(&mut self, socket: &mut Socket, backlog_max: usize) {
        let Some(outbox) = &self.outbox else { return };
        while socket.backlog_bytes() < backlog_max
            && let Some(parcel) = outbox.pop()
        {
            self.gateway.metrics.delivered.inc_by(parcel.messages as u64);
            socket.push(parcel.frames);
        }
    }

    fn take(&mut self, room: &RoomId, fetched: Fetched, socket: &mut Socket) {
        let Some(subscription) = self.rooms.get_mut(room) else { return };
        let wanted_last = matches!(subscription.stage, Stage::Last(_));
        let (next, at_end) = match fetched {
            Fetched::Info(Ok(info)) => {
                let Stage::Asked(wanted) = &subscription.stage else { return };
                let (head, oldest) = info.map_or((0, 1), |info| (info.head, info.oldest));
                let next = begin(&self.gateway.store.epoch(), room, wanted, head, oldest, socket.out());
                let at_end = matches!(next, Stage::Behind(cursor) if cursor >= head);
                (next, at_end)
            }
            Fetched::Page(Ok(page)) => {
                let cursor = if let Stage::Behind(cursor) = subscription.stage { cursor } else { 0 };
                for message in page.messages.iter() {
                    encode_live(&message, socket.out());
                }
                self.gateway.metrics.delivered.inc_by(page.messages.len() as u64);
                let last = page.messages.len().checked_sub(1).and_then(|last| page.messages.get(last));
                let empty = if wanted_last { page.head } else { cursor };
                (Stage::Behind(last.map_or(empty, |m| m.seq)), !page.more || wanted_last)
            }
            // The room springs into being with its first message.
            Fetched::Page(Err(ReadError::UnknownRoom)) => (Stage::Behind(0), true),
            Fetched::Info(Err(error)) | Fetched::Page(Err(error)) => {
                let reference = if let Stage::Asked(wanted) = &subscription.stage {
                    wanted.reference.clone()
                } else {
                    String::new()
                };
                write_error(&reference, &error.into(), socket.out());
                self.unsubscribe(room);
                return;
            }
        };
        subscription.stage = next;
        let Stage::Behind(cursor) = subscription.stage else { return };
        let outbox = self.outbox();
        if let Some(subscription) = self.rooms.get_mut(room)
            && at_end
            && self.gateway.hub.join(&subscription.attachment, &outbox, cursor)
        {
            subscription.stage = Stage::Live;
            self.behind.pop_front();
            self.drain_outbox(socket, BACKLOG_BYTES_MAX);
        }
    }
}

impl Drop for Subscriptions {
    fn drop(&mut self) {
        let rooms: Vec<RoomId> = self.rooms.keys().cloned().collect();
        for room in rooms {
            self.unsubscribe(&room);
        }
    }
}

fn fetch(gateway: &Arc<Gateway>, room: &RoomId, stage: &Stage) -> Fetch {
    let (store, room) = (gateway.store.clone(), room.clone());
    let page = |cursor, limit| HistoryQuery { cursor, from: None, to: None, limit, bytes_max: PAGE_BYTES };
    let query = match stage {
        Stage::Asked(_) => return Box::pin(async move { Fetched::Info(store.room(room).await) }),
        Stage::Last(last) => HistoryQuery { bytes_max: usize::MAX, ..page(Cursor::Before(u64::MAX), *last) },
        Stage::Behind(cursor) => page(Cursor::After(*cursor), PAGE_MESSAGES),
        Stage::Live => page(Cursor::After(u64::MAX), 1),
    };
    Box::pin(async move { Fetched::Page(store.history(room, query).await) })
}

/// Answers a subscription and decides where it begins.
fn begin(
    epoch: &Arc<str>,
    room: &RoomId,
    wanted: &Subscribe,
    head: u64,
    oldest: u64,
    out: &mut Vec<u8>,
) -> Stage {
    let reset = Reset { epoch: epoch.clone(), oldest, head };
    if wanted.announced {
        write_room_frame("subscribed", &wanted.reference, room, &reset, out);
    }
    let is_foreign = wanted.epoch.as_ref().is_some_and(|given| **given != **epoch);
    let is_out_of_reach = match wanted.start {
        Start::After(after) => after > head || (after > 0 && after + 1 < oldest),
        Start::Live | Start::Last(_) => false,
    };
    // `after=0` means "from the oldest", which every history can honour.
    let is_reset = is_out_of_reach || (is_foreign && !matches!(wanted.start, Start::After(0)));
    if is_reset {
        write_room_frame("reset", "", room, &reset, out);
        return Stage::Behind(match wanted.on_reset {
            OnReset::Replay => oldest.saturating_sub(1),
            OnReset::Live => head,
        });
    }
    match wanted.start {
        Start::Live => Stage::Behind(head),
        Start::After(after) => Stage::Behind(after.max(oldest.saturating_sub(1))),
        Start::Last(last) => Stage::Last(last),
    }
}

fn write_room_frame(kind: &str, reference: &str, room: &RoomId, reset: &Reset, out: &mut Vec<u8>) {
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
    reset.write_members(out);
    out.push(b'}');
    write::end_text(out, start);
}
