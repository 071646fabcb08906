//! What is said over sockets, one frame after another, on a fresh server. The tests hold them, word for word but for
//! epochs, times and the ids the server makes.
//!
//! Frames that the server says to one socket without being interrupted may come in another order, if their kinds
//! differ: an `ack` waits for nobody else's `message`.

use hubbub_core::ErrorCode as E;
use serde_json::{Value, json};

use super::frames::Channel;
use super::values::{EPOCH, NOW, inner, invalid, message, receipt, refusal, with};

/// One frame.
pub(super) struct Line {
    /// The socket it goes over, named by its user.
    pub(super) socket: &'static str,
    /// The kind of frame, by its name in [`super::frames`].
    pub(super) frame: &'static str,
    pub(super) payload: Value,
}

fn line(socket: &'static str, frame: &'static str, payload: Value) -> Line {
    Line { socket, frame, payload }
}

/// What is done over HTTP before a conversation: method, path, and who calls.
pub(super) fn before(channel: Channel) -> &'static [(&'static str, &'static str, &'static str)] {
    match channel {
        // Whoever makes a room is its first member.
        Channel::Api => &[("PUT", "/v1/rooms/tea", "ada")],
        Channel::Chat => &[],
    }
}

/// The conversation of a channel.
pub(super) fn of(channel: Channel) -> Vec<Line> {
    match channel {
        Channel::Api => api(),
        Channel::Chat => chat(),
    }
}

fn live(message: Value) -> Value {
    with(json!({"type": "message"}), message)
}

fn ack(reference: &str, receipt: Value) -> Value {
    with(json!({"type": "ack", "ref": reference}), receipt)
}

fn stands(kind: &str, room: &str, oldest: u64, head: u64) -> Value {
    json!({"type": kind, "roomId": room, "epoch": EPOCH, "oldest": oldest, "head": head})
}

