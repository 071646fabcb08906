//! A bad frame is answered with what is wrong with it, all of it; the good ones around it are stored, and the socket
//! stays. Only what breaks the protocol itself ends it, with the code that says why.

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{Bytes, Message};

use crate::harness::{RawWs, Server, Setup, Ws, chat_message, faulty_fields, masked, texts};

fn good(text: &str) -> Value {
    let mut frame = chat_message(&format!("id-{}", text.replace(' ', "-")), text);
    frame["type"] = json!("send");
    frame["roomId"] = json!("r");
    frame
}

async fn must_ack(socket: &mut Ws, text: &str) {
    let answer = socket.request(&good(text)).await;
    assert!(answer["type"] == "ack" || answer["status"] == "success", "{text}: {answer}");
}

#[tokio::test]
async fn bad_frames_keep_the_socket() {
    let server = Server::start();
    let mut socket = server.ws("/v1/ws").await;
    let mut sent = Vec::new();
    let malformed = [
        "",
        "{",
        "nonsense",
        "[]",
        "7",
        "null",
        "\"text\"",
        "{\"type\":\"send\"",
        "{\"type\":7}",
        "{\"type\":\"send\",\"type\":\"send\"}",
    ];
    for (number, bad) in malformed.iter().enumerate() {
        let text = format!("before {number}");
        must_ack(&mut socket, &text).await;
        sent.push(text);
        socket.send_text(*bad).await;
        let error = socket.receive_type("error").await;
        assert_eq!(
            (&error["code"], &error["retryable"]),
            (&json!("malformed"), &json!(false)),
            "{bad}: {error}"
        );
        assert!(!error["detail"].as_str().unwrap().is_empty());
    }
    let long = "x".repeat(65);
    let cases = [
        (json!({"type": "send", "ref": 1}), "invalid", vec!["roomId", "userId", "message"]),
        (
            json!({"type": "send", "roomId": [], "userId": {}, "message": 7, "username": false, "messageType": 1, "timestamp": [], "messageId": 1.5}),
            "invalid",
            vec!["roomId", "userId", "messageId", "username", "message", "messageType", "timestamp"],
        ),
        (
            json!({"type": "send", "roomId": "a b", "userId": long, "message": "", "username": "", "messageType": "SHOUT", "timestamp": "soon", "messageId": ""}),
            "invalid",
            vec!["roomId", "userId", "messageId", "username", "message", "messageType", "timestamp"],
        ),
        (
            json!({"type": "send", "roomId": "r", "userId": "ada", "message": "a\0b"}),
            "invalid",
            vec!["message"],
        ),
        (
            json!({"type": "send", "roomId": "r", "userId": "ada", "message": "x".repeat((64 << 10) + 1)}),
            "invalid",
            vec!["message"],
        ),
        (json!({}), "invalid", vec!["type"]),
        (json!({"type": null}), "invalid", vec!["type"]),
        (json!({"type": "shout"}), "unknown_type", vec![]),
        (json!({"type": "subscribe"}), "invalid", vec!["roomId"]),
        (
            json!({"type": "subscribe", "roomId": "", "after": -1, "last": "x", "epoch": 7, "onReset": "maybe"}),
            "invalid",
            vec!["roomId", "after", "last", "epoch", "onReset"],
        ),
        (json!({"type": "subscribe", "roomId": "r", "after": 1, "last": 1}), "invalid", vec!["last"]),
        (json!({"type": "subscribe", "roomId": "r", "last": 1001}), "invalid", vec!["last"]),
        (json!({"type": "unsubscribe", "roomId": "r"}), "invalid", vec!["roomId"]),
    ];
    for (bad, code, fields) in cases {
        let error = socket.request(&bad).await;
        assert_eq!((&error["type"], &error["code"]), (&json!("error"), &json!(code)), "{bad}: {error}");
        assert_eq!(error.get("ref"), bad.get("ref"));
        if code == "invalid" {
            assert_eq!(faulty_fields(&error), fields, "{bad}: {error}");
        }
    }
    let error = socket.request(&json!({"type": "ping", "ref": "x".repeat(255)})).await;
    assert_eq!((&error["code"], faulty_fields(&error)), (&json!("invalid"), vec!["ref"]));
    let pong =
        socket.request(&json!({"type": "ping", "ref": 7, "unknown": {"fields": ["are", "ignored"]}})).await;
    assert_eq!(pong, json!({"type": "pong", "ref": 7}));

    must_ack(&mut socket, "after").await;
    sent.push("after".to_owned());
    assert_eq!(texts(&server.history("r").await), sent);
}

