//! Rooms: sending to them, following them, and their history.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Method;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::client::Client;
use crate::clock;
use crate::error::Error;
use crate::http::{Request, escape, with_query};
use crate::random::make_id;
use crate::sending::SendFrame;
use crate::socket::{Follower, Socket};

/// Message of a room.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Message {
    /// The sender's id of it.
    pub message_id: String,
    /// Where.
    pub room_id: String,
    /// By whom.
    pub user_id: String,
    /// The name to show, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    /// The text.
    pub message: String,
    /// `TEXT`, `JOIN` or `LEAVE`.
    pub message_type: String,
    /// The sender's clock.
    pub timestamp: String,
    /// The position in the room.
    pub seq: u64,
    /// The server's clock; never decreases within a room.
    pub received_at: String,
}

/// Says that a message is on disk. With a broker as the server's log only the id is known; then `seq` is 0.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Receipt {
    /// The sender's id of the message.
    pub message_id: String,
    /// The position in the room.
    pub seq: u64,
    /// History that `seq` belongs to.
    pub epoch: String,
    /// The server's clock.
    pub received_at: String,
    /// It was stored before.
    pub duplicate: bool,
}

/// What a subscription brings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The server has accepted the subscription: at every connection.
    Ready(Ready),
    /// A message.
    Message(Message),
    /// Forget what you hold.
    Reset(Reset),
}

/// Where a room stands: `head` tells how far missed messages go.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Ready {
    /// History that the numbers belong to.
    pub epoch: String,
    /// The oldest position that is kept.
    pub oldest: u64,
    /// The newest position.
    pub head: u64,
}

/// A cursor could not be honoured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reset {
    /// History from here on.
    pub epoch: String,
    /// The oldest position that is kept.
    pub oldest: u64,
    /// The newest position.
    pub head: u64,
    /// A backup was restored; otherwise retention deleted something, or the cursor was beyond the newest.
    pub history_replaced: bool,
}

/// Where to continue; both belong together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Position {
    /// History that `seq` belongs to.
    pub epoch: String,
    /// The last message, 0 for none.
    pub seq: u64,
}

/// Options of a message. What is `None` is left out, but for the id, which is made, the type, which is `TEXT`, and the time.
#[derive(Debug, Clone, Default)]
pub struct SendOptions {
    /// The same for all attempts.
    pub message_id: Option<String>,
    /// By whom; else [`crate::Options::user`].
    pub user_id: Option<String>,
    /// The name to show; else [`crate::Options::username`].
    pub username: Option<String>,
    /// `TEXT`, `JOIN` or `LEAVE`.
    pub message_type: Option<String>,
    /// The sender's clock, RFC 3339; else the time of the call.
    pub timestamp: Option<String>,
}

/// Start of a subscription.
#[derive(Debug, Clone, Default)]
pub enum Start {
    /// With the next message.
    #[default]
    Now,
    /// With so many of the newest messages.
    Last(u64),
    /// Behind the last `seq` you have (0 = with the oldest); an empty epoch is unknown.
    After(Position),
}

impl Start {
    /// Behind this `seq` (0 = with the oldest), in whatever epoch.
    pub fn after(seq: u64) -> Self {
        Self::After(Position { epoch: String::new(), seq })
    }
}

/// Options of a subscription.
#[derive(Debug, Clone)]
pub struct SubscribeOptions {
    /// After a reset, go on with the next message instead of the oldest.
    pub live_on_reset: bool,
    /// Most events that wait to be taken; then it pauses until half of them are.
    pub buffer_max: usize,
}

impl Default for SubscribeOptions {
    fn default() -> Self {
        Self { live_on_reset: false, buffer_max: 1_000 }
    }
}

/// Selects a page of history; what is `None` is left out.
#[derive(Debug, Clone, Default)]
pub struct HistoryQuery {
    /// Forward, behind this `seq`.
    pub after: Option<u64>,
    /// Back, before this `seq`.
    pub before: Option<u64>,
    /// Most messages.
    pub limit: Option<u64>,
    /// History that the `seq` belongs to.
    pub epoch: Option<String>,
}

/// A page of history, newest last.
#[derive(Debug, Clone, Deserialize)]
pub struct History {
    /// The messages.
    pub messages: Vec<Message>,
    /// History that the numbers belong to.
    pub epoch: String,
    /// The oldest position that is kept.
    pub oldest: u64,
    /// The newest position.
    pub head: u64,
    /// The `after` or `before` of the next page; `None` at the end.
    pub next: Option<u64>,
}

/// Room to send to and to follow.
#[derive(Debug, Clone)]
pub struct Room {
    name: String,
    client: Client,
}

impl Room {
    pub(crate) fn new(name: String, client: Client) -> Self {
        Self { name, client }
    }

