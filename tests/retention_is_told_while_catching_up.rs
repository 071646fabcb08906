//! Retention that removes what a client is about to read is told by `reset`, never passed over.

use hyper::Method;
use serde_json::{Value, json};

use crate::event_stream_resumes::Events;
use crate::harness::{Server, Setup, until};

/// Together more than can be on its way to a reader that does not read.
const TEXT_BYTES: usize = 40_000;
const MESSAGES: usize = 600;

async fn filled(rooms: &[&str]) -> Server {
    let server = Setup::new().start();
    let mut http = server.http().await;
    for room in rooms {
        let line = json!({"roomId": room, "userId": "ada", "message": "x".repeat(TEXT_BYTES)});
        let line = format!("{line}\n");
        let mut sent = 0;
        until("a full room", async || {
            let answer = http.post("/v1/messages", line.repeat(20)).await;
            sent += answer.lines().iter().filter(|receipt| receipt["seq"].is_u64()).count();
            sent >= MESSAGES
        })
        .await;
    }
    server
}

/// Has retention remove everything, and adds a message; its seq.
async fn remove_all(server: &Server, room: &str) -> u64 {
    server.put_room(room, json!({"retention": 1})).await;
    until("retention", async || {
        let room = server.call("", Method::GET, &format!("/v1/rooms/{room}"), Value::Null).await.json();
        room["messages"] == 0
    })
    .await;
    server.put_room(room, json!({"retention": null})).await;
    server.send(room, "the last").await["seq"].as_u64().unwrap()
}

/// Takes the messages of a client that began with the oldest, up to `last`, and the one gap among them.
#[derive(Default)]
struct Reader {
    seq: u64,
    resets: usize,
}

impl Reader {
    fn take(&mut self, kind: &str, data: &Value, is_live: bool) {
        if kind == "reset" {
            self.resets += 1;
            let (oldest, head) = (data["oldest"].as_u64().unwrap(), data["head"].as_u64().unwrap());
            assert!(self.seq > 0 && oldest > self.seq + 1, "{data} behind {}", self.seq);
            self.seq = if is_live { head } else { oldest - 1 };
            return;
        }
        assert_eq!(kind, "message", "{data}");
        assert_eq!(data["seq"], self.seq + 1, "a gap that was not told");
        self.seq += 1;
    }
}

#[tokio::test]
async fn retention_is_told_while_catching_up() {
    let server = filled(&["replay", "live"]).await;
    for on_reset in ["replay", "live"] {
        let how = json!({"after": 0, "onReset": on_reset});
        let mut socket = server.subscriber(on_reset, how).await;
        let mut last = remove_all(&server, on_reset).await;
        let mut reader = Reader::default();
        while reader.seq < last {
            let frame = socket.receive().await;
            reader.take(frame["type"].as_str().unwrap(), &frame, on_reset == "live");
            if reader.seq == last && on_reset == "live" && frame["type"] == "reset" {
                last = server.send(on_reset, "live").await["seq"].as_u64().unwrap();
            }
        }
        assert_eq!(reader.resets, 1, "{on_reset}");
    }
}

#[tokio::test]
async fn an_event_stream_is_told_too() {
    let server = filled(&["r"]).await;
    let mut events = Events::open(&server, "?after=0", None).await;
    events.receive("subscribed").await;
    let last = remove_all(&server, "r").await;
    let mut reader = Reader::default();
    while reader.seq < last {
        let event = events.next().await.expect("the stream ended");
        reader.take(&event.kind, &event.data, false);
    }
    assert_eq!(reader.resets, 1);
}