#[tokio::test]
async fn bad_chat_frames_keep_the_socket() {
    let server = Server::start();
    let mut socket = server.ws("/chat/r").await;
    let whole = chat_message("id", "hello");
    let with = |field: &str, value: Value| {
        let mut frame = whole.clone();
        frame[field] = value;
        frame
    };
    let all = ["userId", "username", "message", "messageType", "timestamp"];
    let mut cases = vec![
        (json!({}), all.to_vec()),
        (json!({"userId": 0, "username": "a", "message": "", "messageType": "x", "timestamp": "x"}), {
            // Each fault once, in whatever order.
            all.to_vec()
        }),
        (
            json!({"userId": [], "username": 7, "message": {}, "messageType": 7, "timestamp": true}),
            all.to_vec(),
        ),
        (with("userId", json!(100_001)), vec!["userId"]),
        (with("userId", json!(-1)), vec!["userId"]),
        (with("username", json!("ab")), vec!["username"]),
        (with("username", json!("a".repeat(21))), vec!["username"]),
        (with("username", json!("a_b_c")), vec!["username"]),
        (with("message", json!("ä".repeat(501))), vec!["message"]),
        (with("messageType", json!("SHOUT")), vec!["messageType"]),
        (with("timestamp", json!("yesterday")), vec!["timestamp"]),
        (with("messageId", json!("a b")), vec!["messageId"]),
    ];
    for field in all {
        let mut frame = whole.clone();
        frame.as_object_mut().unwrap().remove(field);
        cases.push((frame, vec![field]));
    }
    let count = cases.len();
    for (number, (bad, mut fields)) in cases.into_iter().enumerate() {
        let text = format!("good {number}");
        // All at once: the answers come in the order of the frames, also when they are errors.
        socket.send_all(&[good(&text), bad.clone(), good(&format!("{text} too"))]).await;
        let answers = socket.receive_many(3).await;
        let statuses: Vec<_> = answers.iter().map(|answer| answer["status"].as_str().unwrap()).collect();
        assert_eq!(statuses, ["success", "error", "success"], "{bad}: {answers:?}");
        let errors = answers[1]["errors"].as_array().unwrap();
        let mut named: Vec<_> =
            errors.iter().map(|e| e.as_str().unwrap().split(' ').next().unwrap()).collect();
        named.sort_unstable();
        fields.sort_unstable();
        assert_eq!(named, fields, "{bad}: {errors:?}");
    }
    for malformed in ["", "{", "[1]", "hello"] {
        socket.send_text(malformed).await;
        let answer = socket.receive().await;
        assert_eq!(
            (&answer["status"], answer["errors"].as_array().unwrap().len()),
            (&json!("error"), 1),
            "{answer}"
        );
    }
    must_ack(&mut socket, "last").await;
    assert_eq!(server.history("r").await.len(), 2 * count + 1);
}

#[tokio::test]
async fn what_breaks_the_protocol_ends_the_socket() {
    let server = Setup::new().set("limits.message_bytes=1KiB").set("limits.body_bytes=64KiB").start();
    for path in ["/v1/ws", "/chat/r"] {
        let bad_utf8 = Message::Frame(tokio_tungstenite::tungstenite::protocol::frame::Frame::message(
            Bytes::from_static(&[b'"', 0xC3, 0x28, b'"']),
            tokio_tungstenite::tungstenite::protocol::frame::coding::OpCode::Data(
                tokio_tungstenite::tungstenite::protocol::frame::coding::Data::Text,
            ),
            true,
        ));
        // The longest text with every byte escaped still fits; more than that cannot be a message.
        let huge = Message::text("x".repeat(6 * 1024 + 4096 + 1));
        for (code, bad) in [(4400, Message::binary(vec![1, 2, 3])), (1007, bad_utf8), (1009, huge)] {
            let mut socket = server.ws(path).await;
            // What came before is stored and answered, although the end is right behind it.
            let text = format!("{} {code}", path.len());
            assert!(socket.try_send_all(&[good(&text)]).await);
            socket.send_message(bad).await;
            let answer = socket.receive().await;
            assert!(answer["type"] == "ack" || answer["status"] == "success", "{answer}");
            let closed = socket.closed().await;
            assert_eq!(closed.0, code, "{path}: {closed:?}");
            assert!(!closed.1.is_empty(), "{path}: {code} says why");
        }
    }
    assert_eq!(server.history("r").await.len(), 6);
}

/// A binary message is refused by its header: its sender has not even begun with the payload.
#[tokio::test]
async fn a_binary_message_is_not_waited_for() {
    let server = Server::start();
    for path in ["/v1/ws", "/chat/r"] {
        let mut socket = RawWs::open(server.address(), path).await;
        let header = masked(0x82, &[0; 70_000])[..14].to_vec();
        let answers = socket.exchange(&[header], 1).await;
        let [(0x88, payload)] = &answers[..] else { panic!("{path}: {answers:?}") };
        assert_eq!(payload[..2], 4400_u16.to_be_bytes(), "{path}");
    }
}
