//! What has no receipt yet, room by room, in order.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use serde::Serialize;
use tokio::sync::oneshot;

use crate::error::Error;
use crate::options::Options;
use crate::outbox::Outbox;
use crate::random;
use crate::rooms::Receipt;

/// Most unanswered frames over all rooms; the server stops reading a socket at 1,024.
const UNANSWERED_MAX: usize = 256;

/// What a `send` says, but for its type and its ref.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SendFrame {
    pub(crate) room_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) user_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) username: Option<String>,
    pub(crate) message: String,
    pub(crate) message_id: String,
    pub(crate) message_type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) timestamp: Option<String>,
}

#[derive(Serialize)]
struct Referenced<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(rename = "ref")]
    reference: &'a str,
    #[serde(flatten)]
    frame: &'a SendFrame,
}

type Done = oneshot::Sender<Result<Receipt, Error>>;

/// A message without a receipt.
#[derive(Debug)]
struct Outgoing {
    id: u64,
    frame: SendFrame,
    done: Done,
    /// Given up on the way: it keeps its place until its answer comes, and does not go out again.
    is_given_up: bool,
}

/// A frame without an answer.
#[derive(Debug)]
struct Unanswered {
    reference: String,
    id: u64,
    room: String,
    message_bytes: usize,
    sent: Sent,
}

/// When a frame was to be written, and how long it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    pub(crate) at: Instant,
    pub(crate) frame_bytes: usize,
}

/// The messages of one room, oldest first. The first `sent` of them are on the way.
#[derive(Debug)]
struct Lane {
    waiting: VecDeque<Outgoing>,
    sent: usize,
    /// Set after a refusal: nothing is sent until all answers have come and the pause is over.
    is_held: bool,
    /// End of the pause, once all answers have come.
    until: Option<Instant>,
    failures: u32,
    /// Most messages on the way: one after a refusal, doubled by each receipt, so that a busy server is asked gently.
    window: usize,
    /// When a message went out last, counted in messages.
    served: u64,
}

impl Lane {
    fn release(&mut self) {
        self.is_held = false;
        self.until = None;
    }
}

/// The lanes of all rooms.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    rooms: HashMap<String, Lane>,
    /// In the order of sending.
    unanswered: VecDeque<Unanswered>,
    waiting: usize,
    ids: u64,
    refs: u64,
    /// A ping came, and may precede a refusal: what goes out behind its pong must wait for the next answer.
    is_gated: bool,
}

impl Lanes {
    /// Gives a message its place. Its id, and where its result will be.
    pub(crate) fn send(
        &mut self,
        frame: SendFrame,
        options: &Options,
        out: &mut Outbox,
    ) -> Result<(u64, oneshot::Receiver<Result<Receipt, Error>>), Error> {
        if self.waiting >= options.waiting_max {
            let refused = Error::new("queue_full", format!("{} messages wait already", self.waiting));
            return Err(refused.with(|problem| problem.retryable = true));
        }
        self.waiting += 1;
        self.ids += 1;
        let (done, result) = oneshot::channel();
        let room = frame.room_id.clone();
        let lane = self.rooms.entry(room.clone()).or_insert_with(|| Lane {
            waiting: VecDeque::new(),
            sent: 0,
            is_held: false,
            until: None,
            failures: 0,
            window: options.in_flight_max,
            served: 0,
        });
        lane.waiting.push_back(Outgoing { id: self.ids, frame, done, is_given_up: false });
        self.flush(&room, out);
        Ok((self.ids, result))
    }

    /// Gives a message up. What is on the way may be stored nevertheless.
    pub(crate) fn cancel(&mut self, id: u64, options: &Options, out: &mut Outbox) {
        if let Some(frame) = self.unanswered.iter().find(|frame| frame.id == id) {
            // Its answer is still to come: until then it counts among what is on the way, and a ping's gate stays.
            let lane = self.rooms.get_mut(&frame.room);
            let outgoing = lane.and_then(|lane| lane.waiting.iter_mut().find(|outgoing| outgoing.id == id));
            if let Some(outgoing) = outgoing
                && !std::mem::replace(&mut outgoing.is_given_up, true)
            {
                self.waiting -= 1;
            }
            return;
        }
        let mut lanes = self.rooms.iter();
        let room = lanes.find(|(_, lane)| lane.waiting.iter().any(|outgoing| outgoing.id == id));
        let Some(room) = room.map(|(room, _)| room.clone()) else { return };
        self.remove(&room, id);
        self.go_on(&room, options);
        self.flush_all(out);
    }

    /// Drops what was given up, when none of it is on the way any more.
    fn drop_given_up(&mut self, room: &str) {
        let Some(lane) = self.rooms.get_mut(room) else { return };
        lane.waiting.retain(|outgoing| !outgoing.is_given_up);
        if lane.waiting.is_empty() {
            self.rooms.remove(room);
        }
    }

    /// Fails everything.
    pub(crate) fn fail_all(&mut self, error: &Error) {
        for outgoing in self.rooms.drain().flat_map(|(_, lane)| lane.waiting) {
            // Nobody may wait for it any more.
            let _ = outgoing.done.send(Err(error.clone()));
        }
        *self = Self::default();
    }

    /// The oldest frame without an answer.
    pub(crate) fn oldest_sent(&self) -> Option<Sent> {
        self.unanswered.front().map(|frame| frame.sent)
    }

