//! Retention that removes what a client is about to read is told by `reset`, never passed over.

use hyper::Method;
use serde_json::{Value, json};

use crate::event_stream_resumes::Events;
#[cfg(all(feature = "kafka", feature = "scylla"))]
use crate::harness::{Cassandra, Kafka};
use crate::harness::{Server, Setup, seqs, until};

/// Together more than can be on its way to a reader that does not read.
const TEXT_BYTES: usize = 40_000;
const MESSAGES: usize = 600;

async fn filled(server: Server, rooms: &[&str]) -> Server {
    let mut http = server.http().await;
    for room in rooms {
        let line = json!({"roomId": room, "userId": "ada", "message": "x".repeat(TEXT_BYTES)});
        let line = format!("{line}\n");
        let mut sent = 0;
        until("a full room", async || {
            let answer = http.post("/v1/messages", line.repeat(20)).await;
            sent += answer.lines().iter().filter(|receipt| receipt["code"].is_null()).count();
            sent >= MESSAGES
        })
        .await;
        until("it is stored", async || {
            described(&server, room).await["messages"].as_u64() == Some(sent as u64)
        })
        .await;
    }
    server
}

async fn described(server: &Server, room: &str) -> Value {
    server.call("", Method::GET, &format!("/v1/rooms/{room}"), Value::Null).await.json()
}

/// Has retention remove everything.
async fn remove_all(server: &Server, room: &str) {
    server.put_room(room, json!({"retention": 1})).await;
    until("retention", async || described(server, room).await["messages"] == 0).await;
    server.put_room(room, json!({"retention": null})).await;
}

/// Adds a message; its seq. It may be stored later.
async fn add(server: &Server, room: &str, text: &str) -> u64 {
    let answer = server.send_as(room, &text.replace(' ', "-"), text).await;
    assert!(answer.status < 300, "{}", answer.text());
    let mut found = None;
    until("it is stored", async || {
        let history = server.history(room).await;
        found = history.last().filter(|last| last["message"] == text).and_then(|last| last["seq"].as_u64());
        found.is_some()
    })
    .await;
    found.unwrap()
}

/// Takes the messages of a client that began with the oldest, and the one gap among them.
struct Reader {
    /// All there ever were.
    seqs: Vec<u64>,
    seq: u64,
    resets: usize,
}

impl Reader {
    async fn new(server: &Server, room: &str) -> Self {
        Self { seqs: seqs(&server.history(room).await), seq: 0, resets: 0 }
    }

    fn is_behind(&self) -> bool {
        self.seqs.last().is_none_or(|last| self.seq < *last)
    }

    fn take(&mut self, kind: &str, data: &Value, is_live: bool) {
        if kind == "reset" {
            self.resets += 1;
            let (oldest, head) = (data["oldest"].as_u64().unwrap(), data["head"].as_u64().unwrap());
            assert!(self.seq > 0 && oldest > self.seq + 1, "{data} behind {}", self.seq);
            self.seq = if is_live { head } else { oldest - 1 };
            return;
        }
        assert_eq!(kind, "message", "{data}");
        let next = self.seqs.iter().find(|seq| **seq > self.seq).unwrap();
        assert_eq!(data["seq"], *next, "a gap that was not told");
        self.seq = *next;
    }
}

/// A reader that stops in the middle while retention removes everything, on a server that has these rooms.
async fn is_told(server: &Server, room: &str, on_reset: &str) {
    let mut reader = Reader::new(server, room).await;
    let mut socket = server.subscriber(room, json!({"after": 0, "onReset": on_reset})).await;
    remove_all(server, room).await;
    reader.seqs.push(add(server, room, "the last").await);
    while reader.is_behind() {
        let frame = socket.receive().await;
        reader.take(frame["type"].as_str().unwrap(), &frame, on_reset == "live");
        if !reader.is_behind() && on_reset == "live" && frame["type"] == "reset" {
            reader.seqs.push(add(server, room, "live").await);
        }
    }
    assert_eq!(reader.resets, 1, "{on_reset}");
}

#[tokio::test]
async fn retention_is_told_while_catching_up() {
    let server = filled(Setup::new().start(), &["replay", "live"]).await;
    for on_reset in ["replay", "live"] {
        is_told(&server, on_reset, on_reset).await;
    }
}

/// A cursor whose next message is gone is refused; one behind which nothing is missing goes on.
#[tokio::test]
async fn retention_behind_a_cursor_is_told() {
    let server = Setup::new().start();
    for text in ["one", "two", "three"] {
        add(&server, "r", text).await;
    }
    remove_all(&server, "r").await;
    assert_eq!(add(&server, "r", "four").await, 4);
    let reset = server.get("/v1/rooms/r/messages?after=2").await.problem(410, "reset");
    assert_eq!((&reset["oldest"], &reset["head"]), (&json!(4), &json!(4)));
    let page = server.get("/v1/rooms/r/messages?after=3").await.json();
    assert_eq!(page["messages"][0]["seq"], 4, "{page}");
    for (after, first) in [(2, "reset"), (3, "message")] {
        let mut socket = server.subscriber("r", json!({"after": after})).await;
        assert_eq!(socket.receive().await["type"], first, "{after}");
    }
}

/// The reader is on the one server, what is removed is committed by either.
#[cfg(all(feature = "kafka", feature = "scylla"))]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retention_is_told_behind_kafka() {
    let (kafka, cassandra) = (Kafka::shared(), Cassandra::shared());
    let setup = Cassandra::replicated(kafka.setup(&cassandra.url(), 4));
    let server = filled(setup.clone().on("a").start(), &["replay", "live"]).await;
    let _other = setup.on("b").start();
    for on_reset in ["replay", "live"] {
        is_told(&server, on_reset, on_reset).await;
    }
}

#[tokio::test]
async fn an_event_stream_is_told_too() {
    let server = filled(Setup::new().start(), &["r"]).await;
    let mut reader = Reader::new(&server, "r").await;
    let mut events = Events::open(&server, "?after=0", None).await;
    events.receive("subscribed").await;
    remove_all(&server, "r").await;
    reader.seqs.push(add(&server, "r", "the last").await);
    while reader.is_behind() {
        let event = events.next().await.expect("the stream ended");
        reader.take(&event.kind, &event.data, false);
    }
    assert_eq!(reader.resets, 1);
}
