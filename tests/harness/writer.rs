//! A client that sends numbered messages, many of them unanswered at a time, and sends again, under the same ids,
//! what was not answered when the connection was lost.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Closed, Ws, chat_message};

/// What is spoken over a WebSocket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    Api,
    Chat,
}

/// A message that was acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Acked {
    pub(crate) number: u64,
    /// Not known when a broker is the log.
    pub(crate) seq: Option<u64>,
}

/// Says how long to wait before the next messages.
pub(crate) type Pace = Arc<dyn Fn() -> Duration + Send + Sync>;

pub(crate) struct Writer {
    pub(crate) name: String,
    pub(crate) room: String,
    pub(crate) acked: Vec<Acked>,
    dialect: Dialect,
    /// Most messages unanswered at a time.
    window: usize,
    next: u64,
    unanswered: VecDeque<u64>,
    /// Whether a refusal that may be tried again is as good as a lost connection.
    outlives_outages: bool,
    pace: Option<Pace>,
}

impl Writer {
    pub(crate) fn new(name: &str, room: &str, dialect: Dialect, window: usize) -> Self {
        Self {
            name: name.to_owned(),
            room: room.to_owned(),
            acked: Vec::new(),
            dialect,
            window,
            next: 0,
            unanswered: VecDeque::new(),
            outlives_outages: false,
            pace: None,
        }
    }

    /// Sends again what was refused because the store could not be reached. With more than one message unanswered at a
    /// time, later ones may then be stored before it.
    pub(crate) fn through_outages(mut self) -> Self {
        self.outlives_outages = true;
        self
    }

    /// Whether its messages are stored in the order of their numbers.
    pub(crate) fn keeps_order(&self) -> bool {
        !self.outlives_outages || self.window == 1
    }

    /// Waits as long as `pace` says before it sends more.
    pub(crate) fn paced(mut self, pace: Pace) -> Self {
        self.pace = Some(pace);
        self
    }

    /// The text of a message; its id is the same.
    pub(crate) fn text(&self, number: u64) -> String {
        format!("{}-{number}", self.name)
    }

    fn frame(&self, number: u64) -> Value {
        let text = self.text(number);
        match self.dialect {
            Dialect::Chat => chat_message(&text, &text),
            Dialect::Api => {
                json!({"type": "send", "roomId": self.room, "userId": "w", "message": text, "messageId": text})
            }
        }
    }

    /// Sends until there is `enough` and all is answered (`Ok`), or until the connection is lost.
    pub(crate) async fn run(
        &mut self,
        address: SocketAddr,
        mut enough: impl FnMut(&Self) -> bool,
    ) -> Result<(), Closed> {
        let path = match self.dialect {
            Dialect::Chat => format!("/chat/{}", self.room),
            Dialect::Api => "/v1/ws".to_owned(),
        };
        let mut socket = Ws::try_open(address, &path).await.ok_or(None)?;
        let mut frames: Vec<Value> = self.unanswered.iter().map(|number| self.frame(*number)).collect();
        loop {
            if self.unanswered.len() <= self.window / 2 {
                let pause = self.pace.as_ref().map_or(Duration::ZERO, |pace| pace());
                if !pause.is_zero() {
                    tokio::time::sleep(pause).await;
                }
                while self.unanswered.len() < self.window && !enough(self) {
                    frames.push(self.frame(self.next));
                    self.unanswered.push_back(self.next);
                    self.next += 1;
                }
            }
            // When this fails, what was answered before still counts, and the reason for the end comes after it.
            let _ = socket.try_send_all(&frames).await;
            frames.clear();
            if self.unanswered.is_empty() {
                socket.close().await;
                return Ok(());
            }
            let answer = socket.next().await?;
            if self.outlives_outages && Self::is_retryable(&answer) {
                return Err(None);
            }
            self.take(&answer);
        }
    }

    /// Whether what was sent may be sent again, under its id: nobody knows, or nothing happened.
    fn is_retryable(answer: &Value) -> bool {
        answer["type"] == "error" && answer["retryable"] == true || answer["status"] == "error"
    }

    fn take(&mut self, answer: &Value) {
        let is_ack = answer["type"] == "ack" || answer["status"] == "success";
        assert!(is_ack, "{} was refused: {answer}", self.name);
        let number = self.unanswered.pop_front().expect("an answer to nothing");
        assert_eq!(answer["messageId"], self.text(number), "answers come in order");
        self.acked.push(Acked { number, seq: answer["seq"].as_u64() });
    }

    /// What is acknowledged must stand in the room's history under its number, once, in the order it was sent.
    pub(crate) fn check(&self, history: &[Value]) {
        let prefix = format!("{}-", self.name);
        let mut mine: Vec<(u64, u64)> = history
            .iter()
            .filter_map(|message| {
                let number = message["message"].as_str()?.strip_prefix(&prefix)?.parse().ok()?;
                Some((number, message["seq"].as_u64()?))
            })
            .collect();
        if !self.keeps_order() {
            mine.sort_unstable();
        }
        for (place, (number, _)) in mine.iter().enumerate() {
            assert_eq!(*number, place as u64, "{}: lost, repeated or out of order", self.name);
        }
        for acked in &self.acked {
            let stored = mine.get(usize::try_from(acked.number).unwrap()).map(|(_, seq)| *seq);
            let is_stored = stored.is_some() && (acked.seq.is_none() || acked.seq == stored);
            assert!(is_stored, "{}: {acked:?} is acknowledged, but {stored:?}", self.name);
        }
    }
}