fn api() -> Vec<Line> {
    let first =
        json!({"type": "send", "ref": "c1", "roomId": "lobby", "message": "hello", "messageId": "m-1"});
    let hello = message("m-1", "ada", "hello", 1);
    let answer = with(message("m-2", "bob", "hello, Ada", 2), json!({"username": "Bob"}));
    let presence = |is_online: bool| json!({"type": "presence", "roomId": "lobby", "userId": "bob", "online": is_online});
    let wrong = invalid(&[("message", "is required")]);
    let unknown = refusal(
        E::UnknownType,
        "type 'shout' is not one of send, subscribe, unsubscribe, read, typing, ping",
    );
    let error = |reference: &str, problem| with(json!({"type": "error", "ref": reference}), inner(problem));
    let marked = json!({"type": "read", "roomId": "tea", "userId": "ada", "seq": 1, "unread": 0});
    vec![
        line("ada", "subscribe", json!({"type": "subscribe", "ref": 1, "roomId": "lobby", "after": 0})),
        line("ada", "subscribed", with(stands("subscribed", "lobby", 1, 0), json!({"ref": 1}))),
        line("ada", "send", first.clone()),
        line("ada", "ack", ack("c1", receipt("m-1", 1, false))),
        line("ada", "message", live(hello.clone())),
        // No answer came? The same once more; it is stored once.
        line("ada", "send", first),
        line("ada", "ack", ack("c1", receipt("m-1", 1, true))),
        line("bob", "subscribe", json!({"type": "subscribe", "roomId": "lobby", "last": 50})),
        line("bob", "subscribed", stands("subscribed", "lobby", 1, 1)),
        line("bob", "message", live(hello)),
        line("ada", "presence", presence(true)),
        line("bob", "typing", json!({"type": "typing", "roomId": "lobby"})),
        line("ada", "somebodyTypes", json!({"type": "typing", "roomId": "lobby", "userId": "bob"})),
        line(
            "bob",
            "send",
            json!({"type": "send", "ref": "b1", "roomId": "lobby", "message": "hello, Ada", "username": "Bob", "messageId": "m-2"}),
        ),
        line("bob", "ack", ack("b1", receipt("m-2", 2, false))),
        line("bob", "message", live(answer.clone())),
        line("ada", "message", live(answer.clone())),
        line("bob", "unsubscribe", json!({"type": "unsubscribe", "roomId": "lobby"})),
        line("bob", "unsubscribed", json!({"type": "unsubscribed", "roomId": "lobby"})),
        line("ada", "presence", presence(false)),
        // Back again, from the last seq it has.
        line("bob", "subscribe", json!({"type": "subscribe", "roomId": "lobby", "after": 1})),
        line("bob", "subscribed", stands("subscribed", "lobby", 1, 2)),
        line("bob", "message", live(answer)),
        line("ada", "presence", presence(true)),
        // A cursor of another history.
        line(
            "bob",
            "subscribe",
            json!({"type": "subscribe", "roomId": "garden", "after": 41, "epoch": "gone", "onReset": "live"}),
        ),
        line("bob", "subscribed", stands("subscribed", "garden", 1, 0)),
        line("bob", "reset", stands("reset", "garden", 1, 0)),
        line("bob", "ping", json!({"type": "ping", "ref": {"at": 7}})),
        line("bob", "pong", json!({"type": "pong", "ref": {"at": 7}})),
        line("bob", "send", json!({"type": "send", "ref": "b2", "roomId": "lobby"})),
        line("bob", "error", error("b2", &wrong)),
        line("bob", "unsupported", json!({"type": "shout", "ref": "b3"})),
        line("bob", "error", error("b3", &unknown)),
        // All rooms ada is a member of; what is unread there comes.
        line("ada", "subscribeAll", json!({"type": "subscribe", "ref": 2, "roomId": "*"})),
        line(
            "ada",
            "subscribedMine",
            with(stands("subscribed", "tea", 1, 0), json!({"ref": 2, "readSeq": 0})),
        ),
        line("ada", "subscribedAll", json!({"type": "subscribed", "ref": 2, "roomId": "*", "rooms": 1})),
        line(
            "bob",
            "send",
            json!({"type": "send", "ref": "b4", "roomId": "tea", "message": "a cup?", "messageId": "m-1"}),
        ),
        line("bob", "ack", ack("b4", receipt("m-1", 1, false))),
        line("ada", "message", live(with(message("m-1", "bob", "a cup?", 1), json!({"roomId": "tea"})))),
        // Answered, and told to all her sockets, this one too.
        line("ada", "read", json!({"type": "read", "ref": 3, "roomId": "tea", "seq": 1})),
        line("ada", "marked", with(marked.clone(), json!({"ref": 3}))),
        line("ada", "marked", marked),
        line("ada", "unsubscribe", json!({"type": "unsubscribe", "roomId": "*"})),
        line("ada", "unsubscribed", json!({"type": "unsubscribed", "roomId": "*"})),
    ]
}

fn chat() -> Vec<Line> {
    let message = json!({
        "userId": 42, "username": "ada1815", "message": "hello", "timestamp": "2026-01-31T12:00:00Z",
        "messageType": "TEXT", "messageId": "m-1",
    });
    let success = json!({
        "status": "success", "messageId": "m-1", "seq": 1, "serverReceiveTime": NOW, "serverSendTime": NOW,
    });
    let error = json!({
        "status": "error", "code": "invalid", "retryable": false,
        "errors": [
            "userId is required", "username is required", "messageType is required", "timestamp is required",
        ],
    });
    vec![
        line("client", "chatMessage", message.clone()),
        line("client", "chatSuccess", success.clone()),
        line("client", "chatMessage", message),
        line("client", "chatSuccess", with(success, json!({"duplicate": true}))),
        line("client", "unsupported", json!({"message": "who am I?"})),
        line("client", "chatError", error),
    ]
}
