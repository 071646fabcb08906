//! Frames over sockets and commands of the line protocol.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::Who::{self, *};
use super::{bad_tokens, is_enough, prepared, token_of};
use crate::harness::Ws;

/// Frames of clients over `/v1/ws`, with what they need.
const FRAMES: &[(&str, Who, &str)] = &[
    ("auth", Everybody, "authenticated"),
    ("subscribe", Reader, "subscribed"),
    ("subscribeAll", Any, "subscribed"),
    ("unsubscribe", Any, "error"),
    ("read", Reader, "read"),
    ("send", Writer, "ack"),
    ("typing", Writer, "error"),
    ("ping", Any, "pong"),
];

fn frame(name: &str) -> Value {
    match name {
        "subscribeAll" => json!({"type": "subscribe", "roomId": "*"}),
        "unsubscribe" => json!({"type": "unsubscribe", "roomId": "elsewhere"}),
        "read" => json!({"type": "read", "ref": 1, "roomId": "lobby", "seq": 1}),
        "send" => json!({"type": "send", "roomId": "lobby", "message": "x"}),
        "auth" => json!({"type": "auth", "token": token_of("ada", Any)}),
        other => json!({"type": other, "roomId": "lobby"}),
    }
}

#[tokio::test]
async fn no_frame_without_a_token() {
    let server = prepared().await;
    let document = server.get("/asyncapi.json").await.json();
    let operations = document["operations"].as_object().unwrap();
    let of_clients = operations.iter().filter(|(_, operation)| operation["action"] == "receive");
    let names: BTreeSet<&str> = of_clients.map(|(name, _)| name.as_str()).collect();
    let known: BTreeSet<&str> = FRAMES.iter().map(|(name, ..)| *name).chain(["chatMessage"]).collect();
    assert_eq!(names, known, "say here what each frame needs");
    for &(name, needs, answer) in FRAMES {
        if needs != Everybody {
            let mut socket = server.ws("/v1/ws?user=ada").await;
            socket.send(&frame(name)).await;
            assert_eq!(socket.next().await.unwrap()["code"], "unauthorized", "{name}");
            assert_eq!(
                socket.next().await,
                Err(Some((4401, "the first frame must be auth, with a token".into())))
            );
        }
        for (what, token) in bad_tokens() {
            let mut socket = server.ws("/v1/ws").await;
            socket.send(&json!({"type": "auth", "token": token})).await;
            assert_eq!(socket.next().await.unwrap()["code"], "unauthorized", "{what}");
            assert_eq!(socket.close_code().await, Some(4401), "{what}");
        }
        for has in [Any, Reader, Writer, Scoped] {
            let mut socket = Ws::with_token(server.address(), "/v1/ws", &token_of("ada", has)).await;
            socket.send(&frame(name)).await;
            let said = socket.next().await.unwrap();
            let is_let_in = said["code"] != "forbidden" && said["code"] != "unauthorized";
            assert_eq!(is_let_in, is_enough(has, needs), "{name} as {has:?}: {said}");
            assert!(!is_let_in || said["type"] == answer, "{name} as {has:?}: {said}");
        }
    }
    // The other dialect has one frame.
    for (has, status) in [(Any, 403), (Reader, 403), (Scoped, 403)] {
        let bearer = format!("Bearer {}", token_of("7", has));
        let opened = Ws::with_header(server.address(), "/chat/lobby", "authorization", &bearer).await;
        assert_eq!(opened.err(), Some(status), "{has:?}");
    }
    let mut socket = Ws::with_token(server.address(), "/chat/lobby", &token_of("7", Writer)).await;
    let mut message = crate::harness::chat_message("m1", "hello");
    message["userId"] = 7.into();
    socket.send(&message).await;
    assert_eq!(socket.next().await.unwrap()["status"], "success");
    message["userId"] = 8.into();
    socket.send(&message).await;
    assert_eq!(socket.next().await.unwrap()["code"], "forbidden");
    // Who may only read may follow, and send nothing.
    let mut reader = Ws::with_token(server.address(), "/chat/lobby?live=1", &token_of("7", Reader)).await;
    message["userId"] = 7.into();
    reader.send(&message).await;
    assert_eq!(reader.next().await.unwrap()["code"], "forbidden");
}

/// Commands of the line protocol, with what they need; 7 is who gives them.
const COMMANDS: &[(&str, &str, Who)] = &[
    ("auth", "auth\ntoken:x\n", Everybody),
    ("register", "register\nid:7\n", Reader),
    ("create queue", "create queue\n", Admin),
    ("delete queue", "delete queue\nid:99\n", Admin),
    ("list users", "list users\n", Scoped),
    ("list all queues", "list all queues\n", Any),
    ("list queues", "list queues\nreceiver:7\n", Reader),
    ("send msg", "send msg\nsender:7;queue:1;content:x\n", Writer),
    ("get msg", "get msg\nqueue:1;receiver:7\n", Reader),
    ("read msg", "read msg\nsender:1;receiver:7\n", Reader),
    ("ping", "ping\n\n", Any),
    ("un_register", "un_register\n", Any),
];

#[tokio::test]
async fn no_command_without_a_token() {
    let documented = include_str!("../../docs/line-protocol.md");
    let rows = documented.lines().filter_map(|line| line.strip_prefix("| ")?.split('`').nth(1));
    let names: BTreeSet<&str> = rows.filter(|name| *name != "Bad Request").collect();
    let known: BTreeSet<&str> = COMMANDS.iter().map(|(name, ..)| *name).collect();
    assert!(names.is_subset(&known) && known.is_subset(&names), "{names:?} {known:?}");
    let server = prepared().await;
    for &(name, bytes, needs) in COMMANDS {
        if needs != Everybody {
            server.line().await.request(bytes, &["Unauthorized"]).await;
        }
        for has in [Any, Reader, Writer, Scoped, Admin] {
            if needs == Everybody {
                continue;
            }
            let mut line = server.line().await;
            line.request(format!("auth\ntoken:{}\n", token_of("7", has)), &["OK"]).await;
            line.send(bytes).await;
            let answer = line.receive().await.unwrap();
            assert_ne!(answer, "Unauthorized", "{name} as {has:?}");
            assert_eq!(answer != "Forbidden", is_enough(has, needs), "{name} as {has:?}: {answer}");
        }
    }
    for (what, token) in bad_tokens() {
        let mut line = server.line().await;
        line.request(format!("auth\ntoken:{token}\nping\n\n"), &["Unauthorized", "Unauthorized"]).await;
        assert!(!what.is_empty());
    }
    // Somebody else's name, whatever else is right.
    let mut line = server.line().await;
    line.request(format!("auth\ntoken:{}\n", token_of("7", Writer)), &["OK"]).await;
    for bytes in [
        "register\nid:8\n",
        "send msg\nsender:8;queue:1;content:x\n",
        "get msg\nqueue:1;receiver:8\n",
        "list queues\nreceiver:8\n",
    ] {
        line.request(bytes, &["Forbidden"]).await;
    }
    line.request(format!("auth\ntoken:{}\n", token_of("8", Writer)), &["Forbidden"]).await;
}