    /// Returns once the message is on disk. Until then it is sent again, with the same id. Dropping the future gives the
    /// message up; it may be stored nevertheless.
    ///
    /// # Errors
    /// The server's final refusal; `queue_full`; `closed`.
    pub async fn send(&self, text: &str) -> Result<Receipt, Error> {
        self.send_later(text, SendOptions::default())?.await
    }

    /// Returns as soon as the message has its place among those of the room, so that many can be on the way: messages of
    /// one room are stored in the order of these calls. Await what it returns for the receipt.
    ///
    /// # Errors
    /// `queue_full`, `closed`.
    pub fn send_later(&self, text: &str, options: SendOptions) -> Result<Pending, Error> {
        let standard = &self.client.http().options;
        let frame = SendFrame {
            room_id: self.name.clone(),
            user_id: options.user_id.or_else(|| standard.user.clone()),
            username: options.username.or_else(|| standard.username.clone()),
            message: text.to_owned(),
            message_id: options.message_id.unwrap_or_else(make_id),
            message_type: options.message_type.unwrap_or_else(|| "TEXT".to_owned()),
            timestamp: options.timestamp.or_else(clock::timestamp),
        };
        let socket = self.client.socket()?;
        let (id, receipt) = socket.send(frame)?;
        Ok(Pending { id, receipt, socket, is_done: false, _client: self.client.clone() })
    }

    /// Follows the room. A client follows a room once at a time.
    ///
    /// # Errors
    /// `invalid` if it is followed already; `closed`.
    pub fn subscribe(&self, start: Start, options: SubscribeOptions) -> Result<Subscription, Error> {
        let socket = self.client.socket()?;
        let (id, position) = socket.follow(Follower::new(self.name.clone(), start, options))?;
        Ok(Subscription { id, socket, position, _client: self.client.clone() })
    }

    /// Reads a page of history.
    ///
    /// # Errors
    /// The server's refusal: `unknown_room`; `reset` if the cursor cannot be honoured.
    pub async fn history(&self, query: HistoryQuery) -> Result<History, Error> {
        let number = |number: Option<u64>| number.map(|number| number.to_string());
        let path = format!("/v1/rooms/{}/messages", escape(&self.name));
        let pairs = [
            ("after", number(query.after)),
            ("before", number(query.before)),
            ("limit", number(query.limit)),
            ("epoch", query.epoch),
        ];
        let request = Request::new(Method::GET, with_query(&path, pairs)).wait(Duration::ZERO);
        self.client.request(&request).await?.value("messages")
    }
}

/// The receipt to come. Dropping it gives the message up; it may be stored nevertheless.
#[derive(Debug)]
#[must_use = "dropping it gives the message up"]
pub struct Pending {
    id: u64,
    receipt: oneshot::Receiver<Result<Receipt, Error>>,
    socket: Arc<Socket>,
    is_done: bool,
    /// The connection stays open meanwhile.
    _client: Client,
}

impl Future for Pending {
    type Output = Result<Receipt, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let result = std::task::ready!(Pin::new(&mut self.receipt).poll(cx));
        self.is_done = true;
        Poll::Ready(result.unwrap_or_else(|_| Err(Error::closed())))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.is_done {
            self.socket.cancel(self.id);
        }
    }
}

/// Events of one room. Those nobody has taken yet are bounded. Dropping it ends it.
#[derive(Debug)]
pub struct Subscription {
    id: u64,
    socket: Arc<Socket>,
    position: Position,
    /// The connection stays open meanwhile.
    _client: Client,
}

impl Subscription {
    /// The next event; `None` at the end, which comes with [`Client::close`] and behind the server's error. May be dropped
    /// and called again.
    ///
    /// # Errors
    /// With which the server ended it; it is the last event. `removed` if its user is no member any more or the room is gone,
    /// `forbidden` if the token of [`Client::set_token`] may not read it.
    pub async fn next(&mut self) -> Option<Result<Event, Error>> {
        loop {
            // Made before looking, so that nothing in between is missed.
            let changed = self.socket.changed(self.id)?;
            let changed = changed.notified();
            match self.socket.take(self.id) {
                Poll::Ready(Some(Ok((event, position)))) => {
                    self.position = position;
                    return Some(Ok(event));
                }
                Poll::Ready(Some(Err(error))) => return Some(Err(error)),
                Poll::Ready(None) => return None,
                Poll::Pending => changed.await,
            }
        }
    }

    /// Behind the last event that was taken: keep it to continue there with another client. Before the first event of one
    /// that began with [`Start::Now`] or [`Start::Last`] its `seq` is 0, and [`Start::After`] would begin with the oldest
    /// message: do not keep that.
    pub fn position(&self) -> &Position {
        &self.position
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.socket.unfollow(self.id);
    }
}