    /// When a pause ends.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.rooms.values().filter_map(|lane| lane.until).min()
    }

    /// Lets everything unanswered be sent again, but for what made a frame too big.
    pub(crate) fn on_lost(&mut self, was_too_big: bool) {
        let unanswered = std::mem::take(&mut self.unanswered);
        self.is_gated = false;
        for lane in self.rooms.values_mut() {
            lane.sent = 0;
            lane.release();
        }
        let rooms: Vec<String> = self.rooms.keys().cloned().collect();
        rooms.iter().for_each(|room| self.drop_given_up(room));
        let largest = unanswered.iter().max_by_key(|frame| frame.message_bytes).filter(|_| was_too_big);
        if let Some(Unanswered { room, id, .. }) = largest
            && let Some(outgoing) = self.remove(room, *id)
        {
            let _ =
                outgoing.done.send(Err(Error::new("too_large", "the server takes no frame as big as this")));
        }
    }

    pub(crate) fn on_ping(&mut self) {
        self.is_gated = !self.unanswered.is_empty();
    }

    pub(crate) fn on_ack(&mut self, reference: &str, receipt: Receipt, options: &Options, out: &mut Outbox) {
        let Some(frame) = self.answered(reference) else { return };
        if let Some(outgoing) = self.remove(&frame.room, frame.id) {
            let _ = outgoing.done.send(Ok(receipt));
        }
        if let Some(lane) = self.rooms.get_mut(&frame.room)
            && !lane.is_held
        {
            lane.failures = 0;
            lane.window = lane.window.saturating_mul(2).min(options.in_flight_max);
        }
        self.on_answer(&frame.room, options, out);
    }

    /// Returns whether the error answers one of these.
    pub(crate) fn on_refused(
        &mut self,
        reference: &str,
        error: &Error,
        options: &Options,
        out: &mut Outbox,
    ) -> bool {
        let Some(frame) = self.answered(reference) else { return false };
        match self.rooms.get_mut(&frame.room) {
            Some(lane) if error.retryable => {
                lane.is_held = true;
                lane.window = 1;
            }
            _ => {
                if let Some(outgoing) = self.remove(&frame.room, frame.id) {
                    let _ = outgoing.done.send(Err(error.clone()));
                }
            }
        }
        self.on_answer(&frame.room, options, out);
        true
    }

    /// Sends what pauses end for.
    pub(crate) fn on_time(&mut self, now: Instant, out: &mut Outbox) {
        for lane in self.rooms.values_mut() {
            if lane.until.is_some_and(|until| until <= now) {
                lane.release();
            }
        }
        self.flush_all(out);
    }

    /// Begins with the room that was served the longest ago: none waits for ever beside busy ones.
    pub(crate) fn flush_all(&mut self, out: &mut Outbox) {
        let may_send = |lane: &Lane| !lane.is_held && lane.sent < lane.waiting.len().min(lane.window);
        let lanes = self.rooms.iter().filter(|(_, lane)| may_send(lane));
        let mut rooms: Vec<(u64, String)> = lanes.map(|(room, lane)| (lane.served, room.clone())).collect();
        rooms.sort_unstable();
        rooms.iter().for_each(|(_, room)| self.flush(room, out));
    }

    fn answered(&mut self, reference: &str) -> Option<Unanswered> {
        let index = self.unanswered.iter().position(|frame| frame.reference == reference)?;
        self.unanswered.remove(index)
    }

    fn on_answer(&mut self, room: &str, options: &Options, out: &mut Outbox) {
        self.is_gated = false;
        self.go_on(room, options);
        self.flush_all(out);
    }

    /// Waits after a refusal for all answers and then for the pause, to keep the order.
    fn go_on(&mut self, room: &str, options: &Options) {
        let is_answered = self.unanswered.iter().all(|frame| frame.room != room);
        let Some(lane) = self.rooms.get_mut(room) else { return };
        if !lane.is_held || lane.until.is_some() || !is_answered {
            return;
        }
        lane.sent = 0;
        let pause = options.pause(lane.failures, std::time::Duration::ZERO, random::fraction());
        lane.until = Some(Instant::now() + pause);
        lane.failures = lane.failures.saturating_add(1);
        self.drop_given_up(room);
    }

    fn flush(&mut self, room: &str, out: &mut Outbox) {
        let Some(lane) = self.rooms.get_mut(room) else { return };
        while lane.sent < lane.window
            && self.unanswered.len() < UNANSWERED_MAX
            && out.is_open()
            && !self.is_gated
            && !lane.is_held
        {
            let Some(outgoing) = lane.waiting.get(lane.sent) else { return };
            lane.sent += 1;
            self.refs += 1;
            lane.served = self.refs;
            let reference = format!("m{}", self.refs);
            let frame_bytes =
                out.push(&Referenced { kind: "send", reference: &reference, frame: &outgoing.frame });
            self.unanswered.push_back(Unanswered {
                reference,
                id: outgoing.id,
                room: room.to_owned(),
                message_bytes: outgoing.frame.message.len(),
                sent: Sent { at: Instant::now(), frame_bytes },
            });
        }
    }

    fn remove(&mut self, room: &str, id: u64) -> Option<Outgoing> {
        let lane = self.rooms.get_mut(room)?;
        let index = lane.waiting.iter().position(|outgoing| outgoing.id == id)?;
        let outgoing = lane.waiting.remove(index)?;
        if !outgoing.is_given_up {
            self.waiting -= 1;
        }
        if index < lane.sent {
            lane.sent -= 1;
        }
        if lane.waiting.is_empty() {
            self.rooms.remove(room);
        }
        Some(outgoing)
    }
}
