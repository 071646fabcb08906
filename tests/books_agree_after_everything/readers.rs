//! Who reads rooms: at once, slowly, by stopping now and then, or from somewhere in the middle.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::world::{World, below};
use crate::harness::Ws;

/// The last message of each room.
pub(super) const END: &str = "end";
/// How many a late joiner reads.
const JOINED: usize = 100;

/// How often readers were cut off because they did not read.
pub(super) static CUT: AtomicU64 = AtomicU64::new(0);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    Live,
    Slow,
    Stops,
}

/// A message, without its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) seq: u64,
    /// Of all its members.
    digest: u64,
    pub(super) user: String,
    /// Its sender's name in the ledger and its number there.
    pub(super) number: Option<(String, u64)>,
    pub(super) received_at: String,
}

impl Seen {
    pub(super) fn new(message: &Value) -> Self {
        let mut hasher = DefaultHasher::new();
        for member in
            ["messageId", "roomId", "userId", "username", "message", "messageType", "timestamp", "receivedAt"]
        {
            message[member].as_str().hash(&mut hasher);
        }
        let text = message["message"].as_str().unwrap().split(' ').next().unwrap();
        let number = text.rsplit_once('-').map(|(name, number)| (name.to_owned(), number.parse().unwrap()));
        Self {
            seq: message["seq"].as_u64().unwrap(),
            digest: hasher.finish(),
            user: message["userId"].as_str().unwrap().to_owned(),
            number,
            received_at: message["receivedAt"].as_str().unwrap().to_owned(),
        }
    }
}

pub(super) struct Reader {
    pub(super) room: &'static str,
    world: Arc<World>,
    /// Seq of the last message it saw, or where it began.
    position: u64,
    epoch: Option<Value>,
    pub(super) seen: Vec<Seen>,
    /// Last seq before and first seq behind what retention took away.
    gaps: Vec<(u64, u64)>,
    socket: Option<Ws>,
    is_at_end: bool,
}

impl Reader {
    pub(super) fn new(world: &Arc<World>, room: &'static str, position: u64) -> Self {
        let (world, seen, gaps) = (world.clone(), Vec::new(), Vec::new());
        Self { room, world, position, epoch: None, seen, gaps, socket: None, is_at_end: false }
    }

    async fn connect(&mut self) -> Option<()> {
        let mut socket = Ws::try_open(self.world.address, "/v1/ws").await?;
        let mut frame = json!({"type": "subscribe", "roomId": self.room, "after": self.position});
        if let Some(epoch) = &self.epoch {
            frame["epoch"] = epoch.clone();
        }
        socket.try_send_all(&[frame]).await.then_some(())?;
        self.socket = Some(socket);
        Some(())
    }

    /// Takes one frame, or tries to connect.
    async fn step(&mut self) {
        let Some(socket) = &mut self.socket else {
            if self.connect().await.is_none() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            return;
        };
        let frame = match socket.next().await {
            Ok(frame) => frame,
            Err(closed) => {
                self.socket = None;
                if closed.is_some_and(|(code, _)| code == 4409) {
                    CUT.fetch_add(1, Ordering::SeqCst);
                }
                return;
            }
        };
        match frame["type"].as_str().unwrap() {
            "presence" => {}
            "error" if frame["retryable"] == true => self.socket = None,
            "subscribed" => {
                let epoch = self.epoch.get_or_insert_with(|| frame["epoch"].clone());
                assert_eq!(*epoch, frame["epoch"], "{}: the history is another one", self.room);
            }
            "reset" => {
                assert_eq!(self.room, super::BRIEF, "nothing is ever gone there: {frame}");
                let oldest = frame["oldest"].as_u64().unwrap();
                assert!(oldest > self.position + 1, "{frame} behind {}", self.position);
                self.gaps.push((self.position, oldest));
                self.position = oldest - 1;
            }
            "message" => {
                let seen = Seen::new(&frame);
                let (room, seq, position) = (self.room, seen.seq, self.position);
                let is_next = seq == position + 1 || room == super::BRIEF && position == 0;
                assert!(is_next, "{room}: {seq} came after {position}");
                self.position = seq;
                self.is_at_end = frame["message"] == END;
                self.seen.push(seen);
            }
            _ => panic!("{}: {frame}", self.room),
        }
    }

    /// Where something may be gone: one sender's messages, numbered on but for gaps that were told. What is sent or
    /// delivered by the broker once more is a new message where the first is gone meanwhile.
    pub(super) fn check_with_gaps(&self) {
        let (mut last, mut newest) = (0, None);
        for Seen { seq, number, .. } in &self.seen {
            let Some((_, number)) = number else { continue };
            let is_told = self.gaps.iter().any(|gap| last <= gap.0 && gap.1 <= *seq);
            let is_next = newest.is_none_or(|newest| *number <= newest + 1);
            assert!(is_next || is_told, "{}: {number} behind {newest:?} with {:?}", self.room, self.gaps);
            (last, newest) = (*seq, newest.max(Some(*number)));
        }
    }
}

/// Reads to the end of the room.
pub(super) async fn follow(mut reader: Reader, pace: Pace) -> Reader {
    let random = reader.world.random();
    while !reader.is_at_end {
        reader.step().await;
        if reader.world.is_over() {
            continue;
        }
        let rest_ms = match pace {
            Pace::Live => continue,
            Pace::Slow => 2,
            Pace::Stops if below(&random, 300) == 0 => 1_000 + below(&random, 15_000),
            Pace::Stops => continue,
        };
        // In small steps, so that the end is not waited for.
        for _ in 0..rest_ms.div_ceil(100) {
            if !reader.world.is_over() {
                tokio::time::sleep(Duration::from_millis(rest_ms.min(100))).await;
            }
        }
    }
    reader
}

/// Comes late, begins somewhere, reads on into what is live, and compares with what is read in pages.
pub(super) async fn join_late(world: Arc<World>, room: &'static str) {
    let (random, mut client) = (world.random(), world.client());
    let head = client.get(&format!("/v1/rooms/{room}")).await["head"].as_u64().unwrap();
    let begin = head.saturating_sub(below(&random, 2 * JOINED as u64));
    let mut reader = Reader::new(&world, room, begin);
    while reader.seen.len() < JOINED && !reader.is_at_end {
        reader.step().await;
    }
    reader.seen.truncate(JOINED);
    let page = client.get(&format!("/v1/rooms/{room}/messages?after={begin}&limit={JOINED}")).await;
    let page: Vec<Seen> = page["messages"].as_array().unwrap().iter().map(Seen::new).collect();
    assert_eq!(reader.seen[..page.len()], page, "{room} behind {begin}");
    assert!(page.len() == reader.seen.len() || room == super::BIG, "{room}: a page of {}", page.len());
}
