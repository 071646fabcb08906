//! `GET /v1/rooms/{room}/events`: Server-Sent Events, resumed by `Last-Event-ID` (`epoch:seq`).

use std::sync::Arc;
use std::task::Poll;

use hubbub_core::invariant::saturate;
use hubbub_core::{FieldError, Message, RoomId};
use hubbub_pipeline::Waiter;
use hubbub_pipeline::hub::{Delivery, Outbox};
use hyper::HeaderMap;

use super::Answer;
use super::endpoint::Call;
use super::query::{Query, refuse_faults, require};
use super::sse::{
    COMMENT, HEARTBEAT, end, event_stream, last_event, send_away, write_cursor, write_events, write_id,
};
use super::streamed::Writer;
use crate::auth::caller::Caller;
use crate::auth::open_connections::ConnectionKind;
use crate::auth::session::Session;
use crate::follow::{Audience, FollowRequest, Follower, OnReset, Start, Step};
use crate::problem::{Problem, Reset};
use crate::server::Peer;
use crate::ws::live_members;

/// Live messages gathered into one chunk until it is so large.
const CHUNK_BYTES: usize = 64 * 1024;

pub(super) async fn events(call: Call) -> Answer {
    let peer = &call.peer;
    let room = call.room()?;
    let caller = call.caller()?;
    let subscription = parse(call.headers(), &call.query)?;
    peer.gateway.check_reader(&room, &caller).await?;
    let listed = call.listed(ConnectionKind::RoomEvents);
    listed.follow([&room].into_iter());
    let session = Session::listed(&peer.gateway.auth, &caller, &listed);
    let (writer, response) = event_stream();
    tokio::spawn(stream(peer.clone(), room, (caller, session), subscription, writer));
    Ok(response)
}

/// Where to begin: behind `Last-Event-ID`, else `?after=` or `?last=`, else with the next message.
fn parse(headers: &HeaderMap, query: &Query) -> Result<FollowRequest, Problem> {
    let audience = Audience::Readers;
    let mut faults = Vec::new();
    let on_reset = OnReset::parse(query.get("onReset").unwrap_or("replay"));
    let on_reset = require(on_reset, "onReset", OnReset::RULE, &mut faults).unwrap_or(OnReset::Replay);
    let after = query.number("after", &mut faults);
    let last = query.number("last", &mut faults).map(saturate::<u64, usize>);
    if last.is_some_and(|last| last > LAST_MAX) {
        faults.push(FieldError::new("last", format!("must be at most {LAST_MAX}")));
    }
    if after.is_some() && last.is_some() {
        faults.push(FieldError::new("last", "cannot be combined with after"));
    }
    refuse_faults(faults)?;
    if let Some((epoch, after)) = last_event(headers, "must be the id of an event, epoch:seq")? {
        return Ok(FollowRequest { start: Start::After(after), epoch: Some(epoch), on_reset, audience });
    }
    let start = match (after, last) {
        (Some(after), _) => Start::After(after),
        (None, Some(last)) if last > 0 => Start::Last(last),
        (None, _) => Start::Live,
    };
    Ok(FollowRequest { start, epoch: query.get("epoch").map(str::to_owned), on_reset, audience })
}

pub(super) const LAST_MAX: usize = 1_000;

