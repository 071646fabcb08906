//! A client that follows a room through every lost connection, by the seq of the last message it saw.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use serde_json::{Value, json};

use super::{Closed, Ws, in_time};

pub(crate) struct Follower {
    pub(crate) room: String,
    /// All it saw, in order.
    pub(crate) seen: Vec<Value>,
    /// Seq of the last message it saw, or where it began.
    pub(crate) position: u64,
    epoch: Option<String>,
    socket: Option<Ws>,
}

impl Follower {
    /// From the oldest message on.
    pub(crate) fn new(room: &str) -> Self {
        Self { room: room.to_owned(), seen: Vec::new(), position: 0, epoch: None, socket: None }
    }

    /// Connects, and goes on where it was. `false` when nobody answers.
    pub(crate) async fn resume(&mut self, address: SocketAddr) -> bool {
        let how = match &self.epoch {
            Some(epoch) => json!({"after": self.position, "epoch": epoch}),
            None => json!({"after": 0}),
        };
        self.subscribe(address, how).await
    }

    /// Connects and subscribes as said. What it begins behind must be what `how` says.
    pub(crate) async fn subscribe(&mut self, address: SocketAddr, how: Value) -> bool {
        let Some(mut socket) = Ws::try_open(address, "/v1/ws").await else { return false };
        let mut frame = json!({"type": "subscribe", "roomId": self.room});
        frame.as_object_mut().unwrap().extend(how.as_object().unwrap().clone());
        if !socket.try_send_all(&[frame]).await {
            return false;
        }
        let Ok(subscribed) = socket.next().await else { return false };
        if is_outage(&subscribed) {
            return false;
        }
        assert_eq!(subscribed["type"], "subscribed", "{subscribed}");
        let epoch = subscribed["epoch"].as_str().unwrap().to_owned();
        assert_eq!(*self.epoch.get_or_insert_with(|| epoch.clone()), epoch, "the history is another one");
        self.socket = Some(socket);
        true
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.socket.is_some()
    }

    /// Goes away without a word.
    pub(crate) fn disconnect(&mut self) {
        self.socket = None;
    }

    /// Takes one message.
    pub(crate) async fn next(&mut self) -> Result<(), Closed> {
        in_time("receiving", self.next_whenever()).await
    }

    /// The same, however long nobody sends.
    pub(crate) async fn next_whenever(&mut self) -> Result<(), Closed> {
        let Some(socket) = &mut self.socket else { return Err(None) };
        let frame = loop {
            match socket.next_whenever().await {
                Ok(frame) if frame["type"] == "presence" => {}
                Ok(frame) if is_outage(&frame) => {
                    self.socket = None;
                    return Err(None);
                }
                Ok(frame) => break frame,
                Err(closed) => {
                    self.socket = None;
                    return Err(closed);
                }
            }
        };
        assert_eq!(frame["type"], "message", "{frame}");
        let seq = frame["seq"].as_u64().unwrap();
        assert!(seq > self.position, "{seq} came after {}", self.position);
        self.position = seq;
        self.seen.push(frame);
        Ok(())
    }

    /// Follows until it has the message with this seq; the connection must hold.
    pub(crate) async fn read_to(&mut self, seq: u64) {
        while self.position < seq {
            self.next().await.unwrap_or_else(|closed| panic!("closed with {closed:?}"));
        }
    }

    /// What it saw must be this.
    pub(crate) fn check(&self, history: &[Value]) {
        let (seen, stored) = (super::seqs(&self.seen), super::seqs(history));
        let known: BTreeSet<_> = seen.iter().collect();
        let missed: Vec<_> = stored.iter().filter(|seq| !known.contains(seq)).collect();
        assert!(
            seen == stored,
            "{} has {} messages, of which these were not seen: {missed:?}",
            self.room,
            stored.len()
        );
        for (seen, stored) in self.seen.iter().zip(history) {
            let mut seen = seen.clone();
            seen.as_object_mut().unwrap().remove("type");
            assert_eq!(seen, *stored);
        }
    }
}

/// Whether the server says that its store cannot be read at the moment.
fn is_outage(frame: &Value) -> bool {
    frame["type"] == "error" && frame["code"] == "unavailable"
}
