//! One subscription, as the socket sees it: its cursor, and the events nobody has taken yet.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Poll;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::error::Error;
use crate::rooms::{Event, Message, Position, Ready, Reset, Start, SubscribeOptions};

/// Where to continue. `seq` is `None` before anything is known.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cursor {
    pub(crate) epoch: String,
    pub(crate) seq: Option<u64>,
}

impl Cursor {
    /// The start's; an unknown one is empty.
    pub(crate) fn of(start: Start) -> Self {
        match start {
            Start::After(Position { epoch, seq }) => Self { epoch, seq: Some(seq) },
            Start::Now | Start::Last(_) => Self::default(),
        }
    }

    pub(crate) fn position(&self) -> Position {
        Position { epoch: self.epoch.clone(), seq: self.seq.unwrap_or(0) }
    }

    /// Goes on at `seq` of another history, or of the same. What happened there.
    pub(crate) fn reset(&mut self, at: Ready, seq: u64) -> Reset {
        let history_replaced = !self.epoch.is_empty() && self.epoch != at.epoch;
        *self = Self { epoch: at.epoch.clone(), seq: Some(seq) };
        Reset { epoch: at.epoch, oldest: at.oldest, head: at.head, history_replaced }
    }
}

/// What every frame of the server may have.
#[derive(Deserialize)]
pub(crate) struct ServerFrame {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    #[serde(default, rename = "ref")]
    pub(crate) reference: Value,
    #[serde(default, rename = "roomId")]
    pub(crate) room: String,
}

/// Members of a frame of a certain type; what does not fit stays empty.
pub(crate) fn members<T: for<'a> Deserialize<'a> + Default>(text: &str) -> T {
    serde_json::from_str(text).unwrap_or_default()
}

/// A subscription. At `buffer_max` events it pauses, and continues behind the last one when half of them are taken.
#[derive(Debug)]
pub(crate) struct Follower {
    pub(crate) room: String,
    /// Ref of the frame that subscribed last.
    pub(crate) reference: String,
    pub(crate) is_paused: bool,
    /// Whether `subscribed` came on this connection. What comes before belongs to an older subscription.
    pub(crate) is_announced: bool,
    pub(crate) changed: Arc<Notify>,
    options: SubscribeOptions,
    last: u64,
    /// Before the first of the `last` messages, once it is known. Goes out until a message came; filters nothing, since
    /// positions may have gaps.
    resume: Option<u64>,
    cursor: Cursor,
    events: VecDeque<(Event, Position)>,
    is_over: bool,
    error: Option<Error>,
}

/// What [`Follower::take`] found.
pub(crate) type Taken = Poll<Option<Result<(Event, Position), Error>>>;

impl Follower {
    pub(crate) fn new(room: String, start: Start, options: SubscribeOptions) -> Self {
        let last = if let Start::Last(last) = start { last } else { 0 };
        Self {
            room,
            reference: String::new(),
            is_paused: false,
            is_announced: false,
            changed: Arc::default(),
            options,
            last,
            resume: None,
            cursor: Cursor::of(start),
            events: VecDeque::new(),
            is_over: false,
            error: None,
        }
    }

    pub(crate) fn position(&self) -> Position {
        let mut position = self.cursor.position();
        position.seq = self.cursor.seq.or(self.resume).unwrap_or(0);
        position
    }

    /// The next event; pending if there is none yet.
    pub(crate) fn take(&mut self) -> Taken {
        match self.events.pop_front() {
            Some(event) => Poll::Ready(Some(Ok(event))),
            None if self.is_over => Poll::Ready(self.error.take().map(Err)),
            None => Poll::Pending,
        }
    }

    /// Whether a paused one may go on.
    pub(crate) fn has_space(&self) -> bool {
        self.is_paused && !self.is_over && self.events.len() <= self.options.buffer_max / 2
    }

    /// The frame that subscribes behind what is buffered.
    pub(crate) fn frame(&self) -> Value {
        let on_reset = if self.options.live_on_reset { "live" } else { "replay" };
        let mut frame = json!({
            "type": "subscribe", "ref": self.reference, "roomId": self.room, "onReset": on_reset,
        });
        let mut set = |name: &str, value: Value| {
            if let Value::Object(members) = &mut frame {
                members.insert(name.to_owned(), value);
            }
        };
        match self.cursor.seq.or(self.resume) {
            Some(seq) => {
                set("after", seq.into());
                if !self.cursor.epoch.is_empty() {
                    set("epoch", self.cursor.epoch.as_str().into());
                }
            }
            None if self.last > 0 => set("last", self.last.into()),
            None => {}
        }
        frame
    }

    pub(crate) fn on_subscribed(&mut self, at: Ready) {
        self.is_announced = true;
        // Without `last`, the first message is the next after the head.
        if self.cursor.seq.is_none() && (self.last == 0 || at.head == 0) {
            self.cursor.seq = Some(at.head);
        } else if self.cursor.seq.is_none() && self.resume.is_none() {
            // Asking for the newest ones again would leave out what came meanwhile.
            let first = at.head.saturating_sub(self.last);
            self.resume = Some(first.max(at.oldest.saturating_sub(1)));
        }
        // A cursor of another epoch is answered by a `reset` next, which carries the new epoch.
        if self.cursor.epoch.is_empty() || self.cursor.seq.or(self.resume).unwrap_or(0) == 0 {
            self.cursor.epoch.clone_from(&at.epoch);
        }
        if matches!(self.events.back(), Some((Event::Ready(_), _))) {
            // A server that comes and goes fills nothing.
            self.events.pop_back();
        }
        self.push(Event::Ready(at));
    }

    pub(crate) fn on_reset(&mut self, at: Ready) {
        // 0 is never answered with another reset.
        let seq = if self.options.live_on_reset { at.head } else { 0 };
        let reset = self.cursor.reset(at, seq);
        self.push(Event::Reset(reset));
    }

    /// Returns whether the buffer is full now.
    pub(crate) fn on_message(&mut self, message: Message) -> bool {
        if !self.is_announced || self.cursor.seq.is_some_and(|seq| message.seq <= seq) {
            return false;
        }
        self.cursor.seq = Some(message.seq);
        self.push(Event::Message(message));
        self.events.len() >= self.options.buffer_max
    }

    pub(crate) fn end(&mut self, error: Option<Error>) {
        if !self.is_over {
            self.is_over = true;
            self.error = error;
            self.changed.notify_one();
        }
    }

    fn push(&mut self, event: Event) {
        let position = self.position();
        self.events.push_back((event, position));
        self.changed.notify_one();
    }
}