async fn stream(
    peer: Arc<Peer>,
    room: RoomId,
    (caller, session): (Caller, Session),
    subscription: FollowRequest,
    writer: Writer,
) {
    let waiter = Arc::new(Waiter::default());
    let outbox = peer.gateway.hub.outbox(peer.gateway.outbox, waiter.clone());
    let mut shutdown = peer.shutdown.clone();
    let epoch = peer.gateway.store.epoch();
    let memory = peer.gateway.hub.memory().clone();
    let following = async {
        let mut follower =
            Follower::new(peer.gateway.clone(), room, caller.user, subscription, outbox.clone());
        // Where a reader that has no event with an id yet is to go on, once it has the last messages.
        let (mut cursor_due, mut is_live) = (None, false);
        while !is_live {
            let mut out = Vec::new();
            let step = std::future::poll_fn(|context| {
                waiter.register(context);
                match follower.poll_step(context) {
                    Poll::Ready(step) => Poll::Ready(Some(step)),
                    Poll::Pending if outbox.is_cut() => Poll::Ready(None),
                    // Before it is live, all that can be in there is the end.
                    Poll::Pending => outbox.pop().map_or(Poll::Pending, |_| Poll::Ready(None)),
                }
            });
            match step.await {
                Some(Step::Begun { at, is_reset, cursor }) => {
                    write_begun(&at, is_reset, cursor, &mut out);
                    cursor_due = cursor.is_none().then_some(at.head);
                }
                Some(Step::Reset { at, cursor }) => {
                    write_begun(&at, true, Some(cursor), &mut out);
                    cursor_due = None;
                }
                Some(Step::Missed(messages)) => {
                    cursor_due = None;
                    messages.iter().for_each(|message| write_message(&epoch, &message, &mut out));
                    peer.gateway.metrics.delivered.inc_by(messages.len() as u64);
                }
                Some(Step::Outrun) => {}
                Some(Step::Live) => {
                    is_live = true;
                    cursor_due.into_iter().for_each(|cursor| write_cursor(&epoch, cursor, &mut out));
                }
                Some(Step::Failed(problem)) => return end(&problem, &writer).await,
                // Another history began: it asks anew.
                None if outbox.is_cut() => return,
                Some(Step::Gone) | None => return end(&Problem::removed(), &writer).await,
            }
            if !out.is_empty() && write_events(&writer, memory.frames(out)).await.is_err() {
                return;
            }
        }
        loop {
            let Gathered { events, is_ended } = gather(&peer, &epoch, &outbox, &waiter).await;
            if !events.is_empty() && write_events(&writer, memory.frames(events)).await.is_err() {
                return;
            }
            if is_ended {
                return end(&Problem::removed(), &writer).await;
            }
            if outbox.is_cut() {
                return;
            }
        }
    };
    tokio::select! {
        () = following => {}
        () = writer.gone() => {}
        () = shutdown.requested() => send_away(&peer.gateway, &writer).await,
        ended = session.end() => end(&ended.problem(), &writer).await,
    }
}

#[derive(Default)]
struct Gathered {
    events: Vec<u8>,
    /// The subscription has ended behind these.
    is_ended: bool,
}

impl Gathered {
    fn add(&mut self, peer: &Peer, epoch: &str, delivery: &Delivery) {
        match delivery {
            Delivery::EncodedChunk(chunk) => {
                peer.gateway.metrics.delivered.inc_by(chunk.messages() as u64);
                peer.gateway.hub.timeline().delivered(chunk);
                for (seq, frame) in chunk.iter() {
                    write_id(epoch, seq, &mut self.events);
                    self.events.extend_from_slice(b"data: {");
                    self.events.extend_from_slice(live_members(frame));
                    self.events.extend_from_slice(b"\n\n");
                }
            }
            Delivery::Ended { .. } => self.is_ended = true,
            Delivery::Joined { .. } | Delivery::Marked { .. } => {}
        }
    }
}

/// The next live messages as events, or a heartbeat; nothing when the reader lagged too far behind.
async fn gather(peer: &Peer, epoch: &str, outbox: &Outbox, waiter: &Waiter) -> Gathered {
    let mut gathered = Gathered::default();
    let gathering = std::future::poll_fn(|context| {
        waiter.register(context);
        while gathered.events.len() < CHUNK_BYTES
            && !gathered.is_ended
            && let Some(delivery) = outbox.pop()
        {
            gathered.add(peer, epoch, &delivery);
        }
        let is_over = gathered.is_ended || outbox.is_cut();
        if gathered.events.is_empty() && !is_over { Poll::Pending } else { Poll::Ready(()) }
    });
    if tokio::time::timeout(HEARTBEAT, gathering).await.is_err() {
        gathered.events.extend_from_slice(COMMENT);
    }
    gathered
}

/// With an id, so that a reader that is cut off before the first message comes back to where it began.
fn write_begun(at: &Reset, is_reset: bool, cursor: Option<u64>, out: &mut Vec<u8>) {
    cursor.into_iter().for_each(|cursor| write_id(&at.epoch, cursor, out));
    out.extend_from_slice(if is_reset { b"event: reset\ndata: {" } else { b"event: subscribed\ndata: {" });
    at.write_members(out);
    out.extend_from_slice(b"}\n\n");
}

/// JSON holds no line breaks, so that one data line is enough.
fn write_message(epoch: &str, message: &Message<'_>, out: &mut Vec<u8>) {
    write_id(epoch, message.seq, out);
    out.extend_from_slice(b"data: ");
    message.write_json(out);
    out.extend_from_slice(b"\n\n");
}
